//! Settings of the variants, the data that they read, and how they shuffle it.

use std::collections::{BTreeMap, BTreeSet};

use expctl_ledger::{DataRead, MeasuredJob, Run, ShuffleQuality};
use expctl_settings::{Data, Draw, KeyDefault, SampleSet, Sampler, Section, Select, Split, Train, find};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};

use super::MAX_ROWS;
use crate::ledger::{all_keys, draw_of, flatten_in_job, says_something, setting_text, shown_setting};

/// A variant with its settings by key.
pub type VariantSettings = (String, BTreeMap<String, String>);

/// Settings by key for each variant, in order, without those that say nothing of it.
pub fn variant_settings(job: &MeasuredJob) -> Vec<VariantSettings> {
    let groups = job.by_label();
    let settings = flatten_in_job(job, groups.iter().map(|(_, runs)| &runs[0].trial.settings));
    let said = |((label, _), settings): ((String, Vec<&Run>), BTreeMap<String, String>)| {
        let draw = draw_of(&settings);
        (label, settings.into_iter().filter(|(key, _)| says_something(key, draw)).collect())
    };
    groups.into_iter().zip(settings).map(said).collect()
}

/// Settings that all variants share and that are not the defaults (and `train.mode`), a line per section of the config; of the user's own
/// files without the data set that they replace.
pub fn common_settings(job: &MeasuredJob, variants: &[VariantSettings]) -> String {
    let Some((_, first)) = variants.first() else { return MISSING.to_owned() };
    let reads_own = job.runs.iter().all(|run| !run.trial.settings.array.files.is_empty());
    let is_default = |key: &str, value: &str| {
        let default = find(key).map(|spec| spec.default);
        matches!(default, Some(KeyDefault::Value(default)) if setting_text(&default()) == value)
    };
    // What a step does is never left to the reader's memory.
    let is_shown = |key: &str, value: &str| key == Train::MODE.name() || !is_default(key, value);
    let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, value) in first {
        if variants.iter().all(|(_, settings)| settings.get(key) == Some(value))
            && is_shown(key, value)
            && let Some((section, name)) = key.split_once('.')
            && !(reads_own && section == Data::NAME)
        {
            let value = if value.is_empty() { "\"\"" } else { value };
            sections.entry(section).or_default().push(format!("{name} = {value}"));
        }
    }
    if sections.is_empty() {
        return "none".to_owned();
    }
    let lines: Vec<String> = sections.into_iter().map(|(s, all)| format!("- {s}: {}", all.join(", "))).collect();
    lines.join("\n")
}

/// Settings that differ between variants, a row each and a column for each variant; of very many variants a row for each of those. `None` if
/// none does.
pub fn variant_differences(variants: &[VariantSettings]) -> Option<Table> {
    let keys = all_keys(variants.iter().map(|(_, settings)| settings));
    if variants.len() > MAX_ROWS {
        return by_row(variants, keys);
    }
    let mut table = Table::new(std::iter::once("Setting".to_owned()).chain(variants.iter().map(|(l, _)| l.clone())));
    let mut any = false;
    for key in keys {
        let values = variants.iter().map(|(_, s)| s.get(key).map_or(MISSING, |text| shown_setting(text)));
        let values: Vec<&str> = values.collect();
        if values.iter().any(|v| *v != values[0]) {
            any = true;
            table.row(std::iter::once(key).chain(values));
        }
    }
    any.then_some(table)
}

/// The settings that differ as columns, with a row for each variant.
fn by_row(variants: &[VariantSettings], keys: BTreeSet<&str>) -> Option<Table> {
    let (_, first) = variants.first()?;
    let differs = |key: &&str| {
        let of_first = first.get(*key);
        variants.iter().any(|(_, settings)| settings.get(*key) != of_first)
    };
    let differing: Vec<&str> = keys.into_iter().filter(differs).collect();
    let mut table = Table::new(std::iter::once("Variant").chain(differing.iter().copied()));
    for (label, settings) in variants {
        let values = differing.iter().map(|key| settings.get(*key).map_or(MISSING, |text| shown_setting(text)));
        table.row(std::iter::once(label.as_str()).chain(values));
    }
    (!differing.is_empty()).then_some(table)
}

/// The data that the variants read, a line for those with the same samples of the same store; `–` if not known. With a cold page cache also
/// how much stayed in it.
pub fn data_read(job: &MeasuredJob) -> Vec<String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (label, runs) in job.by_label() {
        let read = runs.iter().find_map(|run| Some((run.data()?, &run.trial.settings.select)));
        let mut said = read.map_or_else(|| MISSING.to_owned(), |(read, select)| data_words(read, select));
        if runs.iter().any(|run| run.trial.settings.measure.cold_cache) {
            said.push_str(&cold(&runs));
        }
        match found.iter_mut().find(|(other, _)| *other == said) {
            Some((_, labels)) => labels.push(label),
            None => found.push((said, vec![label])),
        }
    }
    found.into_iter().map(|(said, labels)| format!("{}: {said}", format::listed(&labels))).collect()
}

/// `200 of 1,000 samples (select: split = val, seed = 42) of the store ids, 1.2 MB on disk (4.2 MB long); base store 12 MB on
/// disk (16 MB long)`; of an array `200,000 rows of 20,000 genes, h5ad in 8 files, 1.9 GB on disk (1.9 GB long)`.
fn data_words(read: &DataRead, select: &Select) -> String {
    let size = |size: &expctl_ledger::FileSize| {
        let [on_disk, long] = [size.allocated_bytes, size.apparent_bytes].map(|n| format::bytes(n as f64));
        format!("{on_disk} on disk ({long} long)")
    };
    if let Some(array) = &read.array {
        let [rows, genes] = [read.records, array.genes].map(format::thousands);
        let files = format::count(array.files, "file");
        let whole = format!("{rows} rows of {genes} genes, {} in {files}, {}", array.format.name(), size(&read.size));
        return match array.resident_bytes {
            Some(bytes) => format!("{whole}; in the memory of each rank {}", format::bytes(bytes as f64)),
            None => whole,
        };
    }
    let Some(store) = read.store else {
        return format!("{} samples, {}, as the program says", format::thousands(read.records), size(&read.size));
    };
    let [selected, records] = [read.selected, read.records].map(format::thousands);
    let (chosen, name) = (chosen(select), store.name());
    let store = format!("{selected} of {records} samples{chosen} of the store {name}, {}", size(&read.size));
    match read.base_size.as_ref().filter(|base| **base != read.size) {
        Some(base) => format!("{store}; base store {}", size(base)),
        None => store,
    }
}

/// `; page cache cold: dropped before the first step, at most 0.3 % of the bytes stayed in it`. The largest share of all
/// runs counts.
fn cold(runs: &[&Run]) -> String {
    let shares: Vec<f64> = runs.iter().filter_map(|run| run.dropped()?.cached_share()).collect();
    let stayed = match shares.iter().copied().reduce(f64::max) {
        Some(share) => format!("at most {} of the bytes stayed in it", format::percent(share)),
        None => "how much of it stayed is not known".to_owned(),
    };
    format!("; page cache cold: dropped before the first step, {stayed}")
}

/// Selection of samples; empty if all were taken.
fn chosen(select: &Select) -> String {
    let mut parts = Vec::new();
    if select.samples != SampleSet::All {
        parts.push(format!("samples = {}", select.samples.name()));
    }
    if select.subset > 0 {
        parts.push(format!("subset = {}", format::thousands(select.subset)));
    }
    if select.split != Split::All {
        parts.push(format!("split = {}", select.split.name()));
    }
    if select.subset > 0 || select.split != Split::All {
        parts.push(format!("seed = {}", select.seed));
    }
    if parts.is_empty() { String::new() } else { format!(" (select: {})", parts.join(", ")) }
}

/// Shuffle quality of each variant that draws rows of an array. `None` without such a variant.
pub fn shuffle(job: &MeasuredJob) -> Option<Table> {
    let mut table = Table::new([
        "Variant",
        "Draw",
        "Label entropy of a batch (bits)",
        "Label mix (% of ideal)",
        "Correlation of consecutive rows",
        "Shuffle distance (% of ideal)",
        "Repeated rows",
        "Rows looked at",
    ])
    .right(2..8);
    let mut any = false;
    for (label, runs) in job.by_label() {
        let Some(sampler) = runs.first().map(|run| &run.trial.settings).filter(|s| s.reads_array()).map(|s| &s.sampler)
        else {
            continue;
        };
        any = true;
        let found = runs.iter().find_map(|run| run.shuffle.as_ref());
        let mut cells = vec![label, sampler_words(sampler)];
        cells.extend(found.map_or_else(|| std::array::from_fn(|_| MISSING.to_owned()), shuffle_figures));
        table.row(cells);
    }
    any.then_some(table)
}

/// `weighted by weight`, `chunked 512 × 32`.
fn sampler_words(sampler: &Sampler) -> String {
    let draw = sampler.draw.name();
    match sampler.draw {
        Draw::Weighted | Draw::Balanced => format!("{draw} by {}", sampler.by),
        Draw::Chunked => {
            format!("{draw} {} × {}", format::thousands(sampler.chunk_rows), format::thousands(sampler.chunks))
        }
        Draw::Sequential | Draw::Uniform => draw.to_owned(),
    }
}

fn shuffle_figures(quality: &ShuffleQuality) -> [String; 6] {
    let missing = || MISSING.to_owned();
    let labels = quality.labels.as_ref();
    let share = |part: f64, whole: f64| if whole > 0.0 { format::percent(part / whole) } else { missing() };
    [
        labels.map_or_else(missing, |l| format!("{:.3} ({})", l.entropy, l.column)),
        labels.map_or_else(missing, |l| share(l.entropy, l.ideal_entropy)),
        quality.neighbour_correlation.map_or_else(missing, |r| format!("{r:.3}")),
        share(quality.mean_distance, quality.expected_distance),
        share(quality.duplicates as f64, quality.metered_rows as f64),
        format!("{} of {}", format::thousands(quality.metered_rows), format::thousands(quality.epoch_rows)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::LabelMixing;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let labels = LabelMixing { column: "cell_type".to_owned(), classes: 3, entropy: 1.2, ideal_entropy: 1.5 };
        let quality = ShuffleQuality {
            epoch_rows: 20_000,
            metered_rows: 12_800,
            metered_batches: 100,
            duplicates: 128,
            neighbour_correlation: Some(0.0123),
            mean_distance: 0.3,
            expected_distance: 0.4,
            labels: Some(labels),
        };
        let expected = ["1.200 (cell_type)", "80.0 %", "0.012", "75.0 %", "1.0 %", "12,800 of 20,000"];
        assert_eq!(shuffle_figures(&quality), expected);
        let blank = ShuffleQuality {
            metered_rows: 0,
            duplicates: 0,
            neighbour_correlation: None,
            expected_distance: 0.0,
            labels: None,
            ..quality
        };
        assert_eq!(shuffle_figures(&blank), [MISSING, MISSING, MISSING, MISSING, MISSING, "0 of 20,000"]);
        let chunked = Sampler { draw: Draw::Chunked, chunks: 1024, ..Sampler::default() };
        assert_eq!(sampler_words(&chunked), "chunked 512 × 1,024");
    }
}
