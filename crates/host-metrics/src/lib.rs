//! The hardware of a machine and its use by processes: readings of /proc, control groups, the page cache and NVML.
//!
//! [`MetricsRecorder`] takes a [`HardwareSample`] of some processes and their GPU at even intervals, by a thread of its own, and appends
//! it to a journal. [`hardware()`] describes the machine; [`gpu_topology`] says how its GPUs are connected.
//!
//! Invariant: nothing here ends a process. A value that the system does not give is `None`; a journal that cannot be written any more
//! ends the recording, and that is logged.

mod control_group;
mod hardware;
mod nvml;
mod page_cache;
mod process;
mod reader;
mod recorder;
mod sample;

pub use control_group::{free_memory, group_memory};
pub use hardware::{Gpu, Hardware, RankDevice, hardware, has_bfloat16, nvidia_gpus_on_bus, peak_resident};
pub use nvml::gpu_topology;
pub use page_cache::{DroppedPages, PageCacheError, drop_from_page_cache};
pub use process::WatchedProcesses;
pub use recorder::{MetricsOptions, MetricsRecorder, read_sample_journal};
pub use sample::{HardwareSample, SampleColumn};
