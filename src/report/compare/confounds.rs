use serde::Serialize;

use super::Row;
use super::differences::setting_name;

/// Settings that no rate depends on: who pays, where a job queues, how long it waits for others, how much memory it may take before it is
/// refused, where the order of samples and the first weights come from, what device is asked for.
///
/// What such a setting may bring with it (another node, another processor, a GPU) is recorded by itself.
const IRRELEVANT: [&str; 18] = [
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

/// Settings across which a ratio is no effect of the method: together they are the class of a row.
const CLASS: [(&str, &str); 19] = [
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
    // Where no device is named, the processor is it.
    ("cpu", "processor"),
];

/// What a reader calls a setting of the class of a row; none for any other setting.
pub fn class_name(key: &str) -> Option<&'static str> {
    CLASS.iter().find(|(known, _)| *known == key).map(|(_, name)| *name)
}

/// True for a setting that may explain a difference.
pub(super) fn is_relevant(key: &str) -> bool {
    !IRRELEVANT.contains(&key)
}

/// A setting in which a row differs from the one that its ratio refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confound {
    /// The setting, as a reader calls it.
    pub setting: String,
    /// Its value in the row that the ratio refers to.
    pub base: String,
    /// Its value in the row.
    pub row: String,
}

impl Confound {
    /// `workers 4 → 6`.
    pub fn words(&self) -> String {
        let shown = |value: &str| if value.is_empty() { "none".to_owned() } else { value.to_owned() };
        format!("{} {} → {}", self.setting, shown(&self.base), shown(&self.row))
    }
}

/// Several of them: `workers 4 → 6, pin_memory true → false`.
pub fn words(confounds: &[Confound]) -> String {
    confounds.iter().map(Confound::words).collect::<Vec<_>>().join(", ")
}

/// What differs besides the method between a row and the one that its ratio refers to; in two parts, because the first makes the
/// ratio one across classes.
pub(super) fn confounds(row: &Row, base: &Row) -> (Vec<Confound>, Vec<Confound>) {
    let differs = |key: &str| {
        let (of_row, of_base) = (row.settings.get(key)?, base.settings.get(key)?);
        (of_row != of_base).then(|| (of_base.clone(), of_row.clone()))
    };
    let found = |key: &str, name: &str| {
        let (base, row) = differs(key)?;
        Some(Confound { setting: name.to_owned(), base, row })
    };
    let crossed = CLASS.iter().filter_map(|(key, name)| found(key, name)).collect();
    let others = super::differences::in_order(row.settings.keys().map(String::as_str))
        .into_iter()
        .filter(|key| is_relevant(key) && CLASS.iter().all(|(class, _)| class != key))
        .filter_map(|key| found(key, setting_name(key)))
        .collect();
    (crossed, others)
}
