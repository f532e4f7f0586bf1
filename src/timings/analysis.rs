use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::distribution::Distribution;
use super::dots::{Chooser, Dots};
use super::histogram::Histogram;
use super::period::{Correlator, Found, Lags, WINDOW, longest_tried, search};
use super::pictures;
use super::rhythm::{Follower, Rhythm};
use super::{BatchCheck, EXACT_ROWS, Source, Store, TimingsError};

/// What the reader wants to know beyond the defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Period to follow in place of those that are found.
    pub period: Option<usize>,
    /// Batches that pictures show in detail.
    pub range: Range<u64>,
    /// Whether dots are needed.
    pub pictures: bool,
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
    /// The period in all its epochs taken together, or none.
    pub found: Option<Found>,
    /// The longest period that was tried, of all epochs together; below 2, none was.
    pub longest_tried: usize,
    /// The period that was followed: that, or the one asked for.
    pub period: Option<usize>,
    /// The period in what is left when the batches of the first are taken out.
    pub second: Option<Found>,
    /// Its epochs, in the order of their first rows.
    pub epochs: Vec<SeriesTimings>,
}

/// What is said of one epoch of a method.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesTimings {
    /// Its name.
    pub epoch: String,
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
    /// Work out everything about the rows of a store.
    ///
    /// # Errors
    /// A temporary file that cannot be read, or rows that cannot be put in order.
    pub fn of(source: Source, store: &mut Store, settings: &Settings) -> Result<Self, TimingsError> {
        let names = store.methods().to_vec();
        let mut methods = Vec::new();
        for (id, name) in names.into_iter().enumerate() {
            methods.extend(of_method(store, id, name, settings)?);
        }
        Ok(Self { source, methods, range: settings.range.clone() })
    }
}

fn of_method(
    store: &mut Store,
    id: usize,
    method: String,
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
        let Some(times) = distribution(store, &[place])? else { continue };
        epochs.push(SeriesTimings {
            epoch: store.epoch(place).to_owned(),
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
        [only] => Some(only.times.clone()),
        _ => distribution(store, &places)?,
    };
    let Some(all) = all else { return Ok(None) };
    let found = if let [only] = &epochs[..] { only.found } else { search(&lags) };
    let period = settings.period.or(found.map(|found| found.period));
    let longest_tried = longest_tried(&lags);
    let mut timings = MethodTimings { method, all, found, longest_tried, period, second: None, epochs };
    if let Some(period) = period {
        follow(store, &places, &mut timings, period, &mut correlator)?;
    }
    Ok(Some(timings))
}

/// Follow the slow batches of a period through all epochs; then look at what is left without them.
fn follow(
    store: &mut Store,
    places: &[usize],
    timings: &mut MethodTimings,
    period: usize,
    correlator: &mut Correlator,
) -> Result<(), TimingsError> {
    let mut rest = Lags::default();
    for (place, epoch) in places.iter().copied().zip(&mut timings.epochs) {
        let mut follower = Follower::new(period, store.series()[place].rows());
        let mut random = Pcg64::seed_from_u64(place as u64);
        store.each_window(place, WINDOW, |window| {
            let beats = follower.window(window);
            correlator.add(&without(window, &beats, &mut random), &mut rest);
        })?;
        epoch.rhythm = Some(follower.result());
    }
    timings.second = search(&rest);
    let Some(second) = timings.second else { return Ok(()) };
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
    Ok(())
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
fn distribution(store: &mut Store, places: &[usize]) -> Result<Option<Distribution>, TimingsError> {
    let rows: u64 = places.iter().map(|place| store.series()[*place].rows()).sum();
    if rows <= EXACT_ROWS {
        let mut times = Vec::with_capacity(rows as usize);
        for place in places {
            store.each_part(*place, |part| times.extend(part))?;
        }
        return Ok(Distribution::of_times(&mut times));
    }
    let mut histogram = Histogram::default();
    for place in places {
        store.each_part(*place, |part| histogram.add(part))?;
    }
    Ok(Distribution::of_histogram(&histogram))
}
