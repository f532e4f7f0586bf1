//! Batches of an array for the threaded loader. Invariants: at most two blocks of chunks are in memory, or as many as one batch
//! reaches over, sparse rows in as few bytes as they fit into; whoever waits for a part of a chunk waits for a thread that
//! reads it, or for earlier steps.

mod array_builder;
mod blocks;
mod held;

pub use array_builder::ArrayBuilder;
