//! Where the ranks compute, and how batches come there. Invariants: which device a rank has is settled before its first tensor; a
//! step waits for its device once, at its end, but for what docs/gpu.md lists; a batch that is being copied is neither changed nor given back.

mod agree;
mod error;
#[cfg(test)]
mod fake_gpu_cases;
mod feed;
mod gpu;
#[cfg(test)]
mod gpu_cases;
mod laps;
mod leak_on_failure;
mod placement;
mod staged;

pub(crate) use agree::agree;
pub use error::DeviceError;
pub(crate) use feed::Feed;
pub(crate) use gpu::Gpu;
pub(crate) use laps::DeviceLaps;
pub(crate) use leak_on_failure::LeakOnFailure;
pub(crate) use placement::Placement;
pub(crate) use staged::{PinOptions, Pinning, Staged};
