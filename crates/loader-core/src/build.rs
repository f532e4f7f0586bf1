use std::time::Instant;

use super::{Loaded, LoaderOptions};
use crate::PipelineError;

/// Makes the batches of a loader: what all of its threads share, and what each of them works with. Each thread has a clone.
pub trait Build: Clone + Send + 'static {
    /// A batch, or its buffers.
    type Batch: Send + 'static;
    /// What readers are made from; outlives them.
    type Source: 'static;
    /// What one thread reads with.
    type Reader<'s>;

    /// What readers are made from.
    fn source(&self) -> Self::Source;

    /// A reader of one thread.
    ///
    /// # Errors
    /// A file cannot be opened.
    fn reader(source: &Self::Source) -> Result<Self::Reader<'_>, PipelineError>;

    /// A batch without anything in it.
    fn empty(&self) -> Self::Batch;

    /// Start of the clock that intervals are in.
    fn clock(&self) -> Instant;

    /// Bytes of all tensors of a batch.
    fn bytes(batch: &Self::Batch) -> u64;

    /// Called once by the loader, before it clones for its threads.
    fn starting(&mut self, options: &LoaderOptions) {
        let _ = options;
    }

    /// No batch of step `from` or later is wanted any more: threads that wait within [`Build::build`] for other threads give
    /// up, with any error.
    fn stop(&self, from: u64) {
        let _ = from;
    }

    /// Build the batch of `step` into the buffers of `batch`. Steps are begun in order, by any thread.
    ///
    /// # Errors
    /// What it needs cannot be read, or is damaged.
    fn build(
        &mut self,
        reader: &mut Self::Reader<'_>,
        step: u64,
        batch: Self::Batch,
    ) -> Result<Loaded<Self::Batch>, PipelineError>;

    /// Nanoseconds of the clock that intervals are in.
    fn now(&self) -> u64 {
        self.clock().elapsed().as_nanos() as u64
    }
}
