//! Time per epoch: from whole epochs if some were measured, else from the rate.
//!
//! Invariant: an epoch counts as whole only if all of its steps, from the first to the last, were measured on every rank.

use std::collections::BTreeMap;

use expctl_ledger::{Rates, Run, StepRecord, StepTotals};
use expctl_settings::Settings;
use expctl_stats::{Estimate, Interval, RateOverRuns, Ratio, epoch_mean, median, paired_ratio, rate_over_runs};
use expctl_text::format;
use serde::Serialize;

/// The steps of one rank in one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochSteps<'a> {
    /// Number of the epoch.
    pub epoch: u64,
    /// Its steps, warm-up included, in order.
    pub steps: &'a [StepRecord],
    /// Whether these are all steps of the epoch, and all were measured.
    pub whole: bool,
}

/// The steps of a rank by epoch, in order. `batches`: number of batches of an epoch on each rank, if known.
pub fn epochs_of(steps: &[StepRecord], batches: Option<u64>) -> Vec<EpochSteps<'_>> {
    let groups: Vec<&[StepRecord]> = steps.chunk_by(|a, b| a.epoch == b.epoch).collect();
    let of_group = |(i, group): (usize, &&[StepRecord])| {
        let begins = i > 0 || group[0].step == 0;
        // Only its length tells whether the last epoch of the table ended.
        let ends = i + 1 < groups.len() || Some(group.len() as u64) == batches;
        (group[0].epoch, begins && ends && group.iter().all(|step| step.measured))
    };
    let told: Vec<(u64, bool)> = groups.iter().enumerate().map(of_group).collect();
    groups.into_iter().zip(told).map(|(steps, (epoch, whole))| EpochSteps { epoch, steps, whole }).collect()
}

/// Number of batches of an epoch on each rank: from the steps, else from the settings, else from the data that was read.
pub fn epoch_batches(run: &Run) -> Option<u64> {
    let shown = run.ranks.first().and_then(|steps| batches_shown(steps));
    shown.or_else(|| batches_set(&run.trial.settings)).or_else(|| batches_read(run))
}

/// From an epoch that begins and ends in a table of steps; the first and the last may be cut off.
fn batches_shown(steps: &[StepRecord]) -> Option<u64> {
    let groups: Vec<&[StepRecord]> = steps.chunk_by(|a, b| a.epoch == b.epoch).collect();
    let first = usize::from(steps.first()?.step > 0);
    groups.get(first..groups.len() - 1)?.first().map(|group| group.len() as u64)
}

/// From the settings, if the number of steps follows from a number of epochs.
fn batches_set(settings: &Settings) -> Option<u64> {
    let epochs = settings.measure.epochs.max(settings.train.epochs);
    let steps = settings.measure.warmup + settings.measure.steps;
    (epochs > 0 && steps > 0 && steps.is_multiple_of(epochs)).then(|| steps / epochs)
}

/// From the number of samples that the sampler gave to a rank.
fn batches_read(run: &Run) -> Option<u64> {
    let settings = &run.trial.settings;
    let (batch, drop_last) = (settings.loader.batch_size, settings.loader.drop_last);
    if batch == 0 || settings.runs_command() {
        return None;
    }
    let per_rank = match (&run.shuffle, settings.reads_array()) {
        (Some(quality), true) => quality.epoch_rows,
        (None, true) => return None,
        (_, false) => samples_per_rank(run.data()?.selected, u64::from(settings.launch.ranks), drop_last),
    };
    let batches = if drop_last { per_rank / batch } else { per_rank.div_ceil(batch) };
    (batches > 0).then_some(batches)
}

/// Samples of each rank in an epoch, as PyTorch's `DistributedSampler` deals them: with padding, or with `drop_last` without the rest.
fn samples_per_rank(samples: u64, ranks: u64, drop_last: bool) -> u64 {
    if drop_last { samples / ranks } else { samples.div_ceil(ranks) }
}

/// Time of each whole epoch of a completed run by its number, s: summed wall times of its steps, of the slowest rank, because a step of all
/// ranks ends when the last rank ends. Empty if no epoch was measured whole.
pub fn whole_epochs(run: &Run) -> BTreeMap<u64, f64> {
    if !run.completed() {
        return BTreeMap::new();
    }
    let batches = epoch_batches(run);
    let of_rank = |steps: &Vec<StepRecord>| -> BTreeMap<u64, f64> {
        let whole = epochs_of(steps, batches).into_iter().filter(|epoch| epoch.whole);
        whole.map(|epoch| (epoch.epoch, StepTotals::from_steps(epoch.steps).wall_ns as f64 / 1e9)).collect()
    };
    let slowest = |longest: BTreeMap<u64, f64>, rank: BTreeMap<u64, f64>| -> BTreeMap<u64, f64> {
        longest.into_iter().filter_map(|(epoch, time)| Some((epoch, time.max(*rank.get(&epoch)?)))).collect()
    };
    run.ranks.iter().map(of_rank).reduce(slowest).unwrap_or_default()
}

/// Basis of a time per epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EpochBasis {
    /// Epochs that were timed from their first step to their last.
    WholeEpochs,
    /// The batches of an epoch at the rate of the measured steps.
    Rate,
}

/// Time per epoch of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EpochTime {
    /// Its basis.
    pub basis: EpochBasis,
    /// Time, s: geometric mean over the runs of their means over epochs, with its interval.
    pub time_s: RateOverRuns,
    /// Number of whole epochs of all runs; 0 if it is from the rate.
    pub epochs: usize,
    /// Number of runs.
    pub runs: usize,
}

impl EpochTime {
    /// Compute it for the runs of a variant: from their whole epochs, or if no run has any, from their it/s and the batches of an epoch. `None` if
    /// neither is known.
    pub fn from_runs(runs: &[&Run], it_per_s: impl FnOnce() -> Option<RateOverRuns>) -> Option<Self> {
        let whole: Vec<Vec<f64>> = runs.iter().map(|run| whole_epochs(run).into_values().collect()).collect();
        if let Some(found) = Self::from_whole_epochs(&whole) {
            return Some(found);
        }
        let completed = || runs.iter().filter(|run| run.completed());
        let batches = completed().find_map(|run| epoch_batches(run))?;
        Self::from_rate(batches, it_per_s()?, completed().count())
    }

    /// From the seconds of the whole epochs of each run; `None` without any.
    pub fn from_whole_epochs(runs: &[Vec<f64>]) -> Option<Self> {
        let estimates: Vec<Estimate> = runs.iter().filter_map(|times| epoch_mean(times)).collect();
        let epochs = runs.iter().map(Vec::len).sum();
        let runs = estimates.len();
        Some(Self { basis: EpochBasis::WholeEpochs, time_s: rate_over_runs(&estimates)?, epochs, runs })
    }

    /// From the rate: `batches` over it/s; `None` for a rate of 0.
    pub fn from_rate(batches: u64, it_per_s: RateOverRuns, runs: usize) -> Option<Self> {
        let time = |rate: f64| batches as f64 / rate;
        let interval = it_per_s.interval.map(|i| Interval { low: time(i.high), high: time(i.low) });
        let time_s = RateOverRuns { value: time(it_per_s.value), interval, ..it_per_s };
        time_s.value.is_finite().then_some(Self { basis: EpochBasis::Rate, time_s, epochs: 0, runs })
    }

    /// Whether whole epochs were timed.
    pub fn measured(&self) -> bool {
        self.basis == EpochBasis::WholeEpochs
    }

    /// Class of the figure.
    pub fn class(&self) -> &'static str {
        if self.measured() { "measured" } else { "derived" }
    }

    /// `812.3 [800–825] (8 epochs of 2 runs)`, `812.3 (derived)`: a cell of a table, s.
    pub fn cell(&self) -> String {
        let value = format::rate(self.time_s.value);
        let ends = format::interval_ends(&self.time_s).map(|ends| format!(" [{ends}]")).unwrap_or_default();
        match self.basis {
            EpochBasis::WholeEpochs => format!("{value}{ends} ({})", self.count()),
            EpochBasis::Rate => format!("{value}{ends} (derived)"),
        }
    }

    /// `8 epochs of 2 runs`.
    pub fn count(&self) -> String {
        format!("{} of {}", format::count(self.epochs as u64, "epoch"), format::count(self.runs as u64, "run"))
    }
}

/// Rate of the first epoch of each run, and of the later ones: samples/s over all ranks, of measured steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstEpoch {
    /// First epoch, a value for each run.
    pub first: Vec<f64>,
    /// Later epochs together, for the same runs.
    pub later: Vec<f64>,
}

impl FirstEpoch {
    /// Compute it for the completed runs; `None` if no run has measured steps both in its first epoch and in a later one.
    pub fn from_runs(runs: &[&Run]) -> Option<Self> {
        let completed = runs.iter().filter(|run| run.completed());
        let (first, later): (Vec<f64>, Vec<f64>) = completed.filter_map(|run| first_and_later_rates(run)).unzip();
        (!first.is_empty()).then_some(Self { first, later })
    }

    /// Medians over the runs of the first epoch and of the later ones, samples/s.
    pub fn medians(&self) -> Option<(f64, f64)> {
        median(&self.first).zip(median(&self.later))
    }

    /// Ratio of the first epoch to the later ones, in pairs by run.
    pub fn ratio(&self) -> Option<Ratio> {
        let pairs: Vec<(f64, f64)> = self.first.iter().copied().zip(self.later.iter().copied()).collect();
        paired_ratio(&pairs)
    }
}

/// Samples/s of the first epoch of a run and of all later ones.
fn first_and_later_rates(run: &Run) -> Option<(f64, f64)> {
    let cut = |steps: &[StepRecord]| steps.chunk_by(|a, b| a.epoch == b.epoch).next().map_or(0, <[StepRecord]>::len);
    let rate = |of: &dyn Fn(&[StepRecord]) -> StepTotals| {
        let totals: Vec<StepTotals> = run.ranks.iter().map(|steps| of(steps)).collect();
        Rates::from_ranks(&totals).map(|rates| rates.samples_per_s)
    };
    rate(&|steps| StepTotals::from_steps(&steps[..cut(steps)]))
        .zip(rate(&|steps| StepTotals::from_steps(&steps[cut(steps)..])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_stats::Scope;

    /// Steps of epochs of these lengths, of a second each, from step `first` on, of which those before `measured` are warm-up.
    fn steps(first: u64, lengths: &[u64], measured: u64) -> Vec<StepRecord> {
        let epochs = (0..).zip(lengths).flat_map(|(epoch, length)| std::iter::repeat_n(epoch, *length as usize));
        let record = |(step, epoch): (u64, u64)| StepRecord {
            step,
            epoch,
            measured: step >= measured,
            wall_ns: 1_000_000_000,
            samples: 10,
            ..StepRecord::default()
        };
        (first..).zip(epochs).map(record).collect()
    }

    #[test]
    fn an_epoch_is_whole_from_its_first_step_to_its_last() {
        let whole = |steps: &[StepRecord], batches| -> Vec<u64> {
            epochs_of(steps, batches).iter().filter(|e| e.whole).map(|e| e.epoch).collect()
        };
        let all = steps(0, &[4, 4, 4], 0);
        assert_eq!(whole(&all, Some(4)), [0, 1, 2]);
        // Nobody knows whether the last one would have gone on.
        assert_eq!(whole(&all, None), [0, 1]);
        assert_eq!(whole(&steps(0, &[4, 4, 3], 0), Some(4)), [0, 1]);
        // Warm-up in the first, and a table that begins within an epoch.
        assert_eq!(whole(&steps(0, &[4, 4], 1), Some(4)), [1]);
        assert_eq!(whole(&steps(2, &[2, 4, 4], 0), Some(4)), [1, 2]);
        assert!(epochs_of(&[], Some(4)).is_empty());
    }

    #[test]
    fn the_batches_of_an_epoch_are_those_between_two_others() {
        assert_eq!(batches_shown(&steps(0, &[4, 2], 0)), Some(4));
        assert_eq!(batches_shown(&steps(3, &[1, 4, 2], 0)), Some(4));
        // One epoch that may have been cut off at either end says nothing.
        for lengths in [&[4][..], &[]] {
            assert_eq!(batches_shown(&steps(0, lengths, 0)), None);
        }
        assert_eq!(batches_shown(&steps(3, &[1, 2], 0)), None);
    }

    #[test]
    fn a_time_from_the_rate_is_the_batches_over_it() {
        let interval = Some(Interval { low: 4.0, high: 8.0 });
        let rate = RateOverRuns { value: 5.0, interval, scope: Scope::OverRuns, spread: None, within: None };
        let found = EpochTime::from_rate(100, rate, 2).unwrap();
        let interval = found.time_s.interval.unwrap();
        assert_eq!((found.time_s.value, interval.low, interval.high), (20.0, 12.5, 25.0));
        assert_eq!((found.cell().as_str(), found.class()), ("20 [12.5–25] (derived)", "derived"));
        assert_eq!(EpochTime::from_rate(100, RateOverRuns { value: 0.0, ..rate }, 2), None);
    }

    #[test]
    fn whole_epochs_of_several_runs_have_an_interval_over_the_runs() {
        let found = EpochTime::from_whole_epochs(&[vec![9.0, 11.0], vec![], vec![20.0, 20.0]]).unwrap();
        assert_eq!((found.epochs, found.runs, found.time_s.scope), (4, 2, Scope::OverRuns));
        assert!((found.time_s.value - 200f64.sqrt()).abs() < 1e-9, "{found:?}");
        assert_eq!(found.count(), "4 epochs of 2 runs");
        assert_eq!(EpochTime::from_whole_epochs(&[Vec::new()]), None);
    }
}
