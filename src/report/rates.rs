//! Rates of runs and of their ranks, from measured steps only.

use expctl_ledger::{Rates, Run, Stage, StepRecord, StepTotals};
use expctl_settings::{DeviceMasks, Estimator};
use expctl_stats::{Estimate, Periods, mean, median, quantile, run_rate};
use serde::Serialize;

/// Measured steps of a rank.
pub fn measured_steps(steps: &[StepRecord]) -> impl Iterator<Item = &StepRecord> {
    steps.iter().filter(|s| s.measured)
}

/// Rates of a rank: measured steps, and their samples, over their summed wall time. `None` without measured steps.
pub fn rank_rates(steps: &[StepRecord]) -> Option<Rates> {
    StepTotals::from_steps(steps).rates()
}

/// Rates of a run; `None` if it did not complete, or a rank has no measured step.
pub fn run_rates(run: &Run) -> Option<Rates> {
    run_rates_over(run, |step| step.wall_ns)
}

/// Rates of a run over another time of each step (`time`, ns); `None` if it did not complete, or a rank has no such time.
pub fn run_rates_over(run: &Run, time: impl Fn(&StepRecord) -> u64) -> Option<Rates> {
    let totals: Vec<StepTotals> = run.ranks.iter().map(|steps| StepTotals::with_time(steps, &time)).collect();
    Rates::from_ranks(&totals).filter(|_| run.completed())
}

/// Measured time of a run, s: the summed wall time of the measured steps, of the rank with the least. `None` for a run without rates.
pub fn measured_s(run: &Run) -> Option<f64> {
    run_rates(run)?;
    run.ranks.iter().map(|steps| StepTotals::from_steps(steps).wall_ns as f64 / 1e9).reduce(f64::min)
}

/// it/s and samples/s of a run with the intervals within the run; `None` without rates.
///
/// The interval is that of the slowest rank, whose rate is the rate of the run. Samples/s have the same relative interval as it/s, because
/// all batches of a run have the same size.
pub fn run_estimates(run: &Run) -> Option<(Estimate, Estimate)> {
    let rates = run_rates(run)?;
    let slowest = run.ranks.iter().min_by(|a, b| {
        let rate = |steps: &[StepRecord]| rank_rates(steps).map_or(f64::INFINITY, |r| r.it_per_s);
        rate(a).total_cmp(&rate(b))
    })?;
    let times: Vec<f64> = measured_steps(slowest).map(|step| step.wall_ns as f64 / 1e9).collect();
    let it_per_s = run_rate(&times, 0, block_periods(run, slowest).as_ref())?.it_per_s;
    Some((it_per_s, it_per_s.times(rates.samples_per_s / rates.it_per_s)))
}

/// The blocks of rows that a rank reads, as periods of its measured steps; `None` if its settings read no blocks.
///
/// A block begins with each epoch, so an epoch shorter than a block is the period.
pub fn block_periods(run: &Run, steps: &[StepRecord]) -> Option<Periods> {
    let block = run.trial.settings.block_steps()?;
    // Position within the block, for the first measured step and for each after a gap or in a new epoch.
    let (mut origins, mut n) = (Vec::new(), 0_usize);
    let mut shortest = f64::INFINITY;
    let mut epoch_start = steps.first()?.step;
    let mut before: Option<&StepRecord> = None;
    for step in steps {
        let anew = before.is_some_and(|before| before.epoch != step.epoch);
        if anew {
            shortest = shortest.min(step.step.saturating_sub(epoch_start) as f64);
            epoch_start = step.step;
        }
        if step.measured {
            if n == 0 || anew || before.is_none_or(|before| !before.measured) {
                origins.push(n as f64 - (step.step.saturating_sub(epoch_start) as f64) % block);
            }
            n += 1;
        }
        before = Some(step);
    }
    Periods::new(block.min(shortest), &origins, n)
}

/// Rates of all runs that have any.
pub fn all_rates(runs: &[&Run]) -> Vec<Rates> {
    runs.iter().filter_map(|run| run_rates(run)).collect()
}

/// Median and 5th and 95th percentile of a set of step times, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// Median.
    pub median: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 95th percentile.
    pub p95: f64,
}

/// Step times over all given steps; `None` without steps.
pub fn step_times<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<StepTimes> {
    let walls: Vec<f64> = steps.map(|s| s.wall_ns as f64).collect();
    Some(StepTimes { median: median(&walls)?, p5: quantile(&walls, 0.05)?, p95: quantile(&walls, 0.95)? })
}

/// All measured steps of the completed runs among `runs`, of all ranks.
pub fn completed_steps<'a>(runs: &'a [&'a Run]) -> impl Iterator<Item = &'a StepRecord> {
    runs.iter().filter(|r| r.completed()).flat_map(|r| r.ranks.iter()).flat_map(|steps| measured_steps(steps))
}

/// Mean size of a rank's collated batch over all given steps, bytes; `None` without steps, and if no size is known.
pub fn batch_bytes<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<f64> {
    let bytes: Vec<f64> = steps.map(|s| s.bytes_batch as f64).collect();
    mean(&bytes).filter(|mean| *mean > 0.0)
}

/// Number of printed rates in the published mean.
const LAST: usize = 20;

/// The rate that a published estimator would have given for the steps of some runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EstimatedRate {
    /// The estimator.
    pub estimator: Estimator,
    /// Iterations per second, median over the runs.
    pub it_per_s: f64,
    /// Samples per second over all ranks, median over the runs.
    pub samples_per_s: f64,
    /// Runs whose steps allow this estimate.
    pub n: usize,
}

impl EstimatedRate {
    /// The rate over these runs. `None` if the steps of no run allow it.
    pub fn from_runs(estimator: Estimator, runs: &[&Run]) -> Option<Self> {
        let rates = estimated_rates(estimator, runs);
        let middle = |of: fn(&Rates) -> f64| median(&rates.iter().map(of).collect::<Vec<_>>());
        let (it_per_s, samples_per_s) = (middle(|rates| rates.it_per_s)?, middle(|rates| rates.samples_per_s)?);
        Some(Self { estimator, it_per_s, samples_per_s, n: rates.len() })
    }
}

/// Rates by `estimator`, for each run whose steps allow it.
pub fn estimated_rates(estimator: Estimator, runs: &[&Run]) -> Vec<Rates> {
    match estimator {
        Estimator::TimerAfterArrival => runs
            .iter()
            .filter(|run| can_emulate_timer(run))
            .filter_map(|run| run_rates_over(run, after_arrival))
            .collect(),
        Estimator::Last20 => runs.iter().filter(|run| run.completed()).filter_map(|run| last_printed(run)).collect(),
    }
}

/// Mean of the last [`LAST`] rates that a progress bar of rank 0 would have printed, one after each step: the steps since the bar began
/// over the time since then. Each epoch and attempt begins a new bar. Samples/s: that rate times the mean samples of a step, over all
/// ranks.
fn last_printed(run: &Run) -> Option<Rates> {
    let printed = printed_rates(run.ranks.first()?);
    let last = &printed[printed.len().saturating_sub(LAST)..];
    let it_per_s = mean(last)?;
    let per_step = |steps: &Vec<StepRecord>| mean(&steps.iter().map(|s| s.samples as f64).collect::<Vec<_>>());
    let samples: f64 = run.ranks.iter().map(per_step).sum::<Option<f64>>()?;
    Some(Rates { it_per_s, samples_per_s: it_per_s * samples })
}

/// The rates that a progress bar would have printed after each step, steps per second, warm-up included.
fn printed_rates(steps: &[StepRecord]) -> Vec<f64> {
    let mut bar: Option<(u64, u64, u64)> = None;
    let mut printed = Vec::new();
    for step in steps {
        // An attempt that went on from a checkpoint counts its time from 0 again.
        let (began, done) = match bar {
            Some((epoch, began, done)) if epoch == step.epoch && step.start_ns >= began => (began, done + 1),
            _ => (step.start_ns, 1),
        };
        bar = Some((step.epoch, began, done));
        let elapsed = step.start_ns + step.wall_ns - began;
        if elapsed > 0 {
            printed.push(done as f64 / (elapsed as f64 / 1e9));
        }
    }
    printed
}

/// Whether the timer of the published figure can be emulated: masks made in the step have the same stage as those of the loader, and the
/// timer included them.
fn can_emulate_timer(run: &Run) -> bool {
    run.trial.settings.pipeline.device_masks == DeviceMasks::None
}

/// Wall time of a step after its batch has arrived, ns: without the exposed time of the loader's stages.
fn after_arrival(step: &StepRecord) -> u64 {
    let waited = Stage::LOADER.iter().map(|stage| step.exposed[*stage]).sum();
    // The stages of a batch overlap by a clock's resolution at most.
    step.wall_ns.saturating_sub(waited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::StepTotals;

    fn step(wall_ns: u64, exposed: &[(Stage, u64)]) -> StepRecord {
        let mut step = StepRecord { wall_ns, samples: 28, measured: true, ..StepRecord::default() };
        exposed.iter().for_each(|(stage, ns)| step.exposed[*stage] = *ns);
        step
    }

    #[test]
    fn the_published_timer_sees_the_copy_and_not_the_loader() {
        const S: u64 = 1_000_000_000;
        let steps = [
            step(10 * S, &[(Stage::Collate, 7 * S), (Stage::Pin, S), (Stage::Transfer, 2 * S)]),
            step(5 * S, &[(Stage::Read, S), (Stage::Decode, S), (Stage::Mask, S), (Stage::Forward, 2 * S)]),
        ];
        let right = rank_rates(&steps).unwrap();
        let published = StepTotals::with_time(&steps, after_arrival).rates().unwrap();
        // 2 steps in 15 s; of these the timer saw 2 + 2.
        assert_eq!((right.it_per_s, published.it_per_s), (2.0 / 15.0, 0.5));
        assert_eq!(published.samples_per_s, 14.0);
    }

    #[test]
    fn a_bar_counts_from_the_start_of_the_epoch() {
        let mut steps = Vec::new();
        let mut start_ns = 0;
        // Two epochs of three steps: 3 s, 1 s, 1 s each, with 10 s of validation between them.
        for (index, seconds) in [3u64, 1, 1, 3, 1, 1].into_iter().enumerate() {
            let wall_ns = seconds * 1_000_000_000;
            steps.push(StepRecord { epoch: index as u64 / 3, start_ns, wall_ns, ..StepRecord::default() });
            start_ns += wall_ns + if index == 2 { 10_000_000_000 } else { 0 };
        }
        assert_eq!(printed_rates(&steps), [1.0 / 3.0, 0.5, 0.6, 1.0 / 3.0, 0.5, 0.6]);
        // The clock of a second attempt starts at 0 again.
        (steps[4].start_ns, steps[5].start_ns) = (0, 1_000_000_000);
        steps[3].start_ns = 15_000_000_000;
        assert_eq!(printed_rates(&steps)[3..], [1.0 / 3.0, 1.0, 1.0]);
    }

    #[test]
    fn a_timer_that_saw_nothing_has_no_rate() {
        let steps = [step(10, &[(Stage::Collate, 8), (Stage::Mask, 3)])];
        assert_eq!(StepTotals::with_time(&steps, after_arrival).rates(), None);
    }
}
