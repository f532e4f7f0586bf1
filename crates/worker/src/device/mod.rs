//! Where the ranks compute, and how batches come there. Invariants: which device a rank has is settled before its first tensor; a
//! step waits for its device once, at its end; a batch that is being copied is neither changed nor given back.

mod agree;
mod feed;
#[cfg(test)]
mod gpu_cases;
mod laps;
mod placement;
mod staged;

pub(crate) use agree::agree;
pub(crate) use feed::Feed;
pub(crate) use laps::DeviceLaps;
pub(crate) use placement::Placement;
pub(crate) use staged::{Pinning, Staged};
