//! Which samples are used, and which comes when, on which rank. Invariant: the order is a function of the data set, seeds,
//! epoch, rank and world size alone.

mod distributed;
mod schedule;
mod selection;

pub use distributed::DistributedSampler;
pub use schedule::{BatchIndices, Schedule};
pub use selection::{Selection, asked, split_sizes};
