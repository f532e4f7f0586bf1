use crate::{AttemptDir, RecordError, Settings, StepRecord, joined_steps};

/// How far a rank is and how fast it was: what a glance at a job needs, without the stages.
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
    pub fn of(steps: &[StepRecord]) -> Self {
        Self::over(steps, |step| step.wall_ns)
    }

    /// Totals of steps that are in order, with the time that `time` gives each, ns, in the place of its wall time.
    pub fn over(steps: &[StepRecord], time: impl Fn(&StepRecord) -> u64) -> Self {
        let mut totals = Self::default();
        for step in steps {
            totals.add(step.step, step.measured, time(step), step.samples);
        }
        totals
    }

    /// Rates of this rank over the measured steps; none where these took no time.
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
    /// Iterations per second; of a trial those of its slowest rank, because a step of all ranks ends when the last one ends.
    pub it_per_s: f64,
    /// Samples per second; of a trial the sum over its ranks.
    pub samples_per_s: f64,
}

impl Rates {
    /// Rates of a trial from the totals of all its ranks; none without ranks, and where the measured steps of one took no time.
    ///
    /// Whatever shows the rate of a trial (note, comparison, status, launcher) takes it from here.
    pub fn of_ranks(totals: &[StepTotals]) -> Option<Self> {
        let ranks: Vec<Self> = totals.iter().map(StepTotals::rates).collect::<Option<_>>()?;
        let slowest = ranks.iter().map(|rank| rank.it_per_s).reduce(f64::min)?;
        Some(Self { it_per_s: slowest, samples_per_s: ranks.iter().map(|rank| rank.samples_per_s).sum() })
    }

    /// Rates of a trial over all its attempts, oldest first, as far as the last one built on them.
    ///
    /// # Errors
    /// A file cannot be read, or a step is in no attempt.
    pub fn of_attempts(attempts: &[AttemptDir], settings: &Settings) -> Result<Option<Self>, RecordError> {
        let totals = |rank: u32| match attempts {
            // Without the columns of the stages, as nothing has to be joined.
            [only] if only.steps_path(rank).exists() => only.totals(rank),
            _ => Ok(StepTotals::of(&joined_steps(attempts, rank, settings.measure.warmup)?.steps)),
        };
        Ok(Self::of_ranks(&(0..settings.launch.ranks).map(totals).collect::<Result<Vec<_>, _>>()?))
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
        let rank = |wall_ns: u64| StepTotals::of(&[step(0, 1), step(1, wall_ns), step(2, wall_ns)]);
        let found = Rates::of_ranks(&[rank(100_000_000), rank(200_000_000)]).unwrap();
        assert_eq!(found, Rates { it_per_s: 5.0, samples_per_s: 80.0 + 40.0 });
        // A rank without measured steps leaves nothing to say of the trial.
        assert_eq!(Rates::of_ranks(&[rank(100_000_000), StepTotals::of(&[step(0, 5)])]), None);
        assert_eq!(Rates::of_ranks(&[]), None);
    }
}
