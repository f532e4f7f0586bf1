//! The traits that describe to a loader what is loaded: `Dataset`, `Sampler`, `Batcher`. `Loaded` is a batch with its times.

use std::sync::Arc;
use std::time::Instant;

use crate::timing::{BatchOperations, Interval, StageTimes};
use crate::{LoaderError, LoaderOptions};

/// Where items are read from. All loader threads share it; each reads through a reader of its own.
pub trait Dataset: 'static {
    /// Reads on one thread.
    type Reader<'a>;
    /// Why a reader cannot be opened.
    type Error;

    /// Open a reader for the calling thread.
    ///
    /// # Errors
    /// A file cannot be opened, or is not what it was when the data set was opened.
    fn reader(&self) -> Result<Self::Reader<'_>, Self::Error>;
}

/// Draws the items of each batch. Invariant: a batch is a function of the sampler and the step alone, so that threads and
/// restarted runs draw the same.
pub trait Sampler: Send + Sync + 'static {
    /// Batches of an epoch, on each rank.
    fn batches_per_epoch(&self) -> u64;

    /// Append the indices of the items of the batch of `step`, counted from 0 over all epochs, to `items`; returns the epoch.
    fn batch(&self, step: u64, items: &mut Vec<u64>) -> u64;
}

/// Samples of each rank in an epoch of `len`: with `drop_last` the tail that does not fill all ranks is left out, without it
/// the last ranks are filled up. As PyTorch's `DistributedSampler`.
pub fn samples_per_rank(len: u64, world_size: u32, drop_last: bool) -> u64 {
    let world = u64::from(world_size);
    if drop_last && !len.is_multiple_of(world) {
        // ceil((len - world) / world); 0 for a data set smaller than the world.
        len.saturating_sub(world).div_ceil(world)
    } else {
        len.div_ceil(world)
    }
}

/// The reader of one thread of a loader that runs `B`.
pub type Reader<'a, B> = <<B as Batcher>::Dataset as Dataset>::Reader<'a>;

/// Reads and collates batches. A loader gives each of its threads a clone; clones share what is large.
pub trait Batcher: Clone + Send + 'static {
    /// What batches are read from.
    type Dataset: Dataset<Error = Self::Error> + ?Sized;
    /// A batch, or its buffers.
    type Batch: Send + 'static;
    /// Why a batch cannot be built.
    type Error: From<LoaderError> + Send + 'static;

    /// What readers are opened from.
    fn dataset(&self) -> Arc<Self::Dataset>;

    /// A batch without items.
    fn empty(&self) -> Self::Batch;

    /// Time 0 of the clock that intervals are measured on.
    fn clock(&self) -> Instant;

    /// Bytes of all tensors of a batch.
    fn bytes(batch: &Self::Batch) -> u64;

    /// Called once by the loader, before it clones the batcher for its threads.
    fn starting(&mut self, options: &LoaderOptions) {
        let _ = options;
    }

    /// No batch of step `from` or later is wanted any more. Threads that wait within [`Batcher::build`] for other threads
    /// return, with any error.
    fn stop(&self, from: u64) {
        let _ = from;
    }

    /// Build the batch of `step` into the buffers of `batch`. Steps are begun in order, by any thread.
    ///
    /// # Errors
    /// The items of the step cannot be read, or are damaged.
    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        batch: Self::Batch,
    ) -> Result<Loaded<Self::Batch>, Self::Error>;

    /// Nanoseconds of the clock that intervals are measured on.
    fn now(&self) -> u64 {
        self.clock().elapsed().as_nanos() as u64
    }
}

/// A batch with what it cost.
#[derive(Clone, Debug)]
pub struct Loaded<B> {
    /// The batch. Give it back with [`crate::Loader::recycle`], so that its buffers are used again.
    pub batch: B,
    /// The step that the batch is for.
    pub step: u64,
    /// The epoch that the step is in.
    pub epoch: u64,
    /// The loader thread that built the batch; `None` if the step's own thread did.
    pub thread: Option<u32>,
    /// Bytes read from the data set.
    pub bytes_read: u64,
    /// Bytes that the thread keeps beside the batch to build the next one: raw records or rows, and scratch of collation.
    pub work_bytes: u64,
    /// When the thread worked on each stage, or waited for another thread's work on it.
    pub intervals: Vec<Interval>,
    /// Operations inside the stages *mask* and *collate*; `None` if they are not timed.
    pub operations: Option<BatchOperations>,
    /// Time that the step waited for the batch, by stage, in ns.
    pub exposed: StageTimes,
}

impl<B> Loaded<B> {
    /// A batch without costs.
    pub fn new(batch: B, step: u64, epoch: u64) -> Self {
        Self {
            batch,
            step,
            epoch,
            thread: None,
            bytes_read: 0,
            work_bytes: 0,
            intervals: Vec::new(),
            operations: None,
            exposed: StageTimes::default(),
        }
    }

    /// Time that the thread worked on each stage, in ns.
    pub fn busy(&self) -> StageTimes {
        let mut busy = StageTimes::default();
        for i in self.intervals.iter().filter(|i| i.busy) {
            busy[i.stage] += i.end - i.start;
        }
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{Stage, exposed_wait};

    #[test]
    fn a_wait_for_another_thread_is_exposed_and_not_busy() {
        let at = |start, end, busy| Interval { stage: Stage::Read, start, end, busy };
        let intervals = vec![at(0, 30, false), at(30, 40, true)];
        let exposed = exposed_wait(0, 40, &intervals);
        assert_eq!((exposed[Stage::Read], exposed[Stage::Other]), (40, 0));
        let loaded = Loaded { intervals, exposed, ..Loaded::new((), 0, 0) };
        assert_eq!(loaded.busy()[Stage::Read], 10);
    }
}
