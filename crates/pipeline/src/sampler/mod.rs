//! Which sample comes when, on which rank. Invariant: the order is a function of seed, epoch, rank and world size alone.

mod distributed;
mod schedule;

pub use distributed::DistributedSampler;
pub use schedule::{BatchIndices, Schedule};
