use std::collections::BTreeMap;

use crate::ledger::flatten_in_job;
use crate::report::Table;
use crate::report::format::MISSING;
use expctl_record::MeasuredJob;

/// What settings are where nothing is asked for: of the device, which stands with where the job ran, and of what few configs ask for.
const NOT_ASKED_FOR: [(&str, &str); 7] = [
    ("launch.device", "auto"),
    ("launch.backend", "auto"),
    ("train.gradient_compression", "none"),
    ("pipeline.merge_edge_types", ""),
    ("pipeline.mask_source", "incidence"),
    ("pipeline.mask_fraction", "1.0"),
    ("profile.operations", "false"),
];

/// Settings by key for each variant, in order.
fn by_variant(job: &MeasuredJob) -> Vec<(String, BTreeMap<String, String>)> {
    job.by_label().into_iter().map(|(label, runs)| (label, flatten_in_job(job, &runs[0].trial.settings))).collect()
}

/// Settings that all variants share, a line per section of the config; without those that ask for nothing.
pub fn common(job: &MeasuredJob) -> String {
    let variants = by_variant(job);
    let Some((_, first)) = variants.first() else { return MISSING.to_owned() };
    let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, value) in first {
        if variants.iter().all(|(_, settings)| settings.get(key) == Some(value))
            && !NOT_ASKED_FOR.contains(&(key.as_str(), value.as_str()))
            && let Some((section, name)) = key.split_once('.')
        {
            let value = if value.is_empty() { "\"\"" } else { value };
            sections.entry(section).or_default().push(format!("{name} = {value}"));
        }
    }
    let lines: Vec<String> = sections.into_iter().map(|(s, all)| format!("- {s}: {}", all.join(", "))).collect();
    lines.join("\n")
}

/// Settings that are not the same in all variants; none if there are none.
pub fn variant_differences(job: &MeasuredJob) -> Option<Table> {
    let variants = by_variant(job);
    let (_, first) = variants.first()?;
    let mut table = Table::new(std::iter::once("Setting".to_owned()).chain(variants.iter().map(|(l, _)| l.clone())));
    let mut any = false;
    for key in first.keys() {
        let values: Vec<&str> = variants.iter().map(|(_, s)| s.get(key).map_or(MISSING, String::as_str)).collect();
        if values.iter().any(|v| *v != values[0]) {
            any = true;
            table.row(std::iter::once(key.as_str()).chain(values));
        }
    }
    any.then_some(table)
}
