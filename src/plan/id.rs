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

/// Settings that are younger than the first ids, each with what trials had before there was a key for it: that leaves
/// their ids what they were.
const LATER: [(&str, &str); 90] = [
    ("launch.nodes", "1"),
    ("select.samples", "\"all\""),
    ("select.subset", "0"),
    ("select.split", "\"all\""),
    ("select.seed", "42"),
    ("pipeline.store", "\"json\""),
    ("pipeline.hops", "1"),
    ("pipeline.walk", "\"per_type\""),
    ("pipeline.metabolism", "false"),
    ("pipeline.collation", "\"pyg\""),
    ("pipeline.follow_batch", "[\"x\",\"x_pert\",\"perturbation_indices\"]"),
    ("pipeline.device_masks", "\"none\""),
    ("pipeline.merge_edge_types", "[]"),
    ("pipeline.mask_source", "\"incidence\""),
    ("pipeline.gene_masks_mib", "0"),
    ("pipeline.mask_fraction", "1.0"),
    ("pipeline.mask_seed", "42"),
    ("loader.buffer_mib", "0"),
    ("data.labels", "\"random\""),
    ("model.implementation", "\"replicated\""),
    ("model.aggregation", "\"pairwise_interaction\""),
    ("model.aggregation_norm", "true"),
    ("model.convolution_layers", "4"),
    ("model.norm", "\"graph\""),
    ("model.preprocessor_norm", "\"graph\""),
    ("model.local_head", "\"full\""),
    ("model.attention_layers", "2"),
    ("model.path", "\"\""),
    ("model.inputs", "[\"genes\",\"gene_sample\",\"batch_size\"]"),
    ("train.loss", "\"log_cosh\""),
    ("train.standardise_labels", "false"),
    ("train.sinkhorn_weight", "0.1"),
    ("train.sinkhorn_buffer", "224"),
    ("train.sinkhorn_gather", "\"off\""),
    ("train.precision", "\"float32\""),
    ("train.accumulation", "[]"),
    ("train.schedule", "\"constant\""),
    ("train.schedule_epochs", "300"),
    ("train.schedule_stretch", "1.0"),
    ("train.schedule_warmup", "0"),
    ("train.schedule_min", "0.0"),
    ("train.schedule_factor", "0.5"),
    ("train.schedule_patience", "10"),
    ("train.epochs", "0"),
    ("train.validate_every", "1"),
    ("train.monitor", "\"loss\""),
    ("train.patience", "0"),
    ("train.start_from", "\"\""),
    ("measure.epochs", "0"),
    ("measure.sample_every_s", "1.0"),
    ("measure.cold_cache", "false"),
    ("data.files", "1"),
    ("data.genes", "0"),
    ("model.tokens", "2200"),
    ("array.format", "\"none\""),
    ("array.files", "[]"),
    ("array.file_count", "0"),
    ("array.memory", "false"),
    ("array.layer", "\"\""),
    ("array.join", "\"inner\""),
    ("array.genes", "[]"),
    ("array.output", "\"dense\""),
    ("array.fetch", "\"batch\""),
    ("array.normalize", "0.0"),
    ("array.log1p", "false"),
    ("array.labels", "[]"),
    ("array.cache_mib", "0"),
    ("array.cache_dir", "\"\""),
    ("array.requests", "32"),
    ("sampler.draw", "\"uniform\""),
    ("sampler.preset", "\"none\""),
    ("sampler.chunk_rows", "512"),
    ("sampler.chunks", "32"),
    ("sampler.by", "\"\""),
    ("sampler.rows", "0"),
    ("worker.command", "[]"),
    ("worker.starts_ranks", "false"),
    ("profile.wait", "0"),
    ("profile.warmup", "1"),
    ("profile.active", "0"),
    ("profile.repeat", "1"),
    ("profile.ranks", "[]"),
    ("profile.record_shapes", "false"),
    ("profile.memory", "false"),
    ("profile.stack", "false"),
    ("profile.operations", "false"),
    ("trace.at_step", "0"),
    ("launch.device", "\"auto\""),
    ("launch.backend", "\"auto\""),
    ("train.gradient_compression", "\"none\""),
];

/// Whether a setting changes what is run.
fn is_run(key: &str, value: &Json) -> bool {
    let written = value.to_string();
    let as_before = LATER.contains(&(key, written.as_str()));
    !key.starts_with("experiment.") && !key.starts_with("checkpoint.") && !NOT_RUN.contains(&key) && !as_before
}
