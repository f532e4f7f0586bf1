use std::collections::BTreeMap;

use expctl_dist::{DistError, Store};
use expctl_record::{Environment, Hardware, looks_secret};

use crate::rank_env::RankEnv;

/// Prefixes of environment variables that change how a run behaves. Values of others stay private.
const VARIABLES: [&str; 9] =
    ["OMP_", "MKL_", "KMP_", "GLOO_", "NCCL_", "CUDA_VISIBLE_DEVICES", "PYTORCH_", "SLURM_JOB_ID", "SLURM_ARRAY_"];

/// Put this rank's hardware into the store; rank 0 returns the environment of all.
pub fn gather(store: &Store, env: RankEnv, threads: u32) -> Result<Option<Environment>, DistError> {
    let text = serde_json::to_vec(&hardware()).unwrap_or_default();
    store.set(&key(env.rank), &text)?;
    if env.rank != 0 {
        return Ok(None);
    }
    let ranks = (0..env.world_size)
        .map(|rank| store.get(&key(rank)).map(|text| serde_json::from_slice(&text).unwrap_or_default()))
        .collect::<Result<Vec<Hardware>, _>>()?;
    Ok(Some(Environment {
        worker_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch_version: expctl_dist::libtorch_version(),
        device: "cpu".to_owned(),
        backend: "gloo".to_owned(),
        threads,
        ranks,
        variables: variables(),
    }))
}

fn key(rank: u32) -> String {
    format!("hardware/{rank}")
}

fn variables() -> BTreeMap<String, String> {
    let told = |name: &str| VARIABLES.iter().any(|prefix| name.starts_with(prefix)) && !looks_secret(name);
    std::env::vars().filter(|(name, _)| told(name)).collect()
}

/// What /proc and the scheduler say about this node; unknown fields stay empty.
fn hardware() -> Hardware {
    let field = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024);
    let kernel = nix::sys::utsname::uname().map(|u| u.release().to_string_lossy().into_owned());
    Hardware {
        host: nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned()).unwrap_or_default(),
        cpu: field("/proc/cpuinfo", "model name").unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        memory_bytes: memory,
        kernel: kernel.unwrap_or_default(),
    }
}
