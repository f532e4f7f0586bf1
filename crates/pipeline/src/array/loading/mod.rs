//! Batches of an array for the threaded loader. Invariants: at most two blocks of chunks are in memory, or as many as one batch
//! reaches over; whoever waits for a chunk waits for a thread that reads it, or for earlier steps.

mod array_builder;
mod blocks;

pub use array_builder::ArrayBuilder;
