use std::collections::BTreeMap;

use serde_json::Value as Json;

/// Settings that say how a trial is described, found or waited for, not what it runs. They are not part of its id: a
/// better title, more checkpoints, another partition or one more repeat leaves the trials what they are.
const NOT_RUN: [&str; 18] = [
    "measure.repeats",
    "measure.interleave",
    "launch.rendezvous_timeout_s",
    "launch.heartbeat_timeout_s",
    "launch.hang_timeout_s",
    "slurm.profile",
    "slurm.partition",
    "slurm.account",
    "slurm.qos",
    "slurm.constraint",
    "slurm.exclusive",
    "slurm.gpus_per_rank",
    "slurm.gpu_type",
    "slurm.image",
    "slurm.memory_mib",
    "slurm.time_min",
    "slurm.throttle",
    "slurm.requeues",
];

/// `<variant>-r<repeat>-<hash>`: 8 hex digits of BLAKE3 over the canonical JSON (keys sorted, no spaces) of the
/// variant's name, the point of the sweep and the settings that change what is run.
///
/// It is the same in every job, on every machine and for every order of keys, and safe as a folder name.
pub fn trial_id(
    variant: &str,
    repeat: u32,
    point: &BTreeMap<String, Json>,
    settings: &BTreeMap<&'static str, &Json>,
) -> String {
    let run: BTreeMap<&str, &Json> =
        settings.iter().filter(|(key, value)| is_run(key, value)).map(|(key, value)| (*key, *value)).collect();
    let mut hasher = blake3::Hasher::new();
    // Maps of texts to plain values, which always can be written.
    let canonical = serde_json::to_vec(&(variant, point, run)).unwrap_or_default();
    hasher.update(&canonical);
    let hash = hasher.finalize().to_hex();
    format!("{variant}-r{repeat}-{}", &hash[..8])
}

/// Whether a setting changes what is run. One node is what trials had before there was a key for more: it leaves their ids
/// what they were.
fn is_run(key: &str, value: &Json) -> bool {
    let one_node = key == "launch.nodes" && *value == 1;
    !key.starts_with("experiment.") && !key.starts_with("checkpoint.") && !NOT_RUN.contains(&key) && !one_node
}
