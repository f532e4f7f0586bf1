//! The analysis of batch times: by method and epoch.

use std::ops::Range;

use expctl_stats::{Estimate, rate_over_runs};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::batch_check::BatchCheck;
use super::batch_times::{BatchTimes, EXACT_ROWS};
use super::beats::{BeatFollower, BeatSummary};
use super::distribution::{CurveDetail, Distribution, Histogram, MAX_EPOCHS, ScatterPoints, ScatterSelector};
use super::ledger_steps::{LedgerSteps, SlowStages};
use super::period::{Correlator, FoundPeriod, Lags, WINDOW, longest_tried, search};
use super::source::{ALL_ROWS, TimingsError, TimingsSource};
use crate::report::epoch_time::EpochTime;

/// Options of an analysis.
#[derive(Clone, Debug)]
pub struct AnalysisOptions {
    /// Period to follow instead of the one that is found.
    pub period: Option<usize>,
    /// Batches that pictures show in detail.
    pub range: Range<u64>,
    /// Whether scatter points are selected.
    pub pictures: bool,
    /// Points of the curves of single epochs.
    pub curve: CurveDetail,
}

/// The analysis of a file or job.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The file or job.
    pub source: TimingsSource,
    /// By method, in the order of their first rows.
    pub methods: Vec<MethodTimings>,
    /// Batches that pictures show in detail.
    pub range: Range<u64>,
}

/// The times of a method.
#[derive(Clone, Debug, Serialize)]
pub struct MethodTimings {
    /// Its name.
    pub method: String,
    /// All its epochs together.
    pub all: Distribution,
    /// Time per epoch: of whole epochs, else the mean batch times the batches of an epoch. `None` where neither is known.
    pub epoch_time: Option<EpochTime>,
    /// The first epoch beside the later ones; `None` with a single epoch.
    pub first_epoch: Option<FirstEpoch>,
    /// The period in all its epochs together.
    pub found: Option<FoundPeriod>,
    /// The longest period that was tried in all epochs together; below 2 none was.
    pub longest_tried: usize,
    /// The period that was followed: the one asked for, else the one found.
    pub period: Option<usize>,
    /// The period of the batches that are not on the beats of the first.
    pub second: Option<FoundPeriod>,
    /// Stages in which the slow batches take longer; `None` for files, whose batches have no stages.
    pub slow_stages: Option<SlowStages>,
    /// Its epochs, in the order of their first rows.
    pub epochs: Vec<SeriesTimings>,
}

impl MethodTimings {
    /// The times of the first epoch and of all later ones; `None` with a single epoch.
    pub fn first_and_later(&self) -> Option<(&Distribution, &Distribution)> {
        let first = self.first_epoch.as_ref()?;
        let series = self.epochs.iter().find(|epoch| epoch.epoch == first.epoch)?;
        Some((&series.times, &first.later))
    }
}

/// The first epoch of a method beside all later ones.
#[derive(Clone, Debug, Serialize)]
pub struct FirstEpoch {
    /// Its name: the lowest number; if not all epochs have numbers, the epoch of the first row.
    pub epoch: String,
    /// All other epochs together.
    pub later: Distribution,
    /// How many times as fast its batches were: mean time of the later ones over that of its own; `None` where its own is 0.
    pub ratio: Option<f64>,
}

/// The times of one epoch of a method.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesTimings {
    /// Its name.
    pub epoch: String,
    /// True if these are all batches of an epoch: in a file with an epoch column always; in a job if all steps were measured.
    pub whole: bool,
    /// Check of the batch numbers; `None` where there are none, and rows were counted.
    pub check: Option<BatchCheck>,
    /// Its times.
    pub times: Distribution,
    /// The period in this epoch alone.
    pub found: Option<FoundPeriod>,
    /// The beats of the method's period in this epoch.
    pub rhythm: Option<BeatSummary>,
    /// The beats of the second period.
    pub second: Option<BeatSummary>,
    /// Points for scatter plots.
    #[serde(skip)]
    pub scatter: ScatterPoints,
}

impl Analysis {
    /// Analyse the rows of a store; `steps` are those of its rows, where they come from a ledger.
    ///
    /// # Errors
    /// [`TimingsError::Spool`] if the temporary file cannot be read, [`TimingsError::Repeated`] if rows cannot be sorted.
    pub fn new(
        source: TimingsSource,
        store: &mut BatchTimes,
        steps: Option<&LedgerSteps<'_>>,
        options: &AnalysisOptions,
    ) -> Result<Self, TimingsError> {
        let names = store.methods().to_vec();
        let mut methods = Vec::new();
        for (id, name) in names.into_iter().enumerate() {
            methods.extend(method_timings(store, id, name, steps, options)?);
        }
        Ok(Self { source, methods, range: options.range.clone() })
    }
}

fn method_timings(
    store: &mut BatchTimes,
    id: usize,
    method: String,
    steps: Option<&LedgerSteps<'_>>,
    options: &AnalysisOptions,
) -> Result<Option<MethodTimings>, TimingsError> {
    let indices = store.of_method(id);
    let mut correlator = Correlator::default();
    let (mut lags, mut epochs) = (Lags::default(), Vec::new());
    for index in indices.iter().copied() {
        let mut own = Lags::default();
        let drawn = options.pictures && epochs.len() < MAX_EPOCHS;
        let mut selector = drawn.then(|| ScatterSelector::new(store.series()[index].rows(), options.range.clone()));
        store.each_window(index, WINDOW, |window| {
            correlator.add(window, &mut own);
            if let Some(selector) = &mut selector {
                selector.add(window);
            }
        })?;
        let Some(times) = distribution(store, &[index], options.curve)? else { continue };
        epochs.push(SeriesTimings {
            epoch: store.epoch(index).to_owned(),
            whole: steps.map_or(store.epoch(index) != ALL_ROWS, |steps| steps.whole(index)),
            check: store.series()[index].check(),
            times,
            found: search(&own),
            rhythm: None,
            second: None,
            scatter: selector.map(ScatterSelector::result).unwrap_or_default(),
        });
        lags.add(&own);
    }
    let all = match &epochs[..] {
        [only] if options.curve == CurveDetail::Reduced => Some(only.times.clone()),
        _ => distribution(store, &indices, CurveDetail::Reduced)?,
    };
    let Some(all) = all else { return Ok(None) };
    let found = if let [only] = &epochs[..] { only.found } else { search(&lags) };
    let period = options.period.or(found.map(|found| found.period));
    let first_epoch = first_epoch(store, &indices, &epochs)?;
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
        let on_beat = follow(store, &indices, &mut timings, period, &mut correlator, steps.is_some())?;
        beats = Some((period, on_beat));
    }
    timings.slow_stages = steps.and_then(|steps| SlowStages::new(store, steps, &indices, beats));
    Ok(Some(timings))
}

/// The first epoch beside the later ones.
fn first_epoch(
    store: &mut BatchTimes,
    indices: &[usize],
    epochs: &[SeriesTimings],
) -> Result<Option<FirstEpoch>, TimingsError> {
    if epochs.len() < 2 {
        return Ok(None);
    }
    let number = |epoch: &SeriesTimings| epoch.epoch.parse::<f64>().ok().filter(|number| number.is_finite());
    let numbers: Option<Vec<f64>> = epochs.iter().map(number).collect();
    let lowest = numbers.and_then(|all| (0..all.len()).min_by(|a, b| all[*a].total_cmp(&all[*b])));
    let first = lowest.unwrap_or_default();
    let others: Vec<usize> = (0..indices.len()).filter(|i| *i != first).map(|i| indices[i]).collect();
    let (name, mean_s) = (epochs[first].epoch.clone(), epochs[first].times.mean_s);
    Ok(distribution(store, &others, CurveDetail::Reduced)?.map(|later| {
        let ratio = (mean_s > 0.0).then(|| later.mean_s / mean_s);
        FirstEpoch { epoch: name, later, ratio }
    }))
}

/// Time per epoch; `batches` is the number of batches of an epoch of a job.
fn epoch_time(epochs: &[SeriesTimings], all: &Distribution, batches: Option<u64>) -> Option<EpochTime> {
    let whole: Vec<f64> = epochs.iter().filter(|epoch| epoch.whole).map(|epoch| epoch.times.total_s).collect();
    let rate = || rate_over_runs(&[Estimate::plain(1.0 / all.mean_s)]);
    EpochTime::from_whole_epochs(&[whole]).or_else(|| EpochTime::from_rate(batches?, rate()?, 1))
}

/// Follow the beats of a period through all epochs, then search the other batches for a second period. Returns the rows of the beats by
/// series, if `keep`.
fn follow(
    store: &mut BatchTimes,
    indices: &[usize],
    timings: &mut MethodTimings,
    period: usize,
    correlator: &mut Correlator,
    keep: bool,
) -> Result<Vec<Vec<usize>>, TimingsError> {
    let (mut rest, mut on_beat) = (Lags::default(), Vec::new());
    for (index, epoch) in indices.iter().copied().zip(&mut timings.epochs) {
        let mut follower = BeatFollower::new(period, store.series()[index].rows());
        let mut random = Pcg64::seed_from_u64(index as u64);
        let (mut rows, mut seen) = (Vec::new(), 0);
        store.each_window(index, WINDOW, |window| {
            let beats = follower.add_window(window);
            correlator.add(&replaced(window, &beats, &mut random), &mut rest);
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
    for (index, epoch) in indices.iter().copied().zip(&mut timings.epochs) {
        let rows = store.series()[index].rows();
        let (mut first, mut follower) = (BeatFollower::new(period, rows), BeatFollower::new(second.period, rows));
        let mut random = Pcg64::seed_from_u64(index as u64);
        store.each_window(index, WINDOW, |window| {
            let beats = first.add_window(window);
            follower.add_window(&replaced(window, &beats, &mut random));
        })?;
        epoch.second = Some(follower.result());
    }
    Ok(on_beat)
}

/// A window whose batches at `indices` are replaced by others of it, drawn at random. A fixed value would look like a period.
fn replaced(window: &[f64], indices: &[usize], random: &mut Pcg64) -> Vec<f64> {
    let mut gone = indices.iter().peekable();
    let others: Vec<f64> =
        window.iter().enumerate().filter(|(i, _)| gone.next_if_eq(&i).is_none()).map(|(_, time)| *time).collect();
    let mut rest = window.to_vec();
    if !others.is_empty() {
        indices.iter().for_each(|index| rest[*index] = others[random.random_range(0..others.len())]);
    }
    rest
}

/// The distribution of some series together: sorted if they fit into memory, else counted in bins.
fn distribution(
    store: &mut BatchTimes,
    indices: &[usize],
    curve: CurveDetail,
) -> Result<Option<Distribution>, TimingsError> {
    let rows: u64 = indices.iter().map(|index| store.series()[*index].rows()).sum();
    if rows <= EXACT_ROWS {
        let mut times = Vec::with_capacity(rows as usize);
        for index in indices {
            store.each_part(*index, |part| times.extend(part))?;
        }
        return Ok(Distribution::with_curve(&mut times, curve));
    }
    let mut histogram = Histogram::default();
    for index in indices {
        store.each_part(*index, |part| histogram.add(part))?;
    }
    Ok(Distribution::from_histogram(&histogram))
}
