//! A step of a rank, and totals and rates over steps.

use serde::{Deserialize, Serialize};

use crate::{AttemptDir, LedgerError, OperationTime, PerStage, Settings, joined_steps};

/// Measurements of one step on one rank. Times are nanoseconds of the monotonic clock.
///
/// `wall_ns` less the sum of `exposed` is unattributed time. The sums of `busy` and `device` may exceed the wall time: loader threads and the
/// device work in parallel to the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Number of the step, from 0, warm-up included.
    pub step: u64,
    /// Epoch of the sampler that the batch belongs to.
    pub epoch: u64,
    /// False during warm-up: the first `measure.warmup` steps of each attempt.
    pub measured: bool,
    /// Start of the step, since the rank's loop began.
    pub start_ns: u64,
    /// End of the previous step to end of this one.
    pub wall_ns: u64,
    /// Samples in this rank's batch.
    pub samples: u64,
    /// Bytes taken from the store.
    pub bytes_read: u64,
    /// Bytes of the collated batch.
    pub bytes_batch: u64,
    /// Bytes copied to the device; 0 if the device is the host.
    pub bytes_to_device: u64,
    /// Loss of this rank's batch. `None`: data mode.
    pub loss: Option<f64>,
    /// Time worked on each stage, summed over the threads of the rank, ns.
    pub busy: PerStage<u64>,
    /// Time for which the step waited for each stage, ns.
    pub exposed: PerStage<u64>,
    /// Time between two device events around the work of each stage, ns, on the device's own clock and in the order of its stream; 0 for a
    /// stage without work. `None`: the device is the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PerStage<u64>>,
    /// Time for which the device copied the batch, ns, on its own clock and in parallel to its other work. `None`: the device is the host, or
    /// the batch was not page-locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_ns: Option<u64>,
    /// Time that the loader worked on each operation inside *mask* and *collate*, ns; together at most the busy time of these stages. Empty if
    /// operations are not timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationTime>,
}

/// Progress and time of a rank, without the stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTotals {
    /// Steps of the trial that are done, warm-up and those before a checkpoint included.
    pub done: u64,
    /// Measured steps that were read.
    pub measured: u64,
    /// Samples of the measured steps that were read.
    pub samples: u64,
    /// Wall time of the measured steps that were read, ns.
    pub wall_ns: u64,
}

impl StepTotals {
    /// Totals of steps that are in order.
    pub fn from_steps(steps: &[StepRecord]) -> Self {
        Self::with_time(steps, |step| step.wall_ns)
    }

    /// Totals of steps that are in order, with the time that `time` gives for each, ns, instead of its wall time.
    pub fn with_time(steps: &[StepRecord], time: impl Fn(&StepRecord) -> u64) -> Self {
        let mut totals = Self::default();
        for step in steps {
            totals.add(step.step, step.measured, time(step), step.samples);
        }
        totals
    }

    /// Rates of this rank over the measured steps. `None`: these took no time.
    pub fn rates(&self) -> Option<Rates> {
        let seconds = self.wall_ns as f64 / 1e9;
        let rate = |count: u64| count as f64 / seconds;
        (self.wall_ns > 0).then(|| Rates { it_per_s: rate(self.measured), samples_per_s: rate(self.samples) })
    }

    pub(crate) fn add(&mut self, step: u64, measured: bool, wall_ns: u64, samples: u64) {
        self.done = step + 1;
        if measured {
            self.measured += 1;
            self.wall_ns += wall_ns;
            self.samples += samples;
        }
    }
}

/// Rates of a trial, or of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Iterations per second; for a trial those of its slowest rank, because a step of all ranks ends when the last one ends.
    pub it_per_s: f64,
    /// Samples per second; for a trial the sum over its ranks.
    pub samples_per_s: f64,
}

impl Rates {
    /// Rates of a trial from the totals of all its ranks. `None`: there are no ranks, or the measured steps of one took no time.
    ///
    /// Everything that shows the rate of a trial (note, comparison, status, launcher) takes it from here.
    pub fn from_ranks(totals: &[StepTotals]) -> Option<Self> {
        let ranks: Vec<Self> = totals.iter().map(StepTotals::rates).collect::<Option<_>>()?;
        let slowest = ranks.iter().map(|rank| rank.it_per_s).reduce(f64::min)?;
        Some(Self { it_per_s: slowest, samples_per_s: ranks.iter().map(|rank| rank.samples_per_s).sum() })
    }

    /// Rates of a trial over its attempts, oldest first, as far as the last one builds on them.
    ///
    /// # Errors
    /// A file cannot be read, or a step is in no attempt.
    pub fn from_attempts(attempts: &[AttemptDir], settings: &Settings) -> Result<Option<Self>, LedgerError> {
        let totals = |rank: u32| match attempts {
            // Nothing has to be joined, so four columns are enough.
            [only] if only.steps_path(rank).exists() => only.totals(rank),
            _ => Ok(StepTotals::from_steps(&joined_steps(attempts, rank, settings.measure.warmup)?.steps)),
        };
        Ok(Self::from_ranks(&(0..settings.launch.ranks).map(totals).collect::<Result<Vec<_>, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_as_fast_as_its_slowest_rank_and_warm_up_does_not_count() {
        let step = |step: u64, wall_ns: u64| StepRecord {
            step,
            measured: step > 0,
            wall_ns,
            samples: 8,
            ..StepRecord::default()
        };
        let rank = |wall_ns: u64| StepTotals::from_steps(&[step(0, 1), step(1, wall_ns), step(2, wall_ns)]);
        let found = Rates::from_ranks(&[rank(100_000_000), rank(200_000_000)]).unwrap();
        assert_eq!(found, Rates { it_per_s: 5.0, samples_per_s: 80.0 + 40.0 });
        // A rank without measured steps leaves nothing to say of the trial.
        assert_eq!(Rates::from_ranks(&[rank(100_000_000), StepTotals::from_steps(&[step(0, 5)])]), None);
        assert_eq!(Rates::from_ranks(&[]), None);
    }
}
