use expctl_record::DataRead;

use crate::ledger::MeasuredJob;
use crate::report::format;

/// What the variants read, a line for those that read the same; `–` for those of which it is not known.
pub fn data_read(job: &MeasuredJob) -> Vec<String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (label, runs) in job.by_label() {
        let read = runs.iter().find_map(|run| run.data.as_ref());
        let said = read.map_or_else(|| format::MISSING.to_owned(), words);
        match found.iter_mut().find(|(other, _)| *other == said) {
            Some((_, labels)) => labels.push(label),
            None => found.push((said, vec![label])),
        }
    }
    found.into_iter().map(|(said, labels)| format!("{}: {said}", labels.join(", "))).collect()
}

/// `200 of 1,000 samples of the store ids, 1.2 MB on disk (4.2 MB long); base store 12 MB on disk (16 MB long)`.
fn words(read: &DataRead) -> String {
    let size = |size: &expctl_record::FileSize| {
        let [on_disk, long] = [size.allocated_bytes, size.apparent_bytes].map(|n| format::bytes(n as f64));
        format!("{on_disk} on disk ({long} long)")
    };
    let [selected, records] = [read.selected, read.records].map(format::thousands);
    let store = format!("{selected} of {records} samples of the store {}, {}", read.store.name(), size(&read.size));
    match read.base_size.as_ref().filter(|base| **base != read.size) {
        Some(base) => format!("{store}; base store {}", size(base)),
        None => store,
    }
}
