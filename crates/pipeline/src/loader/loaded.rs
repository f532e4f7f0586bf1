use expctl_record::PerStage;

use super::Interval;
use crate::collate::Batch;
use crate::marks::BatchOperations;

/// A batch with what it cost.
#[derive(Clone, Debug)]
pub struct Loaded<B = Batch> {
    /// The batch. Give it back with `Loader::recycle`, so that its buffers are used again.
    pub batch: B,
    /// Number of the step it is for.
    pub step: u64,
    /// Epoch it belongs to.
    pub epoch: u64,
    /// Number of the loader thread that built it; none where it was built on the step's own.
    pub thread: Option<u32>,
    /// Bytes taken from the store.
    pub bytes_read: u64,
    /// Bytes that its thread keeps beside the batch, to make the next one: raw records or rows, and what
    /// collation works with.
    pub work_bytes: u64,
    /// When its thread worked on which stage, or waited for another thread's work on it.
    pub intervals: Vec<Interval>,
    /// What its thread did inside *mask* and *collate*; `None` if that is not timed.
    pub operations: Option<BatchOperations>,
    /// Time for which the step waited, by stage.
    pub exposed: PerStage<u64>,
}

impl<B> Loaded<B> {
    /// Time that its thread worked on each stage.
    pub fn busy(&self) -> PerStage<u64> {
        let mut busy = PerStage::default();
        for i in self.intervals.iter().filter(|i| i.busy) {
            busy[i.stage] += i.end - i.start;
        }
        busy
    }
}

#[cfg(test)]
mod tests {
    use expctl_record::Stage;

    use super::super::exposed_wait;
    use super::*;

    #[test]
    fn a_wait_for_another_thread_is_exposed_and_not_busy() {
        let at = |start, end, busy| Interval { stage: Stage::Read, start, end, busy };
        let intervals = vec![at(0, 30, false), at(30, 40, true)];
        let exposed = exposed_wait(0, 40, &intervals);
        assert_eq!((exposed[Stage::Read], exposed[Stage::Other]), (40, 0));
        let loaded = Loaded {
            batch: (),
            step: 0,
            epoch: 0,
            thread: None,
            bytes_read: 0,
            work_bytes: 0,
            intervals,
            operations: None,
            exposed,
        };
        assert_eq!(loaded.busy()[Stage::Read], 10);
    }
}
