use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CudaFacts, ProgramFacts, RankDevice};

/// A GPU of the node, whether the rank may use it or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Model.
    pub name: String,
    /// Its memory, bytes; none where the driver's tool is not there to say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Place on the bus, in the driver's words.
    #[serde(default)]
    pub bus: String,
}

/// Hardware of the node that a rank ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Name of the node.
    pub host: String,
    /// Processor model.
    pub cpu: String,
    /// Processors that the rank may use.
    pub cpus: u32,
    /// Memory of the node, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Memory that the rank's control group may use, bytes; none without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Processor time that the rank's control group may use, in thousandths of a processor; none without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit_milli: Option<u64>,
    /// Version of the C library.
    #[serde(default)]
    pub glibc: String,
    /// GPUs of the node.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Version of the GPUs' driver; empty without one.
    #[serde(default)]
    pub gpu_driver: String,
    /// `CUDA_VISIBLE_DEVICES` of the rank; none where it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_visible_devices: Option<String>,
    /// The GPU that this rank computes on; none where it computes on the host, and of a program of the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<RankDevice>,
}

/// `env.json`: where and with what an attempt ran, written by rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of expctl-worker, or of the expctl that watched over a program of the user's.
    pub worker_version: String,
    /// Version of libtorch; empty where a program of the user's ran.
    pub libtorch_version: String,
    /// The file that it was loaded from.
    #[serde(default)]
    pub libtorch_file: String,
    /// Device of the steps.
    pub device: String,
    /// Backend of the process group.
    pub backend: String,
    /// Threads of libtorch inside one operation.
    pub threads: u32,
    /// Each rank's node, by rank.
    pub ranks: Vec<Hardware>,
    /// Environment variables of rank 0 that change how a run behaves, none that looks like a secret.
    pub variables: BTreeMap<String, String>,
    /// What the program says of itself that ran in the place of expctl-worker; none where that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramFacts>,
    /// CUDA as the ranks used it; none where they computed on the host, and of a program of the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<CudaFacts>,
}
