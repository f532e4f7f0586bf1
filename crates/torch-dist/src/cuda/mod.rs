//! CUDA, loaded at run time: one program serves machines with and without it. Invariant: nothing of CUDA is linked, and a process
//! that does not ask for a GPU loads nothing of it.
//!
//! What works on streams, events and page-locked memory goes through libtorch's interface for devices of any kind, which is in
//! libc10 and libtorch_cpu; it does its work once libtorch_cuda is there. The process group over NCCL alone has no such interface:
//! it is in a small library of its own (`nccl/backend.cpp`), which lies in this program and is loaded from memory.

mod driver;
mod error;
mod load;
mod locate;
mod nccl;
mod stream;

pub use driver::GpuFacts;
pub use error::CudaError;
pub use load::{Cuda, CudaVersions};
pub use nccl::{Nccl, leave_nccl_failures_to_caller};
pub use stream::{DeviceEvent, DeviceStream, Pinned, StreamScope};
