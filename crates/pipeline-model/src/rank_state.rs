//! `RankState`: how far a rank is: what its step thread does, which of its batches are claimed, finished and delivered, and what its steps took.
//! Invariant: batches are claimed and delivered in order, and each one in memory is counted once: in the making, ready, or in the step.

use crate::pipeline::{Pipeline, RankTrace};
use crate::simulated::{SimulatedRank, Wait};

/// What the step thread of a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState {
    /// Begins a step.
    Ready,
    /// Waits for a batch that is not finished.
    Waiting,
    /// The batch is finished, the thread wakes up.
    Waking,
    /// Works on stages before the reduction, and builds the batch where there are no loader threads.
    Before,
    /// Waits for the other ranks, or for the reduction.
    Reducing,
    /// Works on stages after the reduction.
    After,
    /// Has done all steps.
    Done,
}

/// A rank in the middle of the simulation.
pub struct RankState<'a> {
    /// What its batches and steps cost.
    pub trace: &'a RankTrace,
    pub state: StepState,
    /// The step that the step thread is in.
    pub step: usize,
    /// When the step before ended, seconds.
    step_began: f64,
    /// Next batch that no thread has claimed.
    claim: usize,
    /// Next batch to deliver.
    deliver: usize,
    /// By batch, whether it is finished.
    finished: Vec<bool>,
    idle_threads: usize,
    building: usize,
    ready: usize,
    in_step: usize,
    /// What its steps took so far.
    pub simulated: SimulatedRank,
}

impl<'a> RankState<'a> {
    /// At time 0: it begins its first step, and its loader threads are idle.
    pub fn new(trace: &'a RankTrace, pipeline: &Pipeline) -> Self {
        Self {
            trace,
            state: StepState::Ready,
            step: 0,
            step_began: 0.0,
            claim: 0,
            deliver: 0,
            finished: vec![false; trace.steps()],
            idle_threads: pipeline.threads,
            building: 0,
            ready: 0,
            in_step: 0,
            simulated: SimulatedRank::new(trace.steps(), pipeline.stages.len()),
        }
    }

    /// Batches in memory.
    pub fn batches(&self) -> usize {
        self.building + self.ready + self.in_step
    }

    /// Whether an idle thread may begin a batch.
    pub fn may_begin(&self, pipeline: &Pipeline) -> bool {
        let fits = pipeline.max_batches.is_none_or(|max| self.batches() < max)
            || (self.state == StepState::Waiting && self.building + self.ready == 0);
        self.idle_threads > 0
            && self.claim < self.trace.steps()
            && self.claim < self.deliver + pipeline.window.max(1)
            && fits
    }

    /// An idle thread begins the next batch. Gives the batch.
    pub fn claim_batch(&mut self) -> usize {
        let batch = self.claim;
        self.claim += 1;
        self.building += 1;
        self.idle_threads -= 1;
        batch
    }

    /// A thread has finished a batch, and is idle.
    pub fn finish_batch(&mut self, batch: usize) {
        self.finished[batch] = true;
        self.building -= 1;
        self.ready += 1;
        self.idle_threads += 1;
    }

    /// Whether loader threads have finished the batch of the step.
    pub fn has_batch(&self) -> bool {
        self.finished.get(self.step).is_some_and(|done| *done)
    }

    /// The step takes its batch, one that is ready or (`from_threads` is false) that it builds itself.
    pub fn take_batch(&mut self, from_threads: bool) {
        if from_threads {
            self.ready -= 1;
        }
        self.deliver += 1;
        self.in_step += 1;
        self.state = StepState::Before;
    }

    /// The step ends at `now`, seconds.
    pub fn end_step(&mut self, now: f64) {
        self.simulated.wall_s.push(now - self.step_began);
        self.step_began = now;
        self.in_step -= 1;
        self.step += 1;
        self.state = if self.step == self.trace.steps() { StepState::Done } else { StepState::Ready };
    }

    /// Add time to what the step waited for, if it waits while no thread works on its batch.
    pub fn add_wait(&mut self, seconds: f64) {
        match self.state {
            StepState::Reducing => self.simulated.add_wait(self.step, Wait::Reduce, seconds),
            // Claimed in order: what is claimed and not finished is being built.
            StepState::Waiting if self.claim <= self.step => {
                self.simulated.add_wait(self.step, Wait::Wake, seconds);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Segment, StageModel};

    #[test]
    fn threads_begin_batches_up_to_the_window_and_the_limit_of_memory() {
        let stages = vec![StageModel::new(Segment::Load, 1.0)];
        let mut pipeline =
            Pipeline { stages, threads: 3, window: 2, max_batches: None, processors: vec![4.0], wake_s: 0.0 };
        let trace = RankTrace::new(0, 1, vec![1.0; 4]);
        let mut rank = RankState::new(&trace, &pipeline);
        assert_eq!([rank.claim_batch(), rank.claim_batch()], [0, 1]);
        assert!(!rank.may_begin(&pipeline), "the window is full");
        rank.finish_batch(1);
        assert!(!rank.has_batch(), "batch 1 is not that of step 0");
        rank.finish_batch(0);
        assert!(rank.has_batch());
        rank.take_batch(true);
        assert_eq!((rank.batches(), rank.may_begin(&pipeline)), (2, true));
        pipeline.max_batches = Some(2);
        assert!(!rank.may_begin(&pipeline), "one batch is in the step, one is ready");
        rank.end_step(5.0);
        assert_eq!(
            (rank.batches(), rank.step, rank.state, &rank.simulated.wall_s[..]),
            (1, 1, StepState::Ready, &[5.0][..])
        );
        assert!(rank.may_begin(&pipeline));
    }

    #[test]
    fn a_step_waits_for_a_thread_only_until_its_batch_is_claimed() {
        let stages = vec![StageModel::new(Segment::Load, 1.0)];
        let pipeline =
            Pipeline { stages, threads: 1, window: 1, max_batches: None, processors: vec![1.0], wake_s: 0.0 };
        let trace = RankTrace::new(0, 1, vec![1.0; 2]);
        let mut rank = RankState::new(&trace, &pipeline);
        rank.add_wait(1.0);
        rank.state = StepState::Waiting;
        rank.add_wait(2.0);
        rank.claim_batch();
        rank.add_wait(4.0);
        rank.state = StepState::Reducing;
        rank.add_wait(8.0);
        assert_eq!((rank.simulated.waited(0, Wait::Wake), rank.simulated.waited(0, Wait::Reduce)), (2.0, 8.0));
    }
}
