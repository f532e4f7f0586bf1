use crate::StepRecord;

/// How far a rank is and how fast it was: what a glance at a job needs, without the stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTotals {
    /// Steps of the trial that are done, warm-up and those before a checkpoint included.
    pub done: u64,
    /// Samples of the measured steps that were read.
    pub samples: u64,
    /// Wall time of the measured steps that were read, ns.
    pub wall_ns: u64,
}

impl StepTotals {
    /// Totals of steps that are in order.
    pub fn of(steps: &[StepRecord]) -> Self {
        let mut totals = Self::default();
        for step in steps {
            totals.add(step.step, step.measured, step.wall_ns, step.samples);
        }
        totals
    }

    /// Samples per second of this rank over the measured steps; none without any.
    pub fn samples_per_s(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| self.samples as f64 / (self.wall_ns as f64 / 1e9))
    }

    pub(crate) fn add(&mut self, step: u64, measured: bool, wall_ns: u64, samples: u64) {
        self.done = step + 1;
        if measured {
            self.wall_ns += wall_ns;
            self.samples += samples;
        }
    }
}
