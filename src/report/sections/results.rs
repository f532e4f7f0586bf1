use std::collections::BTreeSet;

use crate::ledger::{MeasuredJob, Run};
use crate::report::Table;
use crate::report::compare::{Difference, differences, measured_rows};
use crate::report::figures::{all_rates, completed_steps, step_times};
use crate::report::format::{self, MISSING};
use crate::stats::{MIN_RUNS_FOR_VERDICT, Ratio, Verdict, mean, median, ratio, verdict};

/// One line of the table, before it becomes text.
struct Entry<'a> {
    label: String,
    runs: Vec<&'a Run>,
    samples_per_s: Vec<f64>,
    /// None for the baseline itself.
    ratio: Option<Ratio>,
    verdict: Option<Verdict>,
    baseline: bool,
}

fn entries(job: &MeasuredJob) -> Vec<Entry<'_>> {
    let groups = job.by_label();
    let base = groups
        .iter()
        .position(|(_, runs)| job.record.baseline.as_deref() == Some(runs[0].trial.variant.as_str()))
        .unwrap_or(0);
    let samples = |runs: &[&Run]| all_rates(runs).iter().map(|r| r.samples_per_s).collect::<Vec<f64>>();
    let base_samples = groups.get(base).map(|(_, runs)| samples(runs)).unwrap_or_default();
    groups
        .into_iter()
        .enumerate()
        .map(|(i, (label, runs))| {
            let samples_per_s = samples(&runs);
            let ratio = (i != base).then(|| ratio(&samples_per_s, &base_samples)).flatten();
            let verdict = ratio.map(|r| verdict(&r, (samples_per_s.len(), base_samples.len())));
            Entry { label, runs, samples_per_s, ratio, verdict, baseline: i == base }
        })
        .collect()
}

/// The result table: a row per variant and point of the sweep.
pub fn results(job: &MeasuredJob) -> Table {
    let mut table = Table::new([
        "Variant",
        "Method",
        "it/s",
        "samples/s",
        "Ratio (samples/s)",
        "n",
        "ms/step (median)",
        "p5–p95",
        "Batch bytes",
        "State",
    ]);
    let missing = || MISSING.to_owned();
    for entry in entries(job) {
        let it: Vec<f64> = all_rates(&entry.runs).iter().map(|r| r.it_per_s).collect();
        let times = step_times(completed_steps(&entry.runs));
        let batch: Vec<f64> = completed_steps(&entry.runs).map(|s| s.bytes_batch as f64).collect();
        let ratio = match (&entry.ratio, entry.baseline) {
            (_, true) => "baseline".to_owned(),
            (Some(r), _) => format::ratio_with_interval(r),
            _ => missing(),
        };
        let cells = [
            entry.label.clone(),
            entry.runs[0].trial.method.clone(),
            median(&it).map_or_else(missing, format::rate),
            median(&entry.samples_per_s).map_or_else(missing, format::rate),
            ratio,
            entry.samples_per_s.len().to_string(),
            times.map_or_else(missing, |t| format::milliseconds(t.median)),
            times.map_or_else(missing, |t| format!("{}–{}", format::milliseconds(t.p5), format::milliseconds(t.p95))),
            mean(&batch).filter(|b| *b > 0.0).map_or_else(missing, format::bytes),
            state(&entry.runs),
        ];
        if entry.baseline { table.bold_row(cells) } else { table.row(cells) }
    }
    table
}

/// `completed`, or what became of each run: `2 completed, 1 failed`.
fn state(runs: &[&Run]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for name in runs.iter().map(|r| r.state.name()) {
        match counts.iter_mut().find(|(n, _)| *n == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    match counts[..] {
        [(name, _)] => name.to_owned(),
        _ => counts.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", "),
    }
}

/// What may be said of each variant against the baseline, and what else differs.
pub fn verdicts(job: &MeasuredJob) -> Vec<String> {
    let entries = entries(job);
    let Some(base) = entries.iter().find(|e| e.baseline) else { return Vec::new() };
    let (said, open): (Vec<_>, Vec<_>) = entries
        .iter()
        .filter_map(|e| Some((e, e.ratio.as_ref()?, e.verdict?)))
        .partition(|(.., verdict)| *verdict != Verdict::TooFewRuns);
    let mut all: Vec<String> = said
        .into_iter()
        .map(|(e, ratio, verdict)| {
            let n = (e.samples_per_s.len(), base.samples_per_s.len());
            let words = format::ratio_with_interval(ratio);
            format!("{}: {} {}, {words} (n = {} and {})", e.label, verdict.against(), base.label, n.0, n.1)
        })
        .collect();
    if !open.is_empty() {
        let labels: Vec<&str> = open.iter().map(|(e, ..)| e.label.as_str()).collect();
        let need = format!("{MIN_RUNS_FOR_VERDICT} runs are needed on both sides");
        all.push(format!("too few runs for a verdict ({need}): {}", labels.join(", ")));
    }
    let rows = measured_rows(job);
    let differences: Vec<String> =
        differences(&rows.iter().collect::<Vec<_>>()).iter().map(Difference::words).collect();
    if !differences.is_empty() {
        all.push(format!("not the same in all rows besides the method: {}", differences.join(", ")));
    }
    all
}

/// True if the variants' steps do not all do the same work.
pub fn mixed_modes(job: &MeasuredJob) -> bool {
    job.runs.iter().map(|r| r.trial.settings.train.mode.name()).collect::<BTreeSet<_>>().len() > 1
}
