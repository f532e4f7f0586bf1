use std::collections::BTreeMap;

use crate::{Hardware, looks_secret};

/// Beginnings of the names of environment variables that change how a run behaves, and Slurm's ids. Values of others stay
/// private.
const VARIABLES: [&str; 21] = [
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

/// The environment variables of this process that change how a run behaves, none that looks like a secret.
pub fn variables() -> BTreeMap<String, String> {
    std::env::vars().filter(|(name, _)| is_of_interest(name)).collect()
}

fn is_of_interest(name: &str) -> bool {
    VARIABLES.iter().any(|prefix| name.starts_with(prefix)) && !looks_secret(name)
}

/// Give all `ranks` of a node what one of them found out: only one asks the GPUs' driver.
pub fn share_gpus(ranks: &mut [Hardware]) {
    let known: Vec<Hardware> =
        ranks.iter().filter(|r| r.gpus.iter().any(|g| g.memory_bytes.is_some())).cloned().collect();
    for rank in ranks {
        if let Some(same) = known.iter().find(|k| k.host == rank.host) {
            rank.gpus.clone_from(&same.gpus);
            rank.gpu_driver.clone_from(&same.gpu_driver);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_stays_out() {
        for name in ["OMP_NUM_THREADS", "NCCL_DEBUG", "LD_LIBRARY_PATH", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"] {
            assert!(is_of_interest(name), "{name}");
        }
        for name in ["HOME", "SLURM_JWT", "NCCL_API_KEY", "CUDA_SECRET_X", "GLOO_password", "PYTORCH_HUB_TOKEN"] {
            assert!(!is_of_interest(name), "{name}");
        }
    }

    #[test]
    fn ranks_of_a_node_share_what_one_of_them_found_out() {
        let gpu = |memory_bytes| crate::Gpu { name: "A40".into(), memory_bytes, bus: "0".into() };
        let rank = |host: &str, memory| Hardware { host: host.into(), gpus: vec![gpu(memory)], ..Hardware::default() };
        let mut ranks = [rank("n1", Some(5)), rank("n1", None), rank("n2", None)];
        share_gpus(&mut ranks);
        assert_eq!(ranks.map(|r| r.gpus[0].memory_bytes), [Some(5), Some(5), None]);
    }
}
