//! Settings in which rows differ, and the comparability classes of rows. What is known of each setting for that stands here: whether a rate
//! depends on it, and what a reader calls it.

use std::collections::{BTreeMap, BTreeSet};

use expctl_settings::Draw;
use expctl_text::format;
use serde::Serialize;

use super::variant_row::VariantRow;
use crate::ledger::{all_keys, draw_of, says_something, shown_setting};

/// Settings that no rate depends on: account and queue, timeouts, limits of memory, seeds, the requested device. The node, processor and GPU
/// that they lead to are recorded by themselves.
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

/// Settings that make up the class of a row: a ratio across classes is no effect of the method.
const CLASS: [(&str, &str); 20] = [
    ("launch.ranks", "world size"),
    ("slurm.pack", "trials side by side"),
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

/// The known ones of these settings that make up the class of a row.
pub fn class_settings(settings: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    CLASS.iter().filter_map(|(key, _)| Some((*key, settings.get(*key)?.clone()))).collect()
}

/// Whether a rate may depend on the setting.
pub fn is_relevant(key: &str) -> bool {
    !IRRELEVANT.contains(&key)
}

/// The settings that readers ask for first, with their names; the others follow in alphabetical order.
const FIRST: [(&str, &str); 14] = [
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

/// Keys in the order of `FIRST`, then alphabetically.
pub fn in_order<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let keys: BTreeSet<&str> = keys.collect();
    let first = FIRST.iter().filter_map(|(key, _)| keys.get(key).copied());
    let rest = keys.iter().copied().filter(|key| FIRST.iter().all(|(known, _)| known != key));
    first.chain(rest).collect()
}

/// Number of rows up to which a list has one value for each.
const MANY_ROWS: usize = 8;

/// A setting that is not the same in all rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The setting, as a reader calls it.
    pub setting: String,
    /// Its value in each row, in order; `?` if not known.
    pub values: Vec<String>,
}

impl Difference {
    /// `workers 4/6/12`, or for many rows each value once: `workers 4 (9 rows), 6, 12 (2 rows)`.
    pub fn words(&self) -> String {
        if self.values.len() > MANY_ROWS {
            let mut rows: Vec<(&str, usize)> = Vec::new();
            let mut index_by_value: BTreeMap<&str, usize> = BTreeMap::new();
            for value in self.values.iter().map(|value| shown_setting(value)) {
                let index = *index_by_value.entry(value).or_insert_with(|| {
                    rows.push((value, 0));
                    rows.len() - 1
                });
                rows[index].1 += 1;
            }
            let one = |(value, n): &(&str, usize)| match n {
                1 => (*value).to_owned(),
                n => format!("{value} ({n} rows)"),
            };
            return format!("{} {}", self.setting, format::listed(&rows.iter().map(one).collect::<Vec<_>>()));
        }
        let separator = if self.values.iter().any(|v| v.contains([' ', '/'])) { " / " } else { "/" };
        let values: Vec<&str> = self.values.iter().map(|value| shown_setting(value)).collect();
        format!("{} {}", self.setting, values.join(separator))
    }
}

/// Settings in which rows differ besides the method, without those that no rate depends on. A setting that is known for one row only is no
/// difference.
pub fn differences(rows: &[&VariantRow]) -> Vec<Difference> {
    let draws: Vec<Option<Draw>> = rows.iter().map(|row| draw_of(&row.settings)).collect();
    let difference = |key: &&str| {
        let values = rows.iter().zip(&draws);
        let found: Vec<Option<&str>> = values
            .map(|(row, draw)| row.settings.get(*key).filter(|_| says_something(key, *draw)).map(String::as_str))
            .collect();
        let mut values = found.iter().flatten();
        let first = values.next()?;
        values.any(|value| value != first).then(|| Difference {
            setting: setting_name(key).to_owned(),
            values: found.iter().map(|value| value.unwrap_or("?").to_owned()).collect(),
        })
    };
    let mut keys = in_order(all_keys(rows.iter().map(|row| &*row.settings)).into_iter());
    keys.retain(|key| is_relevant(key));
    // A job may have thousands of rows.
    parallel_map::map(&keys, difference).into_iter().flatten().collect()
}

/// Words in front of a list of differences: `also differ in`, because the method differs too, or `differ in` if all rows have the same
/// processor, so that the differences are the subject of the comparison.
pub fn rows_differ_in(rows: &[&VariantRow]) -> &'static str {
    if rows.windows(2).all(|two| two[0].same_processor(two[1])) { "differ in" } else { "also differ in" }
}

/// Settings, of those that readers ask for first, that are known for some rows only.
pub fn known_for_some(rows: &[&VariantRow]) -> Vec<String> {
    let known = |key: &str| rows.iter().filter(|r| r.settings.contains_key(key)).count();
    let some = |key: &str| (1..rows.len()).contains(&known(key));
    FIRST.iter().filter(|(key, _)| some(key)).map(|(_, name)| (*name).to_owned()).collect()
}

/// A setting in which a row differs from the base of its ratio.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confound {
    /// The setting, as a reader calls it.
    pub setting: String,
    /// Its value in the base.
    pub base: String,
    /// Its value in the row.
    pub row: String,
}

impl Confound {
    /// `workers 4 → 6`.
    pub fn confound_words(&self) -> String {
        format!("{} {} → {}", self.setting, shown_setting(&self.base), shown_setting(&self.row))
    }
}

/// Several of them: `workers 4 → 6, pin_memory true → false`.
pub fn confound_words(confounds: &[Confound]) -> String {
    confounds.iter().map(Confound::confound_words).collect::<Vec<_>>().join(", ")
}

/// Settings in which a row differs from the base of its ratio: those of its class, across which the ratio goes, and the others.
pub fn confounds(row: &VariantRow, base: &VariantRow) -> (Vec<Confound>, Vec<Confound>) {
    let draws = [draw_of(&row.settings), draw_of(&base.settings)];
    let differs = |key: &str| {
        let (of_row, of_base) = (row.settings.get(key)?, base.settings.get(key)?);
        let found = of_row != of_base && draws.iter().all(|draw| says_something(key, *draw));
        found.then(|| (of_base.clone(), of_row.clone()))
    };
    let found = |key: &str, name: &str| {
        let (base, row) = differs(key)?;
        Some(Confound { setting: name.to_owned(), base, row })
    };
    let crossed = CLASS.iter().filter_map(|(key, name)| found(key, name)).collect();
    let unlike =
        row.settings.iter().filter(|(key, value)| base.settings.get(*key).is_some_and(|other| other != *value));
    let others = in_order(unlike.map(|(key, _)| key.as_str()))
        .into_iter()
        .filter(|key| is_relevant(key) && CLASS.iter().all(|(class, _)| class != key))
        .filter_map(|key| found(key, setting_name(key)))
        .collect();
    (crossed, others)
}

/// Settings by which tables are split, with their names in headings. Rows of different data sets are never in one table.
const SPLIT: [(&str, &str); 16] = [
    ("launch.ranks", "ranks"),
    ("slurm.pack", "trials side by side"),
    ("data.samples", "samples"),
    ("data.scale", "scale"),
    ("data.networks", "networks"),
    ("data.files", "files"),
    ("data.genes", "genes of the data set"),
    ("array.files", "own files"),
    ("array.genes", "genes of a batch"),
    ("select.samples", "samples taken"),
    ("select.subset", "subset"),
    ("select.split", "split"),
    ("measure.cold_cache", "cold page cache"),
    ("device", "device"),
    ("gpu", "GPU"),
    ("cpu", "processor"),
];

/// Whether a setting selects all samples.
fn is_all(key: &str, value: &str) -> bool {
    matches!((key, value), ("select.samples" | "select.split", "all") | ("select.subset", "0"))
}

/// Settings that all rows of a class share, as far as they are known.
type SharedSettings = BTreeMap<&'static str, String>;

/// Rows with the same world size, data and device.
pub struct ComparabilityClass {
    /// Settings that they share.
    shared: SharedSettings,
    /// Indices among all rows, in order.
    pub rows: Vec<usize>,
}

impl ComparabilityClass {
    /// Settings that distinguish this class from `others`: `ranks 1, samples 10000`; empty for the only class.
    pub fn name(&self, others: &[Self]) -> String {
        let apart = |key: &str| others.iter().any(|other| other.shared.get(key) != self.shared.get(key));
        let said = SPLIT.iter().filter(|(key, _)| apart(key));
        let said = said.filter_map(|(key, name)| {
            // A cold page cache and a part of the samples are named, a warm one and all of them are not.
            let value =
                self.shared.get(key).filter(|value| !matches!(value.as_str(), "" | "false") && !is_all(key, value))?;
            Some(format!("{name} {value}"))
        });
        said.collect::<Vec<_>>().join(", ")
    }
}

/// Split the rows of several jobs by class, the class of the job `first` in front.
///
/// A setting that a job varies, by a sweep or between its variants, does not split that job, but ratios across it are marked.
pub fn comparability_classes(rows: &[(usize, &VariantRow)], first: usize) -> Vec<ComparabilityClass> {
    let mut jobs: Vec<usize> = Vec::new();
    for job in std::iter::once(first).chain(rows.iter().map(|(job, _)| *job)) {
        if !jobs.contains(&job) && rows.iter().any(|(of, _)| *of == job) {
            jobs.push(job);
        }
    }
    let mut found: Vec<ComparabilityClass> = Vec::new();
    for job in jobs {
        let mine: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].0 == job).collect();
        let shared = shared(&mine.iter().map(|i| rows[*i].1).collect::<Vec<_>>());
        let agrees = |class: &&mut ComparabilityClass| {
            SPLIT.iter().all(|(key, _)| class.shared.get(key).zip(shared.get(key)).is_none_or(|(a, b)| a == b))
        };
        match found.iter_mut().find(agrees) {
            Some(class) => class.rows.extend(mine),
            None => found.push(ComparabilityClass { shared, rows: mine }),
        }
    }
    found.iter_mut().for_each(|class| class.rows.sort_unstable());
    found
}

fn shared(rows: &[&VariantRow]) -> SharedSettings {
    let value = |key: &str| {
        let first = rows.first()?.settings.get(key)?;
        let same = rows.iter().all(|row| row.settings.get(key) == Some(first) && !row.point.contains_key(key));
        same.then(|| first.clone())
    };
    SPLIT.iter().filter_map(|(key, _)| Some((*key, value(key)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_setting_is_none() {
        let setting = "sampler.by".to_owned();
        let values = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let three = Difference { setting: setting.clone(), values: values(&["", "", "cell_type"]) };
        assert_eq!(three.words(), "sampler.by none/none/cell_type");
        let many = Difference { setting, values: values(&["", "", "", "", "", "", "", "", "cell_type"]) };
        assert_eq!(many.words(), "sampler.by none (8 rows), cell_type");
    }

    #[test]
    fn classes_of_all_samples_are_not_named_by_that() {
        let class = |subset: &str, split: &str| ComparabilityClass {
            shared: [
                ("select.subset", subset),
                ("select.split", split),
                ("select.samples", "all"),
                ("launch.ranks", "1"),
            ]
            .map(|(key, value)| (key, value.to_owned()))
            .into(),
            rows: Vec::new(),
        };
        let classes = [class("0", "all"), class("200", "val")];
        assert_eq!(classes[1].name(&classes), "subset 200, split val");
        assert_eq!(classes[0].name(&classes), "");
    }
}
