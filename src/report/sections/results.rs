use std::collections::BTreeSet;

use crate::report::compare::{
    Difference, Line, RatioWords, Row, besides_the_method, differences, lines_of_job, measured_rows, words,
};
use crate::report::figures::{StepTimes, completed_steps, step_times};
use crate::report::format::{self, MISSING};
use crate::report::{MasksBy, Table};
use crate::stats::{MIN_RUNS_FOR_VERDICT, Verdict};
use expctl_record::{MeasuredJob, Run};

/// One line of the table, before it becomes text.
struct Entry<'a> {
    line: Line,
    runs: Vec<&'a Run>,
    /// Label of the row that the ratio refers to; none for a baseline, or without one at this point.
    base: Option<String>,
}

/// The variants of a job at each point of its sweep, against their baselines.
pub struct Results<'a>(Vec<Entry<'a>>);

impl<'a> Results<'a> {
    /// Of what the job's completed runs measured.
    pub fn of(job: &'a MeasuredJob) -> Self {
        let entry = |(line, (_, runs)): (Line, (String, Vec<&'a Run>))| {
            let base = line.base.as_ref().map(|base| base.label.clone());
            Entry { line, runs, base }
        };
        Self(lines_of_job(&measured_rows(job)).into_iter().zip(job.by_label()).map(entry).collect())
    }

    /// The rows with what may be said of each.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.0.iter().map(|entry| &entry.line)
    }

    /// How fast each variant is, and what bounds it: a row per variant and point of the sweep.
    pub fn table(&self) -> Table {
        let mut table = Table::new([
            "Variant",
            "Method",
            "it/s",
            "samples/s",
            "ms/sample",
            "× faster (samples/s)",
            "n",
            "MiB/batch",
            "Storage",
            "A step waits most for",
            "The loader works most on",
            "95 % (samples/s)",
        ]);
        for entry in &self.0 {
            let (line, row) = (&entry.line, &entry.line.row);
            let ratio = match (&line.ratio_samples_per_s, line.baseline) {
                (_, true) => "baseline".to_owned(),
                (Some(r), _) if line.across() => format!("{} †", format::times_as_fast(r)),
                (Some(r), _) => format::times_as_fast(r),
                _ => missing(),
            };
            let cells = [
                row.label.clone(),
                entry.runs[0].trial.method.clone(),
                row.median_it_per_s().map_or_else(missing, format::rate),
                row.median_samples_per_s().map_or_else(missing, format::rate),
                row.ms_per_sample().map_or_else(missing, |(ms, _)| format::milliseconds(ms * 1e6)),
                ratio,
                row.n.to_string(),
                row.batch_bytes.map_or_else(missing, format::mebibytes),
                row.storage_bytes.map_or_else(missing, |s| format::bytes_with_ratio(s, line.ratio_storage)),
                row.bottleneck.and_then(|b| b.waits_in_words()).unwrap_or_else(missing),
                row.bottleneck.and_then(|b| b.works_on).map_or_else(missing, |part| part.words()),
                row.samples_per_s_rate.and_then(|rate| format::rate_interval(&rate)).unwrap_or_else(missing),
            ];
            if entry.line.baseline { table.bold_row(cells) } else { table.row(cells) }
        }
        table
    }

    /// What bounds each variant with a completed run, a sentence each.
    pub fn bottlenecks(&self) -> Vec<String> {
        self.0.iter().filter_map(|e| Some(e.line.row.bottleneck?.sentence(&e.line.row.label))).collect()
    }

    /// True if a variant with a completed run makes masks in its steps.
    pub fn masks_in_step(&self) -> bool {
        self.0.iter().filter_map(|e| e.line.row.bottleneck).any(|b| b.masks_by != MasksBy::Loader)
    }

    /// How long the steps took, and what became of the runs.
    pub fn step_times(&self) -> Table {
        let mut table = Table::new(["Variant", "ms/step (median)", "p5–p95", "Measured per run", "State"]);
        for entry in &self.0 {
            let times = step_times(completed_steps(&entry.runs));
            let ends = |t: StepTimes| format!("{}–{}", format::milliseconds(t.p5), format::milliseconds(t.p95));
            let cells = [
                entry.line.row.label.clone(),
                times.map_or_else(missing, |t| format::milliseconds(t.median)),
                times.map_or_else(missing, ends),
                measured_per_run(&entry.line.row.measured_s).unwrap_or_else(missing),
                state(&entry.runs),
            ];
            if entry.line.baseline { table.bold_row(cells) } else { table.row(cells) }
        }
        table
    }

    /// What may be said of each variant against the baseline, and what else differs.
    pub fn verdicts(&self) -> Vec<String> {
        let entries = &self.0;
        let mut all = Vec::new();
        let mut open: Vec<&str> = Vec::new();
        let tested = entries.iter().filter(|e| e.line.p_holm.is_some()).count();
        for e in entries {
            let (Some(base), Some(verdict)) = (&e.base, e.line.verdict) else { continue };
            if verdict == Verdict::TooFewRuns {
                open.push(&e.line.row.label);
                continue;
            }
            let words = RatioWords { line: &e.line, name: &e.line.row.label, base, tested };
            all.extend(words.sentence(false));
        }
        let across = |e: &Entry<'_>| {
            let base = e.base.as_ref().filter(|_| e.line.across())?;
            Some(format!("† {}: {} {base}: {}", e.line.row.label, ANOTHER_CLASS, words(&e.line.crosses)))
        };
        all.extend(entries.iter().filter_map(across));
        if !open.is_empty() {
            let need = format!("{MIN_RUNS_FOR_VERDICT} runs are needed on both sides");
            all.push(format!("too few runs for a verdict ({need}): {}", open.join(", ")));
        }
        let alone: Vec<&str> = entries
            .iter()
            .filter(|e| !e.line.baseline && e.base.is_none() && !e.line.row.profiler)
            .map(|e| e.line.row.label.as_str())
            .collect();
        if !alone.is_empty() && entries.iter().any(|e| e.line.baseline) {
            all.push(format!("no ratio, because the baseline was not run at the same point: {}", alone.join(", ")));
        }
        let rows: Vec<&Row> = entries.iter().map(|e| &e.line.row).collect();
        let differences: Vec<String> = differences(&rows).iter().map(Difference::words).collect();
        if !differences.is_empty() {
            let besides = besides_the_method(&rows);
            all.push(format!("not the same in all rows{besides}: {}", differences.join(", ")));
        }
        all
    }
}

/// Stands between a row and the one that its ratio refers to.
const ANOTHER_CLASS: &str = "no effect of the method alone, of another class than";

fn missing() -> String {
    MISSING.to_owned()
}

/// `2.7 s`, `2.7 s–3.6 s`: how long the runs were measured; none of no run.
fn measured_per_run(seconds: &[f64]) -> Option<String> {
    let ends = [f64::min as fn(f64, f64) -> f64, f64::max].map(|of| seconds.iter().copied().reduce(of));
    let [shortest, longest] = [ends[0]?, ends[1]?].map(format::seconds);
    Some(if shortest == longest { shortest } else { format!("{shortest}–{longest}") })
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
