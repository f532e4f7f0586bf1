use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
}

/// `env.json`: where and with what an attempt ran, written by rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of expctl-worker.
    pub worker_version: String,
    /// Version of libtorch.
    pub libtorch_version: String,
    /// Device of the steps.
    pub device: String,
    /// Backend of the process group.
    pub backend: String,
    /// Threads of libtorch inside one operation.
    pub threads: u32,
    /// Each rank's node, by rank.
    pub ranks: Vec<Hardware>,
    /// Environment variables that change how a run behaves.
    pub variables: BTreeMap<String, String>,
}
