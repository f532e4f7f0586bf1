use std::collections::BTreeSet;

use crate::ledger::{MeasuredJob, Run};
use crate::report::compare::{Difference, Row, baselines, differences, measured_rows};
use crate::report::figures::{StepTimes, completed_steps, step_times};
use crate::report::format::{self, MISSING};
use crate::report::{MasksBy, Table};
use crate::stats::{MIN_RUNS_FOR_VERDICT, Ratio, Verdict, ratio, verdict};

/// One line of the table, before it becomes text.
struct Entry<'a> {
    row: Row,
    runs: Vec<&'a Run>,
    /// Label and number of runs of the row that the ratio refers to; none for a baseline, or without one at this point.
    base: Option<(String, usize)>,
    ratio: Option<Ratio>,
    storage_ratio: Option<f64>,
    verdict: Option<Verdict>,
    baseline: bool,
}

/// The variants of a job at each point of its sweep, against their baselines.
pub struct Results<'a>(Vec<Entry<'a>>);

impl<'a> Results<'a> {
    /// Of what the job's completed runs measured.
    pub fn of(job: &'a MeasuredJob) -> Self {
        let rows = measured_rows(job);
        let indexed: Vec<(usize, &Row)> = rows.iter().map(|row| (0, row)).collect();
        let bases = baselines(&indexed, 0);
        let entry = |(i, (row, (_, runs))): (usize, (&Row, (String, Vec<&'a Run>)))| {
            let against = bases[i].filter(|b| *b != i).map(|b| &rows[b]);
            let ratio = against.and_then(|b| ratio(&row.samples_per_s, &b.samples_per_s));
            Entry {
                row: row.clone(),
                runs,
                base: against.map(|b| (b.label.clone(), b.n)),
                ratio,
                storage_ratio: against.and_then(|b| row.storage_ratio(b)),
                verdict: ratio.zip(against).map(|(r, b)| verdict(&r, (row.n, b.n))),
                baseline: bases[i] == Some(i),
            }
        };
        Self(rows.iter().zip(job.by_label()).enumerate().map(entry).collect())
    }

    /// How fast each variant is, and what bounds it: a row per variant and point of the sweep.
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "Variant",
            "Method",
            "it/s",
            "samples/s",
            "Ratio (samples/s)",
            "n",
            "MiB/batch",
            "Storage",
            "A step waits most for",
            "The loader works most on",
        ]);
        for entry in &self.0 {
            let row = &entry.row;
            let ratio = match (&entry.ratio, entry.baseline) {
                (_, true) => "baseline".to_owned(),
                (Some(r), _) => format::ratio_with_interval(r),
                _ => missing(),
            };
            let cells = [
                row.label.clone(),
                entry.runs[0].trial.method.clone(),
                row.median_it_per_s().map_or_else(missing, format::rate),
                row.median_samples_per_s().map_or_else(missing, format::rate),
                ratio,
                row.n.to_string(),
                row.batch_bytes.map_or_else(missing, format::mebibytes),
                row.storage_bytes.map_or_else(missing, |s| format::bytes_with_ratio(s, entry.storage_ratio)),
                row.bottleneck.and_then(|b| b.waits_in_words()).unwrap_or_else(missing),
                row.bottleneck.and_then(|b| b.works_on).map_or_else(missing, |part| part.words()),
            ];
            if entry.baseline { table.bold_row(cells) } else { table.row(cells) }
        }
        table
    }

    /// What bounds each variant with a completed run, a sentence each.
    pub fn bottlenecks(&self) -> Vec<String> {
        self.0.iter().filter_map(|e| Some(e.row.bottleneck?.sentence(&e.row.label))).collect()
    }

    /// True if a variant with a completed run makes masks in its steps.
    pub fn masks_in_step(&self) -> bool {
        self.0.iter().filter_map(|e| e.row.bottleneck).any(|b| b.masks_by != MasksBy::Loader)
    }

    /// How long the steps took, and what became of the runs.
    pub fn step_times(&self) -> Table {
        let mut table = Table::new(["Variant", "ms/step (median)", "p5–p95", "State"]);
        for entry in &self.0 {
            let times = step_times(completed_steps(&entry.runs));
            let ends = |t: StepTimes| format!("{}–{}", format::milliseconds(t.p5), format::milliseconds(t.p95));
            let cells = [
                entry.row.label.clone(),
                times.map_or_else(missing, |t| format::milliseconds(t.median)),
                times.map_or_else(missing, ends),
                state(&entry.runs),
            ];
            if entry.baseline { table.bold_row(cells) } else { table.row(cells) }
        }
        table
    }

    /// What may be said of each variant against the baseline, and what else differs.
    pub fn verdicts(&self) -> Vec<String> {
        let entries = &self.0;
        let mut all = Vec::new();
        let mut open: Vec<&str> = Vec::new();
        for e in entries {
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
}

fn missing() -> String {
    MISSING.to_owned()
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

/// True if the variants' steps do not all do the same work.
pub fn mixed_modes(job: &MeasuredJob) -> bool {
    job.runs.iter().map(|r| r.trial.settings.train.mode.name()).collect::<BTreeSet<_>>().len() > 1
}
