use std::collections::BTreeSet;

use crate::ledger::{MeasuredJob, Run};
use crate::report::Table;
use crate::report::compare::{Difference, Row, baselines, differences, measured_rows};
use crate::report::figures::{completed_steps, step_times};
use crate::report::format::{self, MISSING};
use crate::stats::{MIN_RUNS_FOR_VERDICT, Ratio, Verdict, mean, ratio, verdict};

/// One line of the table, before it becomes text.
struct Entry<'a> {
    row: Row,
    runs: Vec<&'a Run>,
    /// Label and number of runs of the row that the ratio refers to; none for a baseline, or without one at this point.
    base: Option<(String, usize)>,
    ratio: Option<Ratio>,
    verdict: Option<Verdict>,
    baseline: bool,
}

fn entries(job: &MeasuredJob) -> Vec<Entry<'_>> {
    let rows = measured_rows(job);
    let indexed: Vec<(usize, &Row)> = rows.iter().map(|row| (0, row)).collect();
    let bases = baselines(&indexed, 0);
    rows.iter()
        .zip(job.by_label())
        .enumerate()
        .map(|(i, (row, (_, runs)))| {
            let against = bases[i].filter(|b| *b != i).map(|b| &rows[b]);
            let ratio = against.and_then(|b| ratio(&row.samples_per_s, &b.samples_per_s));
            Entry {
                row: row.clone(),
                runs,
                base: against.map(|b| (b.label.clone(), b.n)),
                ratio,
                verdict: ratio.zip(against).map(|(r, b)| verdict(&r, (row.n, b.n))),
                baseline: bases[i] == Some(i),
            }
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
        let times = step_times(completed_steps(&entry.runs));
        let batch: Vec<f64> = completed_steps(&entry.runs).map(|s| s.bytes_batch as f64).collect();
        let ratio = match (&entry.ratio, entry.baseline) {
            (_, true) => "baseline".to_owned(),
            (Some(r), _) => format::ratio_with_interval(r),
            _ => missing(),
        };
        let cells = [
            entry.row.label.clone(),
            entry.runs[0].trial.method.clone(),
            entry.row.median_it_per_s().map_or_else(missing, format::rate),
            entry.row.median_samples_per_s().map_or_else(missing, format::rate),
            ratio,
            entry.row.n.to_string(),
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
    let mut all = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for e in &entries {
        let (Some((base, base_n)), Some(ratio), Some(verdict)) = (&e.base, &e.ratio, e.verdict) else { continue };
        if verdict == Verdict::TooFewRuns {
            open.push(&e.row.label);
            continue;
        }
        let (label, words) = (&e.row.label, format::ratio_with_interval(ratio));
        all.push(format!("{label}: {} {base}, {words} (n = {} and {base_n})", verdict.against(), e.row.n));
    }
    if !open.is_empty() {
        let need = format!("{MIN_RUNS_FOR_VERDICT} runs are needed on both sides");
        all.push(format!("too few runs for a verdict ({need}): {}", open.join(", ")));
    }
    let alone: Vec<&str> =
        entries.iter().filter(|e| !e.baseline && e.base.is_none()).map(|e| e.row.label.as_str()).collect();
    if !alone.is_empty() && entries.iter().any(|e| e.baseline) {
        all.push(format!("no ratio, because the baseline was not run at the same point: {}", alone.join(", ")));
    }
    let rows: Vec<&Row> = entries.iter().map(|e| &e.row).collect();
    let differences: Vec<String> = differences(&rows).iter().map(Difference::words).collect();
    if !differences.is_empty() {
        all.push(format!("not the same in all rows besides the method: {}", differences.join(", ")));
    }
    all
}

/// True if the variants' steps do not all do the same work.
pub fn mixed_modes(job: &MeasuredJob) -> bool {
    job.runs.iter().map(|r| r.trial.settings.train.mode.name()).collect::<BTreeSet<_>>().len() > 1
}
