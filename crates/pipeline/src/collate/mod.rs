//! Samples to batches. Invariant: a batch's buffers are sized by its samples alone, and are reused from batch to batch.

mod assembler;
mod batch;
mod replicate;

pub use assembler::Assembler;
pub use batch::{Batch, Common, GeneMasks, Layout, RemovedLists, Replicated};
pub use replicate::replicate_shifted;
