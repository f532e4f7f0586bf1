//! `env.json`: where and with what an attempt ran, without secrets.

use std::collections::BTreeMap;

use expctl_settings::looks_secret;
use host_metrics::Hardware;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// `env.json`: hardware and software that an attempt ran with, written by rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of expctl-worker, or of the expctl that ran the user's own program.
    pub worker_version: String,
    /// Version of libtorch; empty if the user's own program ran.
    pub libtorch_version: String,
    /// The file that libtorch was loaded from.
    #[serde(default)]
    pub libtorch_file: String,
    /// Device of the steps.
    pub device: String,
    /// Backend of the process group.
    pub backend: String,
    /// Threads of libtorch inside one operation.
    pub threads: u32,
    /// The node of each rank, by rank.
    pub ranks: Vec<Hardware>,
    /// Environment variables of rank 0 that change how a run behaves, without those that look like secrets.
    pub variables: BTreeMap<String, String>,
    /// Facts about the user's own program. `None`: expctl-worker ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramFacts>,
    /// CUDA as the ranks used it. `None`: they computed on the host, or the user's own program ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<CudaFacts>,
}

/// CUDA as the ranks of an attempt used it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaFacts {
    /// Newest version of CUDA that the driver supports, `13.0`. The version of the driver itself is `gpu_driver` of a node's hardware.
    pub driver: String,
    /// Version of the CUDA runtime that libtorch was built with, `12.8`.
    pub runtime: String,
    /// The file that libtorch's CUDA part was loaded from.
    #[serde(default)]
    pub library: String,
    /// Version of NCCL, `2.28.9`; empty if it was not used.
    #[serde(default)]
    pub nccl: String,
    /// Connections of the GPUs of the node of rank 0, a line per pair: `GPU 0 - GPU 1: NVLink x18`.
    #[serde(default)]
    pub topology: Vec<String>,
}

/// Facts about the user's own program (`worker.command`), from its rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// Its name.
    pub name: String,
    /// Versions of its packages, by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Its own settings: numbers, texts, booleans.
    #[serde(default)]
    pub settings: BTreeMap<String, Json>,
    /// Samples of one epoch, over all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_epoch: Option<u64>,
    /// Samples of its data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_total: Option<u64>,
    /// Size of its data on disk, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// The largest resident set of a rank, including pages of files, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl ProgramFacts {
    /// `annbatch (annbatch 0.3.1, torch 2.11.0)`.
    pub fn words(&self) -> String {
        let versions: Vec<String> = self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        if versions.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, versions.join(", ")) }
    }
}

/// Prefixes of environment variables that change how a run behaves, and of Slurm's ids. Values of other variables stay private.
const RECORDED_VARIABLES: [&str; 21] = [
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "GLOO_",
    "NCCL_",
    "CUDA_",
    "PYTORCH_",
    "TORCH_",
    "MALLOC_",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "SLURM_JOB_ID",
    "SLURM_ARRAY_",
    "SLURM_STEP_",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_CLUSTER_NAME",
    "SLURM_NTASKS",
    "SLURM_CPUS_PER_TASK",
    "SLURM_RESTART_COUNT",
];

/// The environment variables of this process that change how a run behaves, without those that look like secrets.
pub fn variables() -> BTreeMap<String, String> {
    std::env::vars().filter(|(name, _)| is_recorded(name)).collect()
}

fn is_recorded(name: &str) -> bool {
    RECORDED_VARIABLES.iter().any(|prefix| name.starts_with(prefix)) && !looks_secret(name)
}

/// Copy the GPUs that one rank of a node found to all `ranks` of it: only one asks the GPUs' driver.
pub fn share_gpus(ranks: &mut [Hardware]) {
    let answered: Vec<Hardware> =
        ranks.iter().filter(|r| r.gpus.iter().any(|g| g.memory_bytes.is_some())).cloned().collect();
    for rank in ranks {
        if let Some(same) = answered.iter().find(|k| k.host == rank.host) {
            rank.gpus.clone_from(&same.gpus);
            rank.gpu_driver.clone_from(&same.gpu_driver);
        }
    }
}

#[cfg(test)]
mod tests {
    use host_metrics::{Gpu, RankDevice};
    use serde_json::json;

    use super::*;
    use crate::{PerStage, Stage, StepRecord};

    #[test]
    fn what_ranks_on_the_host_write_says_nothing_of_devices() {
        let environment = Environment { ranks: vec![Hardware::default()], ..Environment::default() };
        let written = serde_json::to_value(&environment).unwrap();
        assert!(written.get("cuda").is_none() && written["ranks"][0].get("device").is_none(), "{written}");
        let step = serde_json::to_value(StepRecord::default()).unwrap();
        assert!(step.get("device").is_none(), "{step}");
        assert_eq!(serde_json::from_value::<StepRecord>(step).unwrap(), StepRecord::default());
    }

    #[test]
    fn gpus_of_ranks_are_read_as_they_are_written() {
        let device =
            RankDevice { index: 1, name: "NVIDIA H100".into(), memory_bytes: 85 << 30, ..RankDevice::default() };
        let cuda = CudaFacts {
            driver: "13.0".into(),
            runtime: "12.8".into(),
            topology: vec!["GPU 0 - GPU 1: NVLink x18".into()],
            ..CudaFacts::default()
        };
        let rank = Hardware { device: Some(device), ..Hardware::default() };
        let environment = Environment { ranks: vec![rank], cuda: Some(cuda), ..Environment::default() };
        let written = serde_json::to_value(&environment).unwrap();
        assert_eq!(written["ranks"][0]["device"]["index"], json!(1));
        assert_eq!(written["cuda"]["topology"], json!(["GPU 0 - GPU 1: NVLink x18"]));
        assert_eq!(serde_json::from_value::<Environment>(written).unwrap(), environment);
        let mut times = PerStage::<u64>::default();
        times[Stage::Backward] = 12;
        let step = StepRecord { device: Some(times), ..StepRecord::default() };
        let line = serde_json::to_string(&step).unwrap();
        assert_eq!(serde_json::from_str::<StepRecord>(&line).unwrap(), step);
    }

    #[test]
    fn variables_that_look_like_secrets_stay_out() {
        for name in ["OMP_NUM_THREADS", "NCCL_DEBUG", "LD_LIBRARY_PATH", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"] {
            assert!(is_recorded(name), "{name}");
        }
        for name in ["HOME", "SLURM_JWT", "NCCL_API_KEY", "CUDA_SECRET_X", "GLOO_password", "PYTORCH_HUB_TOKEN"] {
            assert!(!is_recorded(name), "{name}");
        }
    }

    #[test]
    fn ranks_of_a_node_share_what_one_of_them_found_out() {
        let gpu = |memory_bytes| Gpu { name: "A40".into(), memory_bytes, bus: "0".into() };
        let rank = |host: &str, memory| Hardware { host: host.into(), gpus: vec![gpu(memory)], ..Hardware::default() };
        let mut ranks = [rank("n1", Some(5)), rank("n1", None), rank("n2", None)];
        share_gpus(&mut ranks);
        assert_eq!(ranks.map(|r| r.gpus[0].memory_bytes), [Some(5), Some(5), None]);
    }
}
