//! A step of a rank, and totals and rates over steps.

use expctl_settings::Settings;
use serde::{Deserialize, Serialize};

use crate::joined_steps::joined_step_times;
use crate::{AttemptDir, LedgerError, OperationTime, PerStage, Run, Stage};

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
            _ => Ok(StepTotals::from_steps(&joined_step_times(attempts, rank, settings.measure.warmup)?.steps)),
        };
        Ok(Self::from_ranks(&(0..settings.launch.ranks).map(totals).collect::<Result<Vec<_>, _>>()?))
    }
}

/// Time of a rank for one stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageSeconds {
    /// The stage.
    pub stage: Stage,
    /// Exposed time, s.
    pub exposed_s: f64,
    /// Busy time, summed over the threads of the rank, s.
    pub busy_s: f64,
}

/// Total time of some steps of a rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSeconds {
    /// Number of steps: a mean over ranks, so not always whole.
    pub steps: f64,
    /// Their summed wall time, s.
    pub wall_s: f64,
    /// The stages that happened in them, in their order.
    pub stages: Vec<StageSeconds>,
}

/// Total time of a rank in its steps, by stage; means over the ranks of all runs. Time between steps (start, validation, checkpoints) is
/// not in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunTotals {
    /// Ranks in the means, of all runs together.
    pub ranks: usize,
    /// The measured steps.
    pub measured: StepSeconds,
    /// All steps of the run, warm-up included.
    pub run: StepSeconds,
}

impl RunTotals {
    /// Over the completed runs; `None` without measured steps.
    pub fn from_runs(runs: &[&Run]) -> Option<Self> {
        let completed = runs.iter().filter(|run| run.completed());
        Self::from_ranks(&completed.flat_map(|run| run.ranks.iter().map(Vec::as_slice)).collect::<Vec<_>>())
    }

    /// Over the steps of ranks; `None` without measured steps.
    pub fn from_ranks(ranks: &[&[StepRecord]]) -> Option<Self> {
        let of_measured = StepSeconds::from_steps(
            ranks.len(),
            ranks.iter().flat_map(|steps| steps.iter()).filter(|step| step.measured),
        )?;
        let run = StepSeconds::from_steps(ranks.len(), ranks.iter().flat_map(|steps| steps.iter()))?;
        Some(Self { ranks: ranks.len(), measured: of_measured, run })
    }
}

impl StepSeconds {
    /// Sum of `steps` over `ranks`; `None` without steps.
    fn from_steps<'a>(ranks: usize, steps: impl Iterator<Item = &'a StepRecord>) -> Option<Self> {
        let (mut n, mut wall) = (0_u64, 0_u64);
        let mut times: [(u64, u64); Stage::ALL.len()] = Default::default();
        for step in steps {
            n += 1;
            wall += step.wall_ns;
            for (stage, (exposed, busy)) in Stage::ALL.into_iter().zip(&mut times) {
                *exposed += step.exposed[stage];
                *busy += step.busy[stage];
            }
        }
        let seconds = |ns: u64| ns as f64 / 1e9 / ranks as f64;
        let of_stage = |(stage, (exposed, busy)): (Stage, (u64, u64))| {
            let happened = exposed > 0 || busy > 0;
            happened.then(|| StageSeconds { stage, exposed_s: seconds(exposed), busy_s: seconds(busy) })
        };
        let stages = Stage::ALL.into_iter().zip(times).filter_map(of_stage).collect();
        (n > 0).then(|| Self { steps: n as f64 / ranks as f64, wall_s: seconds(wall), stages })
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

    /// Steps of 100 ms, of which 60 ms wait for collate and 25 ms are forward; the first is warm-up and takes a second.
    fn steps(measured: u64) -> Vec<StepRecord> {
        let step = |step: u64| {
            let wall_ns = if step == 0 { 1_000_000_000 } else { 100_000_000 };
            let mut record = StepRecord { step, measured: step > 0, wall_ns, ..StepRecord::default() };
            record.exposed[Stage::Collate] = 60_000_000;
            record.busy[Stage::Collate] = 240_000_000;
            record.exposed[Stage::Forward] = 25_000_000;
            record.busy[Stage::Forward] = 25_000_000;
            record
        };
        (0..=measured).map(step).collect()
    }

    #[test]
    fn stages_are_summed_over_the_run_of_a_rank() {
        let (first, second) = (steps(10), steps(30));
        let totals = RunTotals::from_ranks(&[&first, &second]).unwrap();
        // 10 and 30 measured steps: 20 in the mean, of 0.1 s.
        assert_eq!((totals.ranks, totals.measured.steps, totals.run.steps), (2, 20.0, 21.0));
        assert_eq!((totals.measured.wall_s, totals.run.wall_s), (2.0, 3.0));
        let stages: Vec<_> = totals.measured.stages.iter().map(|s| (s.stage, s.exposed_s, s.busy_s)).collect();
        assert_eq!(stages, [(Stage::Collate, 1.2, 4.8), (Stage::Forward, 0.5, 0.5)]);
        assert_eq!(RunTotals::from_ranks(&[]), None);
        assert_eq!(RunTotals::from_ranks(&[&first[..1]]), None);
    }
}
