//! Hardware samples of a rank, taken at even intervals by a thread of its own: `expctl-worker` samples itself, `expctl run-command`
//! the program that it watches over. Beside them how the node's GPUs are connected.
//!
//! Invariant: nothing here ends a rank. What the system does not say is missing from a sample; a journal that cannot be written
//! any more ends the sampling, and that is logged.

mod amounts;
mod clock;
mod gpu;
mod network;
mod process;
mod reader;
mod sampler;
mod shared_memory;
mod topology;
mod tree;

pub use sampler::Sampler;
pub use topology::gpu_topology;
pub use tree::Watched;
