//! libtorch's own distributed engine (c10d) for Rust, beside [`tch`]: the key-value store that ranks meet at, process groups over Gloo and NCCL,
//! and the gradient reducer of `DistributedDataParallel`.
//!
//! The same bridge carries other parts of libtorch that tch does not show: the profiler (Kineto), the fused AdamW, a sparse product with its
//! gradient, autocast to bfloat16, TorchScript modules with their buffers, and CUDA streams, events and page-locked memory. CUDA is loaded at run
//! time: one program serves machines with and without a GPU (see [`Cuda`]).
//!
//! Invariants: every C++ object is owned by one Rust value and freed with it; every C++ exception arrives as a [`DistError`] that names the
//! operation; every wait for other ranks has a time limit. The one exception is the reply of a store whose server is reachable but frozen (see
//! [`Store`]): a caller that must not hang watches from another thread.
//!
//! # Example
//!
//! One rank of two. The other one calls `Store::connect(host, port, limit)` and does the same:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use tch::{Kind, Tensor, nn};
//! use torch_dist::{DistError, ProcessGroup, Reducer, ReducerOptions, Store, rendezvous};
//!
//! fn main() -> Result<(), DistError> {
//!     let (rank, world, limit) = (0, 2, Duration::from_secs(120));
//!     let store = Store::serve("127.0.0.1", 0, limit)?; // the other rank needs store.port()
//!     rendezvous(&store, rank, world, limit)?;
//!     let group = ProcessGroup::gloo(&store, rank, world, limit)?;
//!
//!     let vs = nn::VarStore::new(tch::Device::Cpu);
//!     let layer = nn::linear(vs.root(), 10, 1, Default::default());
//!     let mut parameters: Vec<(String, Tensor)> = vs.variables().into_iter().collect();
//!     parameters.sort_by(|a, b| a.0.cmp(&b.0)); // the same order on all ranks
//!     let mut reducer = Reducer::new(&parameters, &group, ReducerOptions::default())?;
//!
//!     let batch = Tensor::rand([32, 10], (Kind::Float, tch::Device::Cpu));
//!     reducer.prepare_forward()?;
//!     let loss = batch.apply(&layer).square().mean(Kind::Float);
//!     reducer.prepare_backward(&[&loss])?;
//!     reducer.backward(&loss)?; // every gradient is now the mean over the ranks
//!     let times = reducer.take_allreduce_times()?;
//!     println!("{} ns of communication, {} of them exposed", times.busy_ns, times.exposed_ns);
//!     Ok(())
//! }
//! ```

mod autocast;
mod cuda;
mod error;
mod ffi;
mod graph_layer;
mod group;
mod multi_tensor;
mod pairwise_join;
mod profile;
mod reducer;
mod script;
mod sparse;
mod store;

pub use autocast::Autocast;
pub use cuda::{
    Cuda, CudaError, CudaVersions, DeviceEvent, DeviceStream, GpuProperties, Nccl, PinnedMemory, StreamScope,
    leave_nccl_failures_to_caller,
};
pub use error::DistError;
pub use graph_layer::{
    EdgeTypeJoin, LayerShape, Neighbours, RemovedRows, layer_rows, row_instructions, sums_of_differing,
};
pub use group::{GpuBackend, ProcessGroup};
pub use multi_tensor::{AdamwOptions, AdamwParameter, foreach_norms, foreach_scale, fused_adamw};
pub use pairwise_join::{PairwiseParameters, pairwise_join};
pub use profile::{ProfileOptions, ProfilerRange, RecordedProfile, RunningProfile};
pub use reducer::{AllreduceTimes, AllreduceWatch, GradientDtype, Reducer, ReducerOptions};
pub use script::{ScriptInput, ScriptModule};
pub use sparse::{MatrixEntry, SparseMatrix};
pub use store::{Store, rendezvous, rendezvous_until};

use ffi::bridge;

/// Version of libtorch that this process runs with, for example `2.11.0`.
///
/// The library itself reports it: `LD_LIBRARY_PATH` may have chosen another one than this program was built against. `unknown` if the library
/// does not say.
pub fn libtorch_version() -> String {
    let version = bridge::loaded_version();
    if version.is_empty() { "unknown".to_owned() } else { version }
}

/// The file of libtorch that this process runs with; empty if the loader does not report it.
pub fn libtorch_file() -> String {
    bridge::loaded_file()
}

/// Check that the loaded libtorch has the version that this program was built against. Objects cross the bridge by their layout in memory,
/// which may differ between versions.
///
/// # Errors
/// [`DistError::WrongLibtorch`] with both versions and the file that was loaded.
pub fn check_libtorch() -> Result<(), DistError> {
    compare(&bridge::compiled_version(), &libtorch_version(), &bridge::loaded_file())
}

fn compare(built: &str, loaded: &str, file: &str) -> Result<(), DistError> {
    if release(built) == release(loaded) {
        return Ok(());
    }
    Err(DistError::WrongLibtorch { built: built.to_owned(), loaded: loaded.to_owned(), file: file.to_owned() })
}

/// `2.11.0` for `2.11.0+cu130`: the suffix names a build, not another interface.
fn release(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaded_library_names_its_version_and_its_file() {
        assert_eq!(check_libtorch(), Ok(()));
        assert_eq!(release(&libtorch_version()), release(&bridge::compiled_version()));
        assert!(bridge::loaded_file().ends_with("libtorch_cpu.so"), "{}", bridge::loaded_file());
    }

    #[test]
    fn another_version_is_refused_and_another_build_is_not() {
        assert_eq!(compare("2.11.0", "2.11.0+cu130", "x"), Ok(()));
        let error = compare("2.11.0", "2.12.0", "/site/lib/libtorch_cpu.so").unwrap_err();
        assert_eq!(
            error.to_string(),
            "built against libtorch 2.11.0, but 2.12.0 was loaded from /site/lib/libtorch_cpu.so \
             (does LD_LIBRARY_PATH name it?)"
        );
        assert!(compare("2.11.0", "unknown", "x").is_err());
    }
}

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
