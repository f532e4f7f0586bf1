//! Where the ranks compute, and how batches get there. Invariants: the device of a rank is settled before its first tensor; a step waits
//! for its device once, at its end, but for the cases that docs/guide/gpu.md lists; a batch that is being copied is neither changed nor reused.

use tch::TchError;
use torch_dist::DistError;

mod placement;
mod staged_batch;
mod stream;

pub(crate) use placement::{Placement, PlacementError, choose_gpu_backend};
pub(crate) use staged_batch::{PinMemory, PinningBuilder, StagedBatch};
pub(crate) use stream::{DeviceTimer, Gpu, Prefetcher};

/// An operation of this rank alone failed: one of its device, or one of libtorch on it. No other rank took part, so it says nothing about
/// whether the others are alive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct DeviceError(#[from] DistError);

impl DeviceError {
    /// An error of tch, with the operation named.
    pub(crate) fn from_tch(operation: &str, error: &TchError) -> Self {
        Self(DistError::from_tch(operation, error))
    }
}
