use expctl_record::PerStage;

use super::Interval;
use crate::collate::Batch;

/// A batch with what it cost.
#[derive(Clone, Debug)]
pub struct Loaded<B = Batch> {
    /// The batch. Give it back with `Loader::recycle`, so that its buffers are used again.
    pub batch: B,
    /// Number of the step it is for.
    pub step: u64,
    /// Epoch it belongs to.
    pub epoch: u64,
    /// Bytes taken from the store.
    pub bytes_read: u64,
    /// Bytes that its thread keeps beside the batch, to make the next one: raw records or rows, and what
    /// collation works with.
    pub work_bytes: u64,
    /// When its thread worked on which stage.
    pub intervals: Vec<Interval>,
    /// Time for which the step waited, by stage.
    pub exposed: PerStage<u64>,
}

impl<B> Loaded<B> {
    /// Time worked on each stage.
    pub fn busy(&self) -> PerStage<u64> {
        let mut busy = PerStage::default();
        for i in &self.intervals {
            busy[i.stage] += i.end - i.start;
        }
        busy
    }
}
