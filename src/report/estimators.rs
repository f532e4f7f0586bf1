use expctl_record::{DeviceMasks, Estimator, Run, Stage, StepRecord};
use serde::Serialize;

use super::figures::{Rates, run_rates_over};
use crate::stats::{mean, median};

/// How many printed rates the published mean was taken over.
const LAST: usize = 20;

/// The rate that a published estimator would have given of the steps of some runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EstimatedRate {
    /// The estimator.
    pub estimator: Estimator,
    /// Iterations per second, median over the runs.
    pub it_per_s: f64,
    /// Samples per second over all ranks, median over the runs.
    pub samples_per_s: f64,
    /// Runs whose steps allow it.
    pub n: usize,
}

impl EstimatedRate {
    /// The rate over these runs. `None` if the steps of no run allow it.
    pub fn of(estimator: Estimator, runs: &[&Run]) -> Option<Self> {
        let rates = estimated_rates(estimator, runs);
        let middle = |of: fn(&Rates) -> f64| median(&rates.iter().map(of).collect::<Vec<_>>());
        let (it_per_s, samples_per_s) = (middle(|rates| rates.it_per_s)?, middle(|rates| rates.samples_per_s)?);
        Some(Self { estimator, it_per_s, samples_per_s, n: rates.len() })
    }
}

/// Rates as `estimator` would have given them, of all runs that have any and of which it can be told.
pub fn estimated_rates(estimator: Estimator, runs: &[&Run]) -> Vec<Rates> {
    match estimator {
        Estimator::TimerAfterArrival => {
            runs.iter().filter(|run| can_tell(run)).filter_map(|run| run_rates_over(run, after_arrival)).collect()
        }
        Estimator::Last20 => runs.iter().filter(|run| run.completed()).filter_map(|run| last_printed(run)).collect(),
    }
}

/// The mean of the last [`LAST`] rates that a bar of rank 0 would have printed, one after each step. Its rate is the steps
/// since the bar began over the time since then; a new epoch, or attempt, begins a new bar. Samples/s: that rate times the
/// samples of a step, over all ranks.
fn last_printed(run: &Run) -> Option<Rates> {
    let printed = printed_rates(run.ranks.first()?);
    let last = &printed[printed.len().saturating_sub(LAST)..];
    let it_per_s = mean(last)?;
    let per_step = |steps: &Vec<StepRecord>| mean(&steps.iter().map(|s| s.samples as f64).collect::<Vec<_>>());
    let samples: f64 = run.ranks.iter().map(per_step).sum::<Option<f64>>()?;
    Some(Rates { it_per_s, samples_per_s: it_per_s * samples })
}

/// What a bar would have printed after each step, steps per second, warm-up included.
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

/// Masks that are made where the batch is used belong to the same stage as the loader's, and the timer saw them.
fn can_tell(run: &Run) -> bool {
    run.trial.settings.pipeline.device_masks == DeviceMasks::None
}

/// What is left of a step's wall time once its batch has arrived, ns: all but the wait for the loader's stages.
fn after_arrival(step: &StepRecord) -> u64 {
    let waited = Stage::LOADER.iter().map(|stage| step.exposed[*stage]).sum();
    // The stages of a batch overlap by a clock's resolution at most.
    step.wall_ns.saturating_sub(waited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::rank_rates;
    use expctl_record::StepTotals;

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
