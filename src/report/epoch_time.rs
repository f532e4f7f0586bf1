//! What an epoch takes: from whole epochs where some were measured, else from the rate.
//!
//! Invariant: an epoch counts as whole only if each of its steps was measured, from the first of the epoch to the last, on every rank.

use std::collections::BTreeMap;

use expctl_record::{Rates, Settings, StepRecord, StepTotals};
use graph_loader::DistributedSampler;
use serde::Serialize;

use super::format;
use crate::ledger::Run;
use crate::stats::{Estimate, RateOverRuns, Ratio, epoch_mean, median, paired_ratio, rate_over_runs};

/// The steps of one rank in one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochSteps<'a> {
    /// Number of the epoch.
    pub epoch: u64,
    /// Its steps in the table, warm-up included, in order.
    pub steps: &'a [StepRecord],
    /// True if these are all steps of the epoch, each of them measured.
    pub whole: bool,
}

/// The steps of a rank by epoch, in order; `batches` are those of an epoch on each rank, where they are known.
pub fn epochs_of(steps: &[StepRecord], batches: Option<u64>) -> Vec<EpochSteps<'_>> {
    let groups: Vec<&[StepRecord]> = steps.chunk_by(|a, b| a.epoch == b.epoch).collect();
    let of_group = |(i, group): (usize, &&[StepRecord])| {
        let begins = i > 0 || group[0].step == 0;
        // Whether the last epoch of the table ended is told by its length alone.
        let ends = i + 1 < groups.len() || Some(group.len() as u64) == batches;
        (group[0].epoch, begins && ends && group.iter().all(|step| step.measured))
    };
    let told: Vec<(u64, bool)> = groups.iter().enumerate().map(of_group).collect();
    groups.into_iter().zip(told).map(|(steps, (epoch, whole))| EpochSteps { epoch, steps, whole }).collect()
}

/// Batches of an epoch on each rank of a run: as its steps show it, else as its settings and what it read say; none where neither does.
pub fn epoch_batches(run: &Run) -> Option<u64> {
    let shown = run.ranks.first().and_then(|steps| batches_shown(steps));
    shown.or_else(|| batches_set(&run.trial.settings)).or_else(|| batches_read(run))
}

/// Of an epoch that begins and ends in a table of steps; the first and the last may be cut off.
fn batches_shown(steps: &[StepRecord]) -> Option<u64> {
    let groups: Vec<&[StepRecord]> = steps.chunk_by(|a, b| a.epoch == b.epoch).collect();
    let first = usize::from(steps.first()?.step > 0);
    groups.get(first..groups.len() - 1)?.first().map(|group| group.len() as u64)
}

/// Of a run whose steps were taken from a number of epochs.
fn batches_set(settings: &Settings) -> Option<u64> {
    let epochs = settings.measure.epochs.max(settings.train.epochs);
    let steps = settings.measure.warmup + settings.measure.steps;
    (epochs > 0 && steps > 0 && steps.is_multiple_of(epochs)).then(|| steps / epochs)
}

/// Of what the sampler dealt to a rank, by the records of a run of ours.
fn batches_read(run: &Run) -> Option<u64> {
    let settings = &run.trial.settings;
    let (batch, drop_last) = (settings.loader.batch_size, settings.loader.drop_last);
    if batch == 0 || settings.runs_command() {
        return None;
    }
    let per_rank = match (&run.shuffle, settings.reads_array()) {
        (Some(quality), true) => quality.epoch_rows,
        (None, true) => return None,
        (_, false) => {
            let (len, world_size) = (run.data()?.selected, settings.launch.ranks);
            DistributedSampler { len, world_size, rank: 0, shuffle: false, seed: 0, drop_last }.samples_per_rank()
        }
    };
    let batches = if drop_last { per_rank / batch } else { per_rank.div_ceil(batch) };
    (batches > 0).then_some(batches)
}

/// Seconds of each epoch of a completed run that was measured whole, by its number: summed wall times of its steps, of the rank that took
/// longest, because the steps of all ranks end when the last one ends. Empty where no epoch was.
pub fn whole_epochs(run: &Run) -> BTreeMap<u64, f64> {
    if !run.completed() {
        return BTreeMap::new();
    }
    let batches = epoch_batches(run);
    let of_rank = |steps: &Vec<StepRecord>| -> BTreeMap<u64, f64> {
        let whole = epochs_of(steps, batches).into_iter().filter(|epoch| epoch.whole);
        whole.map(|epoch| (epoch.epoch, StepTotals::of(epoch.steps).wall_ns as f64 / 1e9)).collect()
    };
    let slowest = |longest: BTreeMap<u64, f64>, rank: BTreeMap<u64, f64>| -> BTreeMap<u64, f64> {
        longest.into_iter().filter_map(|(epoch, time)| Some((epoch, time.max(*rank.get(&epoch)?)))).collect()
    };
    run.ranks.iter().map(of_rank).reduce(slowest).unwrap_or_default()
}

/// What a time per epoch rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EpochBasis {
    /// Epochs that were timed from their first step to their last.
    WholeEpochs,
    /// The batches of an epoch at the rate of the measured steps.
    Rate,
}

/// What an epoch takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EpochTime {
    /// What it rests on.
    pub basis: EpochBasis,
    /// Seconds: geometric mean over the runs, of each the mean over its epochs; with its interval.
    pub time_s: RateOverRuns,
    /// Whole epochs of all runs together; 0 where it comes from the rate.
    pub epochs: usize,
    /// Runs that it rests on.
    pub runs: usize,
}

impl EpochTime {
    /// Of the runs of a variant: from their whole epochs, and where no run has any, from their it/s and the batches of an epoch. None
    /// where neither is known.
    pub fn of(runs: &[&Run], it_per_s: impl FnOnce() -> Option<RateOverRuns>) -> Option<Self> {
        let whole: Vec<Vec<f64>> = runs.iter().map(|run| whole_epochs(run).into_values().collect()).collect();
        if let Some(found) = Self::of_whole(&whole) {
            return Some(found);
        }
        let completed = || runs.iter().filter(|run| run.completed());
        let batches = completed().find_map(|run| epoch_batches(run))?;
        Self::of_rate(batches, it_per_s()?, completed().count())
    }

    /// Of the seconds of the whole epochs of each run; none where no run has one.
    pub fn of_whole(runs: &[Vec<f64>]) -> Option<Self> {
        let estimates: Vec<Estimate> = runs.iter().filter_map(|times| epoch_mean(times)).collect();
        let epochs = runs.iter().map(Vec::len).sum();
        let runs = estimates.len();
        Some(Self { basis: EpochBasis::WholeEpochs, time_s: rate_over_runs(&estimates)?, epochs, runs })
    }

    /// So many batches at the rate of the steps of so many runs; none of a rate of 0.
    pub fn of_rate(batches: u64, it_per_s: RateOverRuns, runs: usize) -> Option<Self> {
        let time = |rate: f64| batches as f64 / rate;
        let interval = it_per_s.interval.map(|i| crate::stats::Interval { low: time(i.high), high: time(i.low) });
        let time_s = RateOverRuns { value: time(it_per_s.value), interval, ..it_per_s };
        time_s.value.is_finite().then_some(Self { basis: EpochBasis::Rate, time_s, epochs: 0, runs })
    }

    /// True if whole epochs were timed.
    pub fn measured(&self) -> bool {
        self.basis == EpochBasis::WholeEpochs
    }

    /// The class of the figure, as tables have it.
    pub fn class(&self) -> &'static str {
        if self.measured() { "measured" } else { "derived" }
    }

    /// `812.3 [800–825] (8 epochs of 2 runs)`, `812.3 (derived)`: as one cell of a table, s.
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

/// How fast the first epoch of each run was, and the epochs after it: samples/s over all ranks, measured steps alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstEpoch {
    /// Of the first epoch, a value for each run.
    pub first: Vec<f64>,
    /// Of all later epochs together, of the same runs.
    pub later: Vec<f64>,
}

impl FirstEpoch {
    /// Of the completed runs; none where no run has measured steps in its first epoch and in a later one.
    pub fn of(runs: &[&Run]) -> Option<Self> {
        let completed = runs.iter().filter(|run| run.completed());
        let (first, later): (Vec<f64>, Vec<f64>) = completed.filter_map(|run| first_and_later(run)).unzip();
        (!first.is_empty()).then_some(Self { first, later })
    }

    /// Medians over the runs of the first epoch and of the later ones, samples/s.
    pub fn medians(&self) -> Option<(f64, f64)> {
        median(&self.first).zip(median(&self.later))
    }

    /// How many times as fast the first epoch was, in pairs by run.
    pub fn ratio(&self) -> Option<Ratio> {
        let pairs: Vec<(f64, f64)> = self.first.iter().copied().zip(self.later.iter().copied()).collect();
        paired_ratio(&pairs)
    }
}

/// Samples/s of the first epoch of a run and of all others.
fn first_and_later(run: &Run) -> Option<(f64, f64)> {
    let cut = |steps: &[StepRecord]| steps.chunk_by(|a, b| a.epoch == b.epoch).next().map_or(0, <[StepRecord]>::len);
    let rate = |of: &dyn Fn(&[StepRecord]) -> StepTotals| {
        let totals: Vec<StepTotals> = run.ranks.iter().map(|steps| of(steps)).collect();
        Rates::of_ranks(&totals).map(|rates| rates.samples_per_s)
    };
    rate(&|steps| StepTotals::of(&steps[..cut(steps)])).zip(rate(&|steps| StepTotals::of(&steps[cut(steps)..])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Scope;

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
        let interval = Some(crate::stats::Interval { low: 4.0, high: 8.0 });
        let rate = RateOverRuns { value: 5.0, interval, scope: Scope::OverRuns, spread: None, within: None };
        let found = EpochTime::of_rate(100, rate, 2).unwrap();
        let interval = found.time_s.interval.unwrap();
        assert_eq!((found.time_s.value, interval.low, interval.high), (20.0, 12.5, 25.0));
        assert_eq!((found.cell().as_str(), found.class()), ("20 [12.5–25] (derived)", "derived"));
        assert_eq!(EpochTime::of_rate(100, RateOverRuns { value: 0.0, ..rate }, 2), None);
    }

    #[test]
    fn whole_epochs_of_several_runs_have_an_interval_over_the_runs() {
        let found = EpochTime::of_whole(&[vec![9.0, 11.0], vec![], vec![20.0, 20.0]]).unwrap();
        assert_eq!((found.epochs, found.runs, found.time_s.scope), (4, 2, Scope::OverRuns));
        assert!((found.time_s.value - 200f64.sqrt()).abs() < 1e-9, "{found:?}");
        assert_eq!(found.count(), "4 epochs of 2 runs");
        assert_eq!(EpochTime::of_whole(&[Vec::new()]), None);
    }
}
