//! Samples to batches. Invariant: a batch's buffers are sized by its samples alone, and are reused from batch to batch.

mod assembler;
mod batch;
mod fixed;
mod full;
mod graphs;
mod join;
mod neighborhood;
mod nodes;
mod own;
mod replicate;
mod size;
mod stream;
mod subgraph;
mod tensors;
mod work;

pub use assembler::Assembler;
pub use batch::{Batch, Common, Layout};
pub use replicate::replicate_shifted;
pub(crate) use stream::finish;
pub use tensors::{BitMasks, Edges, Followed, Graphs, MetabolicGraphs, Nodes, Phenotype, RemovedLists};
