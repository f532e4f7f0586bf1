//! What is known of each setting for comparing rows: whether a rate depends on it, and what a reader calls it.

use std::collections::BTreeSet;

/// Settings that no rate depends on: account and queue, timeouts, limits of memory, seeds, the requested device. The node, processor and GPU
/// that they lead to are recorded by themselves.
pub const IRRELEVANT: [&str; 18] = [
    "checkpoint.on_signal",
    "launch.backend",
    "launch.device",
    "launch.hang_timeout_s",
    "launch.heartbeat_timeout_s",
    "launch.rendezvous_timeout_s",
    "loader.seed",
    "measure.interleave",
    "measure.sample_every_s",
    "model.seed",
    "pipeline.gene_masks_mib",
    "slurm.account",
    "slurm.constraint",
    "slurm.partition",
    "slurm.profile",
    "slurm.qos",
    "slurm.requeues",
    "train.start_from",
];

/// Settings that make up the class of a row: a ratio across classes is no effect of the method.
pub const CLASS: [(&str, &str); 19] = [
    ("launch.ranks", "world size"),
    ("data.samples", "number of samples"),
    ("data.scale", "scale of the graph"),
    ("data.networks", "set of network edges"),
    ("data.files", "number of files"),
    ("data.genes", "number of genes"),
    ("array.files", "own files"),
    ("array.genes", "choice of genes"),
    ("select.samples", "choice of samples"),
    ("select.subset", "size of the subset"),
    ("select.split", "split"),
    ("pipeline.edge_types", "set of edge types"),
    ("pipeline.merge_edge_types", "merged edge types"),
    ("pipeline.metabolism", "graph (metabolism)"),
    ("measure.cold_cache", "cold page cache"),
    ("pipeline.mask_fraction", "share of removed edges that are masked"),
    ("device", "device"),
    ("gpu", "GPU"),
    // Without a GPU the processor is the device.
    ("cpu", "processor"),
];

/// Name of a setting that is part of the class of a row; `None` for other settings.
pub fn class_name(key: &str) -> Option<&'static str> {
    CLASS.iter().find(|(known, _)| *known == key).map(|(_, name)| *name)
}

/// Whether a rate may depend on the setting.
pub fn is_relevant(key: &str) -> bool {
    !IRRELEVANT.contains(&key)
}

/// The settings that readers ask for first, with their names; the others follow in alphabetical order.
pub const FIRST: [(&str, &str); 14] = [
    ("launch.ranks", "ranks"),
    ("loader.batch_size", "batch_size"),
    ("data.samples", "samples"),
    ("data.scale", "scale"),
    ("data.networks", "networks"),
    ("pipeline.edge_types", "edge_types"),
    ("device", "device"),
    ("loader.workers", "workers"),
    ("loader.pin_memory", "pin_memory"),
    ("cpus_per_rank", "CPUs per rank"),
    ("cpus", "CPUs of the job"),
    ("allocator", "allocator"),
    ("model", "model"),
    ("loader.prefetch_factor", "prefetch_factor"),
];

/// Name of a setting.
pub fn setting_name(key: &str) -> &str {
    FIRST.iter().find(|(known, _)| *known == key).map_or(key, |(_, name)| name)
}

/// Keys in the order of [`FIRST`], then alphabetically.
pub fn in_order<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let keys: BTreeSet<&str> = keys.collect();
    let first = FIRST.iter().filter_map(|(key, _)| keys.get(key).copied());
    let rest = keys.iter().copied().filter(|key| FIRST.iter().all(|(known, _)| known != key));
    first.chain(rest).collect()
}
