use expctl_record::{DeviceMasks, Estimator, Stage, StepRecord};

use super::figures::{Rates, run_rates_over};
use crate::ledger::Run;

/// Rates as `estimator` would have given them, of all runs that have any and of which it can be told.
pub fn estimated_rates(estimator: Estimator, runs: &[&Run]) -> Vec<Rates> {
    let time = match estimator {
        Estimator::TimerAfterArrival => after_arrival,
    };
    runs.iter().filter(|run| can_tell(run)).filter_map(|run| run_rates_over(run, time)).collect()
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
    use crate::report::figures::{rank_rates, rates_over};

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
        let published = rates_over(&steps, after_arrival).unwrap();
        // 2 steps in 15 s; of these the timer saw 2 + 2.
        assert_eq!((right.it_per_s, published.it_per_s), (2.0 / 15.0, 0.5));
        assert_eq!(published.samples_per_s, 14.0);
    }

    #[test]
    fn a_timer_that_saw_nothing_has_no_rate() {
        assert_eq!(rates_over(&[step(10, &[(Stage::Collate, 8), (Stage::Mask, 3)])], after_arrival), None);
    }
}
