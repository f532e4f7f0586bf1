use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::distribution::{Curve, Distribution};
use super::dots::{Chooser, Dots};
use super::histogram::Histogram;
use super::period::{Correlator, Found, Lags, WINDOW, longest_tried, search};
use super::pictures;
use super::rhythm::{Follower, Rhythm};
use super::slow_stages::SlowStages;
use super::words::ALL;
use super::{BatchCheck, EXACT_ROWS, LedgerSteps, Source, Store, TimingsError};
use crate::report::epoch_time::EpochTime;
use crate::stats::{Estimate, rate_over_runs};

/// What the reader wants to know beyond the defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Period to follow in place of those that are found.
    pub period: Option<usize>,
    /// Batches that pictures show in detail.
    pub range: Range<u64>,
    /// Whether dots are needed.
    pub pictures: bool,
    /// Points of the curves of single epochs.
    pub curve: Curve,
}

/// All that is said of a file or job.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// What was read.
    pub source: Source,
    /// By method, in the order of their first rows.
    pub methods: Vec<MethodTimings>,
    /// Batches that pictures show in detail.
    pub range: Range<u64>,
}

/// What is said of a method.
#[derive(Clone, Debug, Serialize)]
pub struct MethodTimings {
    /// Its name.
    pub method: String,
    /// All its epochs taken together.
    pub all: Distribution,
    /// What an epoch takes: of whole epochs, else from the mean batch and the batches of an epoch. None where neither is known.
    pub epoch_time: Option<EpochTime>,
    /// The first epoch beside the later ones; none of a single epoch.
    pub first_epoch: Option<FirstEpoch>,
    /// The period in all its epochs taken together, or none.
    pub found: Option<Found>,
    /// The longest period that was tried, of all epochs together; below 2, none was.
    pub longest_tried: usize,
    /// The period that was followed: that, or the one asked for.
    pub period: Option<usize>,
    /// The period in what is left when the batches of the first are taken out.
    pub second: Option<Found>,
    /// In which stages the slow batches take longer than the others; none of files, whose batches have no stages.
    pub slow_stages: Option<SlowStages>,
    /// Its epochs, in the order of their first rows.
    pub epochs: Vec<SeriesTimings>,
}

impl MethodTimings {
    /// The times of the first epoch and of all later ones; none of a single epoch.
    pub fn first_and_later(&self) -> Option<(&Distribution, &Distribution)> {
        let first = self.first_epoch.as_ref()?;
        let series = self.epochs.iter().find(|epoch| epoch.epoch == first.epoch)?;
        Some((&series.times, &first.later))
    }
}

/// The first epoch of a method beside all later ones.
#[derive(Clone, Debug, Serialize)]
pub struct FirstEpoch {
    /// Its name: the lowest number; where not all epochs have numbers, that of the first row.
    pub epoch: String,
    /// All epochs but that, taken together.
    pub later: Distribution,
    /// How many times as fast its batches were: mean time of the later ones over that of its own; none where these took no time.
    pub ratio: Option<f64>,
}

/// What is said of one epoch of a method.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesTimings {
    /// Its name.
    pub epoch: String,
    /// True if these are all batches of an epoch: of a file, as far as it has epochs; of a job, where all its steps were measured.
    pub whole: bool,
    /// What the batch numbers are worth; none where there are none, and rows were counted.
    pub check: Option<BatchCheck>,
    /// Its times.
    pub times: Distribution,
    /// The period in this epoch alone, or none.
    pub found: Option<Found>,
    /// The slow batches of the method's period here.
    pub rhythm: Option<Rhythm>,
    /// Those of the second period.
    pub second: Option<Rhythm>,
    /// Batches for pictures.
    #[serde(skip)]
    pub dots: Dots,
}

impl Analysis {
    /// Work out everything about the rows of a store; `steps` are those behind its rows, where they come from a ledger.
    ///
    /// # Errors
    /// A temporary file that cannot be read, or rows that cannot be put in order.
    pub fn of(
        source: Source,
        store: &mut Store,
        steps: Option<&LedgerSteps<'_>>,
        settings: &Settings,
    ) -> Result<Self, TimingsError> {
        let names = store.methods().to_vec();
        let mut methods = Vec::new();
        for (id, name) in names.into_iter().enumerate() {
            methods.extend(of_method(store, id, name, steps, settings)?);
        }
        Ok(Self { source, methods, range: settings.range.clone() })
    }
}

fn of_method(
    store: &mut Store,
    id: usize,
    method: String,
    steps: Option<&LedgerSteps<'_>>,
    settings: &Settings,
) -> Result<Option<MethodTimings>, TimingsError> {
    let places = store.of_method(id);
    let mut correlator = Correlator::default();
    let (mut lags, mut epochs) = (Lags::default(), Vec::new());
    for place in places.iter().copied() {
        let mut own = Lags::default();
        let drawn = settings.pictures && epochs.len() < pictures::SHOWN;
        let mut chooser = drawn.then(|| Chooser::new(store.series()[place].rows(), settings.range.clone()));
        store.each_window(place, WINDOW, |window| {
            correlator.add(window, &mut own);
            if let Some(chooser) = &mut chooser {
                chooser.add(window);
            }
        })?;
        let Some(times) = distribution(store, &[place], settings.curve)? else { continue };
        epochs.push(SeriesTimings {
            epoch: store.epoch(place).to_owned(),
            whole: steps.map_or(store.epoch(place) != ALL, |steps| steps.whole(place)),
            check: store.series()[place].check(),
            times,
            found: search(&own),
            rhythm: None,
            second: None,
            dots: chooser.map(Chooser::result).unwrap_or_default(),
        });
        lags.add(&own);
    }
    let all = match &epochs[..] {
        [only] if settings.curve == Curve::Reduced => Some(only.times.clone()),
        _ => distribution(store, &places, Curve::Reduced)?,
    };
    let Some(all) = all else { return Ok(None) };
    let found = if let [only] = &epochs[..] { only.found } else { search(&lags) };
    let period = settings.period.or(found.map(|found| found.period));
    let first_epoch = first_epoch(store, &places, &epochs)?;
    let mut timings = MethodTimings {
        method,
        epoch_time: epoch_time(&epochs, &all, steps.and_then(|steps| steps.epoch_batches(id))),
        all,
        first_epoch,
        found,
        longest_tried: longest_tried(&lags),
        period,
        second: None,
        slow_stages: None,
        epochs,
    };
    let mut beats = None;
    if let Some(period) = period {
        let on_beat = follow(store, &places, &mut timings, period, &mut correlator, steps.is_some())?;
        beats = Some((period, on_beat));
    }
    timings.slow_stages = steps.and_then(|steps| SlowStages::of(store, steps, &places, beats));
    Ok(Some(timings))
}

/// The first epoch beside the later ones, which are taken together.
fn first_epoch(
    store: &mut Store,
    places: &[usize],
    epochs: &[SeriesTimings],
) -> Result<Option<FirstEpoch>, TimingsError> {
    if epochs.len() < 2 {
        return Ok(None);
    }
    let number = |epoch: &SeriesTimings| epoch.epoch.parse::<f64>().ok().filter(|number| number.is_finite());
    let numbers: Option<Vec<f64>> = epochs.iter().map(number).collect();
    let lowest = numbers.and_then(|all| (0..all.len()).min_by(|a, b| all[*a].total_cmp(&all[*b])));
    let first = lowest.unwrap_or_default();
    let others: Vec<usize> = (0..places.len()).filter(|i| *i != first).map(|i| places[i]).collect();
    let (name, mean_s) = (epochs[first].epoch.clone(), epochs[first].times.mean_s);
    Ok(distribution(store, &others, Curve::Reduced)?.map(|later| {
        let ratio = (mean_s > 0.0).then(|| later.mean_s / mean_s);
        FirstEpoch { epoch: name, later, ratio }
    }))
}

/// What an epoch takes; `batches` are those of an epoch of a job.
fn epoch_time(epochs: &[SeriesTimings], all: &Distribution, batches: Option<u64>) -> Option<EpochTime> {
    let whole: Vec<f64> = epochs.iter().filter(|epoch| epoch.whole).map(|epoch| epoch.times.total_s).collect();
    let rate = || rate_over_runs(&[Estimate::plain(1.0 / all.mean_s)]);
    EpochTime::from_whole_epochs(&[whole]).or_else(|| EpochTime::from_rate(batches?, rate()?, 1))
}

/// Follow the slow batches of a period through all epochs; then look at what is left without them. Gives back the rows of each series that are
/// on the beat, where they are to be kept.
fn follow(
    store: &mut Store,
    places: &[usize],
    timings: &mut MethodTimings,
    period: usize,
    correlator: &mut Correlator,
    keep: bool,
) -> Result<Vec<Vec<usize>>, TimingsError> {
    let (mut rest, mut on_beat) = (Lags::default(), Vec::new());
    for (place, epoch) in places.iter().copied().zip(&mut timings.epochs) {
        let mut follower = Follower::new(period, store.series()[place].rows());
        let mut random = Pcg64::seed_from_u64(place as u64);
        let (mut rows, mut seen) = (Vec::new(), 0);
        store.each_window(place, WINDOW, |window| {
            let beats = follower.window(window);
            correlator.add(&without(window, &beats, &mut random), &mut rest);
            if keep {
                rows.extend(beats.iter().map(|beat| seen + beat));
            }
            seen += window.len();
        })?;
        on_beat.push(rows);
        epoch.rhythm = Some(follower.result());
    }
    timings.second = search(&rest);
    let Some(second) = timings.second else { return Ok(on_beat) };
    for (place, epoch) in places.iter().copied().zip(&mut timings.epochs) {
        let rows = store.series()[place].rows();
        let (mut first, mut follower) = (Follower::new(period, rows), Follower::new(second.period, rows));
        let mut random = Pcg64::seed_from_u64(place as u64);
        store.each_window(place, WINDOW, |window| {
            let beats = first.window(window);
            follower.window(&without(window, &beats, &mut random));
        })?;
        epoch.second = Some(follower.result());
    }
    Ok(on_beat)
}

/// A window with others of its batches, drawn at random, in the place of some. One and the same value there would be a period.
fn without(window: &[f64], places: &[usize], random: &mut Pcg64) -> Vec<f64> {
    let mut gone = places.iter().peekable();
    let others: Vec<f64> =
        window.iter().enumerate().filter(|(i, _)| gone.next_if_eq(&i).is_none()).map(|(_, time)| *time).collect();
    let mut rest = window.to_vec();
    if !others.is_empty() {
        places.iter().for_each(|place| rest[*place] = others[random.random_range(0..others.len())]);
    }
    rest
}

/// The distribution of some series taken together: sorted if they fit, else counted in bins.
fn distribution(store: &mut Store, places: &[usize], curve: Curve) -> Result<Option<Distribution>, TimingsError> {
    let rows: u64 = places.iter().map(|place| store.series()[*place].rows()).sum();
    if rows <= EXACT_ROWS {
        let mut times = Vec::with_capacity(rows as usize);
        for place in places {
            store.each_part(*place, |part| times.extend(part))?;
        }
        return Ok(Distribution::with_curve(&mut times, curve));
    }
    let mut histogram = Histogram::default();
    for place in places {
        store.each_part(*place, |part| histogram.add(part))?;
    }
    Ok(Distribution::of_histogram(&histogram))
}
