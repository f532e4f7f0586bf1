use expctl_record::{DataRead, MeasuredJob, Run, SampleSet, Select, Split};

use crate::report::format;

/// What the variants read, a line for those that read the same samples of the same store; `–` for those of which it is not
/// known. With a cold page cache it says how much was dropped from it.
pub fn data_read(job: &MeasuredJob) -> Vec<String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (label, runs) in job.by_label() {
        let read = runs.iter().find_map(|run| Some((run.data()?, &run.trial.settings.select)));
        let mut said = read.map_or_else(|| format::MISSING.to_owned(), |(read, select)| words(read, select));
        if runs.iter().any(|run| run.trial.settings.measure.cold_cache) {
            said.push_str(&cold(&runs));
        }
        match found.iter_mut().find(|(other, _)| *other == said) {
            Some((_, labels)) => labels.push(label),
            None => found.push((said, vec![label])),
        }
    }
    found.into_iter().map(|(said, labels)| format!("{}: {said}", labels.join(", "))).collect()
}

/// `200 of 1,000 samples (select: split = val, seed = 42) of the store ids, 1.2 MB on disk (4.2 MB long); base store 12 MB on
/// disk (16 MB long)`; of an array `200,000 rows of 20,000 genes, h5ad in 8 files, 1.9 GB on disk (1.9 GB long)`.
fn words(read: &DataRead, select: &Select) -> String {
    let size = |size: &expctl_record::FileSize| {
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

/// `; page cache cold: dropped before the first step, at most 0.3 % of the bytes stayed in it`. Of runs that differ the one of which most
/// stayed is said.
fn cold(runs: &[&Run]) -> String {
    let shares: Vec<f64> = runs.iter().filter_map(|run| run.dropped()?.cached_share()).collect();
    let stayed = match shares.iter().copied().reduce(f64::max) {
        Some(share) => format!("at most {} of the bytes stayed in it", format::percent(share)),
        None => "how much of it stayed is not known".to_owned(),
    };
    format!("; page cache cold: dropped before the first step, {stayed}")
}

/// What chose the samples; nothing where all were taken.
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
