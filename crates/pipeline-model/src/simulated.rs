//! The result of `simulate`: for each rank and step its time in seconds, and what the step waited for.

/// What a step waited for beside its stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For the other ranks, and for the reduction itself.
    Reduce,
    /// For a batch that no thread was working on, and for the wake-up of the step's thread.
    Wake,
}

/// The simulated steps of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulatedRank {
    /// Time of each step: end of the step before to end of this one, seconds.
    pub wall_s: Vec<f64>,
    /// By step, the time that it waited for each stage or spent on it, and then [`Wait::Reduce`] and [`Wait::Wake`]; seconds. A row adds up
    /// to the time of the step.
    exposed_s: Vec<f64>,
    /// By step, the time that each stage of its batch took, processors shared; seconds.
    busy_s: Vec<f64>,
    stages: usize,
}

impl SimulatedRank {
    pub(crate) fn new(steps: usize, stages: usize) -> Self {
        let (exposed, busy) = (steps * (stages + 2), steps * stages);
        Self { wall_s: Vec::with_capacity(steps), exposed_s: vec![0.0; exposed], busy_s: vec![0.0; busy], stages }
    }

    /// Exposed time of a stage in a step, seconds.
    pub fn exposed(&self, step: usize, stage: usize) -> f64 {
        self.exposed_s.get(step * (self.stages + 2) + stage).copied().unwrap_or_default()
    }

    /// Time that a step waited beside its stages, seconds.
    pub fn waited(&self, step: usize, wait: Wait) -> f64 {
        self.exposed(step, self.stages + wait as usize)
    }

    /// Time that a stage of the batch of a step took, processors shared; seconds.
    pub fn busy(&self, step: usize, stage: usize) -> f64 {
        self.busy_s.get(step * self.stages + stage).copied().unwrap_or_default()
    }

    pub(crate) fn add_busy(&mut self, step: usize, stage: usize, seconds: f64) {
        self.busy_s[step * self.stages + stage] += seconds;
    }

    pub(crate) fn add_exposed(&mut self, step: usize, stage: usize, seconds: f64) {
        self.exposed_s[step * (self.stages + 2) + stage] += seconds;
    }

    pub(crate) fn add_wait(&mut self, step: usize, wait: Wait, seconds: f64) {
        self.add_exposed(step, self.stages + wait as usize, seconds);
    }
}

/// A simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// By rank.
    pub ranks: Vec<SimulatedRank>,
    /// Most batches that a rank had at once: in the making, ready and in the step.
    pub batches: usize,
}
