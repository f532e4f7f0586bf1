//! What attempts ran with and on, as `env.json` has it: names and values for readers.

use std::collections::BTreeMap;

use expctl_ledger::{Environment, Hardware};
use expctl_text::format;

use super::differences::setting_name;

/// What is recorded of a job, in the order in which readers ask for it, with names. Settings and variables follow.
pub const FACTS: [(&str, &str); 26] = [
    ("commit", "commit"),
    ("changes", "uncommitted changes"),
    ("gpu_driver", "GPU driver"),
    ("cuda_driver", "CUDA of the driver"),
    ("cuda_runtime", "CUDA runtime"),
    ("nccl", "NCCL"),
    ("kernel", "kernel"),
    ("glibc", "glibc"),
    ("libtorch", "libtorch"),
    ("worker", "expctl-worker"),
    ("worker_build", "build of expctl-worker"),
    ("expctl", "expctl"),
    ("expctl_build", "build of expctl"),
    ("program", "program"),
    ("device", "device"),
    ("process_group", "process group"),
    ("gpu", "GPU"),
    ("node_gpus", "GPUs of a node"),
    ("gpu_links", "connections of GPUs"),
    ("cpu", "processor"),
    ("cpus_per_rank", "CPUs per rank"),
    ("cpu_limit", "limit of processor time"),
    ("memory", "memory of a node"),
    ("memory_limit", "limit of memory"),
    ("threads", "threads inside an operation"),
    ("node", "node"),
];

/// Variables that name one run and say nothing of how it runs.
const OF_ONE_RUN: [&str; 5] =
    ["SLURM_JOB_ID", "SLURM_ARRAY_", "SLURM_STEP_", "SLURM_JOB_NODELIST", "SLURM_RESTART_COUNT"];

/// First 12 digits of a hash or commit.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// What an attempt ran with beside what reports compare (`run_settings` of `crate::ledger`), by key, as far as it is known. The names of
/// variables of its environment are their keys.
pub fn recorded_facts(environment: &Environment) -> Vec<(String, String)> {
    let mut found: Vec<(&str, String)> = vec![("threads", environment.threads.to_string())];
    if let Some(cuda) = &environment.cuda {
        found.extend([
            ("cuda_driver", cuda.driver.clone()),
            ("cuda_runtime", cuda.runtime.clone()),
            ("nccl", cuda.nccl.clone()),
            ("gpu_links", cuda.topology.join(", ")),
        ]);
    }
    found.extend(environment.ranks.iter().flat_map(hardware));
    let of_runs = |name: &str| OF_ONE_RUN.iter().any(|prefix| name.starts_with(prefix));
    let variables = environment.variables.iter().filter(|(name, _)| !of_runs(name));
    let variables = variables.map(|(name, value)| (name.clone(), value.clone()));
    found
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .chain(variables)
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

fn hardware(rank: &Hardware) -> Vec<(&'static str, String)> {
    let mut gpus: BTreeMap<&str, usize> = BTreeMap::new();
    rank.gpus.iter().for_each(|gpu| *gpus.entry(&gpu.name).or_default() += 1);
    let gpus: Vec<String> = gpus.into_iter().map(|(name, n)| format!("{n} × {name}")).collect();
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| format::bytes(bytes as f64)).unwrap_or_default();
    let processors = rank.cpu_limit_milli.map(|milli| format!("{} CPUs", format::figure(milli as f64 / 1000.0)));
    vec![
        ("kernel", rank.kernel.clone()),
        ("glibc", rank.glibc.clone()),
        ("gpu_driver", rank.gpu_driver.clone()),
        ("node_gpus", gpus.join(", ")),
        ("memory", bytes(Some(rank.memory_bytes))),
        ("memory_limit", bytes(rank.memory_limit_bytes)),
        ("cpu_limit", processors.unwrap_or_default()),
    ]
}

/// Name of a fact for a reader.
pub fn fact_name(key: &str) -> &str {
    FACTS.iter().find(|(known, _)| *known == key).map_or_else(|| setting_name(key), |(_, name)| *name)
}
