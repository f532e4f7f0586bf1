//! Bridge to libtorch's own distributed engine (c10d): the key-value store ranks meet at, Gloo process groups, and the
//! gradient reducer of `DistributedDataParallel`. Beside them libtorch's profiler, its fused AdamW, a sparse product with its own
//! gradient, autocast to bfloat16 and TorchScript modules, because they need the same bridge.
//!
//! Invariants: every C++ object is owned by one Rust value and freed with it; every C++ exception arrives as a
//! [`DistError`] that names the operation; whatever waits for other ranks has a time limit. What has none is the reply of
//! a store whose server is reachable but frozen (see [`Store`]): a caller that must not hang watches from another thread.
//!
//! A rank's way through it:
//!
//! ```no_run
//! # fn main() -> Result<(), expctl_dist::DistError> {
//! # let (rank, world) = (0, 2);
//! # let parameters: Vec<(String, tch::Tensor)> = Vec::new();
//! use std::time::Duration;
//! use expctl_dist::{ProcessGroup, Reducer, ReducerOptions, Store, rendezvous};
//!
//! let limit = Duration::from_secs(120);
//! let store = Store::serve("127.0.0.1", 0, limit)?; // the other ranks: Store::connect(host, port, limit)
//! rendezvous(&store, rank, world, limit)?;
//! let group = ProcessGroup::gloo(&store, rank, world, limit)?;
//! let mut reducer = Reducer::new(&parameters, &group, ReducerOptions::default())?;
//! # let loss = tch::Tensor::from(0.0f32);
//! reducer.prepare_forward()?;
//! // … forward pass …
//! reducer.prepare_backward(&[&loss])?;
//! reducer.backward(&loss)?; // the gradients are now the mean over the ranks
//! let times = reducer.take_allreduce_times()?;
//! # let _ = times;
//! # Ok(())
//! # }
//! ```

mod adamw;
mod autocast;
mod cuda;
mod error;
mod ffi;
mod foreach;
mod group;
mod interface;
mod profile;
mod reducer;
mod rendezvous;
mod script;
mod shared_layer;
mod sparse;
mod store;
mod version;

pub use adamw::{AdamwOptions, AdamwPart, fused_adamw};
pub use autocast::Autocast;
pub use cuda::{
    Cuda, CudaError, CudaVersions, DeviceEvent, DeviceStream, GpuFacts, Nccl, Pinned, StreamScope,
    leave_nccl_failures_to_caller,
};
pub use error::DistError;
pub use foreach::{norms, scale};
pub use group::{GpuBackend, ProcessGroup};
pub use profile::{Profile, ProfileOptions, Range, Recorded};
pub use reducer::{AllreduceTimes, AllreduceWatch, Reducer, ReducerOptions, SentAs};
pub use rendezvous::{rendezvous, rendezvous_until};
pub use script::{ScriptInput, ScriptModule};
pub use shared_layer::{Join, LayerShape, Neighbours, Removed, layer_rows, row_instructions, sums_of_differing};
pub use sparse::{Entry, SparseMatrix};
pub use store::Store;
pub use version::{check_libtorch, libtorch_file, libtorch_version};
