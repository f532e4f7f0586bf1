use std::time::Instant;

use expctl_record::{PerStage, Stage};

use super::Loaded;
use crate::marks::BatchOperations;

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
    /// Number of the step that the batch is for, as the loader counts.
    pub step: u64,
    /// Number of the loader thread; none where the step's own thread built it.
    pub thread: Option<u32>,
    /// When the thread worked on which stage, or waited for another thread's work on it.
    pub intervals: Vec<Interval>,
    /// What the thread did inside *mask* and *collate*; `None` if that is not timed.
    pub operations: Option<BatchOperations>,
}

impl BatchTimes {
    /// Those of a batch.
    pub fn of<B>(loaded: &Loaded<B>) -> Self {
        let Loaded { step, thread, intervals, operations, .. } = loaded;
        Self { step: *step, thread: *thread, intervals: intervals.clone(), operations: operations.clone() }
    }
}

/// Split the time that a step waited for a batch, `from..to`, over the stages that the batch was in meanwhile.
///
/// This is a measurement and not a proportional share: batches are claimed in order, so while the step waits for a batch
/// that batch is being worked on. What is left (threads waking up, waiting for room) goes to *other*.
pub fn exposed_wait(from: u64, to: u64, intervals: &[Interval]) -> PerStage<u64> {
    let mut exposed = PerStage::default();
    let mut rest = to.saturating_sub(from);
    for interval in intervals {
        let overlap = interval.end.min(to).saturating_sub(interval.start.max(from));
        exposed[interval.stage] += overlap;
        rest = rest.saturating_sub(overlap);
    }
    exposed[Stage::Other] += rest;
    exposed
}

/// A stopwatch whose laps are adjacent intervals.
pub(crate) struct Laps {
    clock: Instant,
    last: u64,
    intervals: Vec<Interval>,
}

impl Laps {
    /// Begin the first lap. `clock` is the start of the loader's clock.
    pub(crate) fn start(clock: Instant) -> Self {
        Self { clock, last: clock.elapsed().as_nanos() as u64, intervals: Vec::with_capacity(5) }
    }

    /// End a lap, which was of this stage, and begin the next.
    pub(crate) fn lap(&mut self, stage: Stage) {
        self.end(stage, true);
    }

    /// End a lap, in which another thread was waited for that is at this stage, and begin the next.
    pub(crate) fn waited(&mut self, stage: Stage) {
        self.end(stage, false);
    }

    fn end(&mut self, stage: Stage, busy: bool) {
        let now = self.clock.elapsed().as_nanos() as u64;
        self.intervals.push(Interval { stage, start: self.last, end: now, busy });
        self.last = now;
    }

    /// Begin the next lap now: what was since the last one is of no stage.
    pub(crate) fn skip(&mut self) {
        self.last = self.clock.elapsed().as_nanos() as u64;
    }

    /// All laps.
    pub(crate) fn intervals(self) -> Vec<Interval> {
        self.intervals
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
}
