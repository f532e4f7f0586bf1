//! Times of loading: `StageClock` records when a thread works on each `Stage` of a batch, and `exposed_wait` says which stages the step waited for.
//! All times are in ns, on the clock of the loader.

use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Instant;

use crate::Loaded;

/// A timed part of building a batch, in the order in which items pass through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Drawing the indices of the batch.
    Sample,
    /// Reading bytes from the data set.
    Read,
    /// Bytes to typed values.
    Decode,
    /// What a perturbation removes from the graph.
    Mask,
    /// Items to one batch.
    Collate,
    /// Copying the batch into page-locked memory.
    Pin,
    /// None of the above: threads waking up, or waiting for room.
    Other,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 7] =
        [Self::Sample, Self::Read, Self::Decode, Self::Mask, Self::Collate, Self::Pin, Self::Other];

    /// The word for it in tables and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::Read => "read",
            Self::Decode => "decode",
            Self::Mask => "mask",
            Self::Collate => "collate",
            Self::Pin => "pin",
            Self::Other => "other",
        }
    }
}

/// A time for each stage, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes([u64; Stage::ALL.len()]);

impl StageTimes {
    /// Each stage with its time, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, u64)> {
        Stage::ALL.into_iter().zip(self.0)
    }

    /// Sum over all stages.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Index<Stage> for StageTimes {
    type Output = u64;

    fn index(&self, stage: Stage) -> &u64 {
        &self.0[stage as usize]
    }
}

impl IndexMut<Stage> for StageTimes {
    fn index_mut(&mut self, stage: Stage) -> &mut u64 {
        &mut self.0[stage as usize]
    }
}

/// When a loader thread worked on a stage of one batch, in ns of the loader's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The stage.
    pub stage: Stage,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
    /// The thread worked; otherwise it waited for another thread that works on this stage.
    pub busy: bool,
}

/// Who built a batch, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchTimes {
    /// The step that the batch is for.
    pub step: u64,
    /// The loader thread; `None` if the step's own thread built the batch.
    pub thread: Option<u32>,
    /// When the thread worked on each stage, or waited for another thread's work on it.
    pub intervals: Vec<Interval>,
    /// Operations inside the stages *mask* and *collate*; `None` if they are not timed.
    pub operations: Option<BatchOperations>,
}

impl<B> From<&Loaded<B>> for BatchTimes {
    fn from(loaded: &Loaded<B>) -> Self {
        let Loaded { step, thread, intervals, operations, .. } = loaded;
        Self { step: *step, thread: *thread, intervals: intervals.clone(), operations: operations.clone() }
    }
}

/// Split the time that a step waited for a batch, `from..to`, over the stages that the batch was in meanwhile.
///
/// This is a measurement and not a proportional share: batches are claimed in order, so while the step waits for a batch
/// that batch is being worked on. What is left (threads waking up, waiting for room) goes to *other*.
pub fn exposed_wait(from: u64, to: u64, intervals: &[Interval]) -> StageTimes {
    let mut exposed = StageTimes::default();
    let mut rest = to.saturating_sub(from);
    for interval in intervals {
        let overlap = interval.end.min(to).saturating_sub(interval.start.max(from));
        exposed[interval.stage] += overlap;
        rest = rest.saturating_sub(overlap);
    }
    exposed[Stage::Other] += rest;
    exposed
}

/// A stopwatch of one batch: each call ends the interval that began with the call before it.
pub struct StageClock {
    clock: Instant,
    last: u64,
    intervals: Vec<Interval>,
}

impl StageClock {
    /// Begin the first interval. `clock` is time 0 of the loader's clock.
    pub fn start(clock: Instant) -> Self {
        Self { clock, last: clock.elapsed().as_nanos() as u64, intervals: Vec::with_capacity(5) }
    }

    /// The thread worked on `stage` since the last call.
    pub fn worked(&mut self, stage: Stage) {
        self.end(stage, true);
    }

    /// The thread waited since the last call for another thread that works on `stage`.
    pub fn waited(&mut self, stage: Stage) {
        self.end(stage, false);
    }

    fn end(&mut self, stage: Stage, busy: bool) {
        let now = self.clock.elapsed().as_nanos() as u64;
        self.intervals.push(Interval { stage, start: self.last, end: now, busy });
        self.last = now;
    }

    /// The time since the last call belongs to no stage.
    pub fn skip(&mut self) {
        self.last = self.clock.elapsed().as_nanos() as u64;
    }

    /// All intervals, in order.
    pub fn intervals(self) -> Vec<Interval> {
        self.intervals
    }
}

/// What is done inside a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StageOperation {
    /// Sizing the tensors in the buffers of the batch; the first batches also take memory from the system here.
    Allocate,
    /// Finding the lists of edges of the perturbed genes, or the genes of a neighborhood.
    Lookup,
    /// Writing masks, or lists of removed edges.
    Fill,
    /// Going through the edges and choosing those that stay.
    Filter,
    /// Writing the graph of each sample; node numbers get their offset on the way.
    Copy,
}

impl StageOperation {
    /// The word for it in tables and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Lookup => "lookup",
            Self::Fill => "fill",
            Self::Filter => "filter",
            Self::Copy => "copy",
        }
    }
}

/// When a loader thread worked on an operation of one batch, in ns of the loader's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationInterval {
    /// The stage that the operation is inside.
    pub stage: Stage,
    /// The operation.
    pub operation: StageOperation,
    /// What it worked on: an index among the names of the batch's operands.
    pub operand: usize,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
}

/// Time worked on one operation for one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationTime {
    /// The stage that the operation is inside.
    pub stage: Stage,
    /// The operation.
    pub operation: StageOperation,
    /// Name of what it worked on.
    pub operand: Arc<str>,
    /// Time worked, in ns.
    pub ns: u64,
}

/// The operations of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOperations {
    operands: Arc<[Arc<str>]>,
    intervals: Vec<OperationInterval>,
}

impl BatchOperations {
    /// Operations on operands of these names. Each interval's operand is an index into the names.
    pub fn new(operands: Arc<[Arc<str>]>, intervals: Vec<OperationInterval>) -> Self {
        Self { operands, intervals }
    }

    /// All intervals in order, each with the name of its operand.
    pub fn intervals(&self) -> impl Iterator<Item = (&OperationInterval, &str)> {
        self.intervals.iter().map(|interval| (interval, &*self.operands[interval.operand]))
    }

    /// Time worked on each operation, each once, in the order in which they came.
    pub fn times(&self) -> Vec<OperationTime> {
        let mut found: Vec<(&OperationInterval, u64)> = Vec::new();
        for interval in &self.intervals {
            let same = |(of, _): &&mut (&OperationInterval, u64)| {
                (of.stage, of.operation, of.operand) == (interval.stage, interval.operation, interval.operand)
            };
            let ns = interval.end - interval.start;
            match found.iter_mut().find(same) {
                Some((_, sum)) => *sum += ns,
                None => found.push((interval, ns)),
            }
        }
        let time = |(of, ns): (&OperationInterval, u64)| {
            let operand = Arc::clone(&self.operands[of.operand]);
            OperationTime { stage: of.stage, operation: of.operation, operand, ns }
        };
        found.into_iter().map(time).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_split_where_it_overlaps() {
        let at = |stage, start, end| Interval { stage, start, end, busy: true };
        let intervals = [at(Stage::Read, 0, 10), at(Stage::Mask, 10, 30), at(Stage::Collate, 30, 50)];
        let exposed = exposed_wait(20, 55, &intervals);
        assert_eq!((exposed[Stage::Read], exposed[Stage::Mask], exposed[Stage::Collate]), (0, 10, 20));
        assert_eq!(exposed[Stage::Other], 5);
        assert_eq!(exposed.total(), 35);
        assert_eq!(exposed_wait(60, 60, &intervals).total(), 0);
    }

    #[test]
    fn stages_are_in_the_order_of_their_times() {
        assert!(Stage::ALL.iter().enumerate().all(|(i, stage)| *stage as usize == i));
    }
}
