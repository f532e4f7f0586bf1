//! The results of a job: a row for each variant at each point of its sweep, fastest first, with its verdict; and what the verdicts rest on.

mod answer;

use std::cmp::Ordering;
use std::collections::BTreeSet;

use expctl_ledger::{MeasuredJob, Run};
use expctl_stats::{MIN_RUNS_FOR_VERDICT, POWER, Verdict};
use expctl_text::Table;
use expctl_text::format::{self, missing};

use super::MAX_ROWS;
use crate::report::bottleneck::MasksBy;
use crate::report::differences::{Difference, confound_words, differences, rows_differ_in};
use crate::report::emulation::Emulation;
use crate::report::line::{Line, RatioWords, lines_of_job, p_value, test_name};
use crate::report::rates::{StepTimes, completed_steps, step_times};
use crate::report::sections::usage::UsageTable;
use crate::report::variant_row::{VariantRow, measured_rows};

/// A line of the results with its runs.
struct ResultLine<'a> {
    line: Line,
    runs: Vec<&'a Run>,
    /// Label of its base; `None` for a baseline, and if there is none at this point.
    base: Option<String>,
}

impl ResultLine<'_> {
    /// Its ratio to its base in samples/s; 0 without one, so that it is sorted last.
    fn ratio(&self) -> f64 {
        self.line.ratio_samples_per_s.map_or(0.0, |ratio| ratio.value)
    }

    /// Its ratio, for a table.
    fn ratio_cell(&self) -> String {
        match (&self.line.ratio_samples_per_s, self.line.baseline) {
            (_, true) => "baseline".to_owned(),
            (Some(ratio), _) if self.line.across() => format!("{} †", format::times_as_fast(ratio)),
            (Some(ratio), _) => format::times_as_fast(ratio),
            _ => missing(),
        }
    }
}

/// The rows of a job with their verdicts: each variant at each point of its sweep, against its baseline.
pub struct Results<'a>(Vec<ResultLine<'a>>);

impl<'a> Results<'a> {
    /// Judge the rows of a job.
    pub fn from_job(job: &'a MeasuredJob) -> Self {
        let entry = |(line, (_, runs)): (Line, (String, Vec<&'a Run>))| {
            let base = line.base.as_ref().map(|base| base.label.clone());
            ResultLine { line, runs, base }
        };
        Self(lines_of_job(&measured_rows(job)).into_iter().zip(job.by_label()).map(entry).collect())
    }

    /// The rows with their verdicts.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.0.iter().map(|entry| &entry.line)
    }

    /// The rows.
    pub fn rows(&self) -> Vec<&VariantRow> {
        self.lines().map(|line| &line.row).collect()
    }

    /// The lines by rate, the fastest first; those without one last. Modes stay apart, in their order: a step that does less is not faster.
    fn by_rate(&self) -> Vec<&ResultLine<'a>> {
        let mode = |entry: &ResultLine<'a>| entry.runs[0].trial.settings.train.mode;
        let mut modes = Vec::new();
        for entry in &self.0 {
            if !modes.contains(&mode(entry)) {
                modes.push(mode(entry));
            }
        }
        let place = |entry: &ResultLine<'a>| modes.iter().position(|other| *other == mode(entry));
        let rate = |entry: &ResultLine<'a>| entry.line.row.median_samples_per_s();
        let faster = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        let mut lines: Vec<&ResultLine<'a>> = self.0.iter().collect();
        lines.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| -> Ordering { faster(rate(a), rate(b)) }));
        lines
    }

    /// Labels of the rows in the order of [`Self::table`].
    pub fn labels(&self) -> Vec<&str> {
        self.by_rate().into_iter().map(|entry| entry.line.row.label.as_str()).collect()
    }

    /// Rates, verdict and bottleneck: a row per variant and point of the sweep, the fastest first.
    pub fn table(&self) -> Table {
        let judged = self.lines().any(|line| line.verdict.is_some());
        // The answer first: columns beyond the seventh may be outside of a window.
        let mut header = vec!["Variant", "samples/s (median)", "× faster (geometric means)"];
        header.extend(judged.then_some("Verdict"));
        let bottleneck = header.len();
        header.push("A step waits most for");
        let emulates = self.lines().any(|line| line.row.emulation.is_some());
        header.extend(emulates.then_some("AU"));
        header.extend(["The loader works most on", "n", "95 % (samples/s)", "it/s (median)"]);
        let au = bottleneck + usize::from(emulates);
        let numbers = [1, 2, au + 2, au + 3, au + 4].into_iter().chain(emulates.then_some(au));
        let mut table = Table::new(header).right(numbers);
        for entry in self.by_rate() {
            let row = &entry.line.row;
            let verdict = entry.line.verdict.map_or_else(missing, |verdict| verdict.words().to_owned());
            let mut cells = vec![
                row.label.clone(),
                row.median_samples_per_s().map_or_else(missing, format::rate),
                entry.ratio_cell(),
            ];
            cells.extend(judged.then_some(verdict));
            cells.push(row.bottleneck.and_then(|b| b.waits_in_words()).unwrap_or_else(missing));
            cells.extend(emulates.then(|| row.utilisation().unwrap_or_else(missing)));
            cells.extend([
                row.bottleneck.and_then(|b| b.works_on).map_or_else(missing, |part| part.words()),
                row.n.to_string(),
                row.samples_per_s_rate.and_then(|rate| format::rate_interval(&rate)).unwrap_or_else(missing),
                row.median_it_per_s().map_or_else(missing, format::rate),
            ]);
            if entry.line.baseline { table.bold_row(cells) } else { table.row(cells) }
        }
        table
    }

    /// What emulated steps did, one sentence for the variants whose steps are alike, with the utilisation of each.
    pub fn emulated(&self) -> Vec<String> {
        let mut alike: Vec<(String, Vec<&VariantRow>)> = Vec::new();
        for row in self.0.iter().map(|entry| &entry.line.row) {
            let Some(sentence) = row.emulation.as_ref().map(Emulation::sentence) else { continue };
            match alike.iter_mut().find(|(known, _)| *known == sentence) {
                Some((_, rows)) => rows.push(row),
                None => alike.push((sentence, vec![row])),
            }
        }
        let said = |(sentence, rows): (String, Vec<&VariantRow>)| {
            let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
            let used: Vec<String> = match rows.as_slice() {
                [row] => row.utilisation().into_iter().collect(),
                _ => rows.iter().filter_map(|row| Some(format!("{} {}", row.label, row.utilisation()?))).collect(),
            };
            let used =
                if used.is_empty() { String::new() } else { format!("; AU (derived): {}", format::listed(&used)) };
            format!("{}: {sentence}{used}", format::listed(&labels))
        };
        alike.into_iter().map(said).collect()
    }

    /// What running side by side costs a trial and what its trials give together, one sentence for each row whose variant also ran alone.
    pub fn side_by_side(&self) -> Vec<String> {
        self.lines().filter_map(|line| Some(line.row.interference.as_ref()?.sentence(&line.row.label))).collect()
    }

    /// The bottleneck of each variant with a completed run, one sentence each.
    pub fn bottlenecks(&self) -> Vec<String> {
        self.0.iter().filter_map(|e| Some(e.line.row.bottleneck?.sentence(&e.line.row.label))).collect()
    }

    /// Whether a variant with a completed run makes masks in its steps.
    pub fn masks_in_step(&self) -> bool {
        self.0.iter().filter_map(|e| e.line.row.bottleneck).any(|b| b.masks_by != MasksBy::Loader)
    }

    /// Step times, sizes and, beside them, resource usage, in the order of [`Self::table`]. Storage and the state of the runs have a column
    /// only where rows differ in the one, or a run is not complete: the data that was read and the trials say them, too.
    pub fn step_times(&self, usage: Option<&UsageTable>) -> Table {
        let has_methods = self.0.iter().any(|e| !e.runs[0].trial.method.eq_ignore_ascii_case(&e.runs[0].trial.variant));
        let has_storage = self.0.windows(2).any(|two| two[0].line.row.storage_bytes != two[1].line.row.storage_bytes);
        let has_states = self.0.iter().any(|entry| entry.runs.iter().any(|run| !run.completed()));
        let mut header = vec!["Variant", "ms/step (median)", "p5–p95", "ms/sample", "Measured per run", "MiB/batch"];
        header.extend(has_storage.then_some("Storage"));
        header.extend(usage.iter().flat_map(|usage| usage.columns.iter().copied()));
        let numbers = header.len();
        header.extend(has_states.then_some("State"));
        header.extend(has_methods.then_some("Method"));
        let mut table = Table::new(header).right(1..numbers);
        for entry in self.by_rate() {
            let (line, row) = (&entry.line, &entry.line.row);
            let times = step_times(completed_steps(&entry.runs));
            let ends = |t: StepTimes| format!("{}–{}", format::milliseconds(t.p5), format::milliseconds(t.p95));
            let mut cells = vec![
                row.label.clone(),
                times.map_or_else(missing, |t| format::milliseconds(t.median)),
                times.map_or_else(missing, ends),
                row.ms_per_sample().map_or_else(missing, |(ms, _)| format::milliseconds(ms * 1e6)),
                measured_per_run(&row.measured_s).unwrap_or_else(missing),
                row.batch_bytes.map_or_else(missing, format::mebibytes),
            ];
            let storage =
                || row.storage_bytes.map_or_else(missing, |s| format::bytes_with_ratio(s, line.ratio_storage));
            cells.extend(has_storage.then(storage));
            cells.extend(usage.iter().flat_map(|usage| usage.cells(&row.label)));
            cells.extend(has_states.then(|| state(&entry.runs)));
            cells.extend(has_methods.then(|| entry.runs[0].trial.method.clone()));
            if line.baseline { table.bold_row(cells) } else { table.row(cells) }
        }
        table
    }

    /// The tests behind the verdicts, a row for each tested ratio, in the order of [`Self::table`]; `None` without a test.
    pub fn tests(&self) -> Option<Table> {
        let tested: Vec<&ResultLine<'a>> = self.by_rate().into_iter().filter(|e| e.line.p_holm.is_some()).collect();
        let (first, mixed) = (tested.first()?, tested.iter().any(|e| e.line.mixed_batch()));
        let several_bases = tested.iter().any(|e| e.base != first.base);
        let mut header = vec!["Variant".to_owned()];
        header.extend(several_bases.then(|| "Against".to_owned()));
        header.push("p".to_owned());
        header.extend((tested.len() > 1).then(|| format!("p among the {} ratios (Holm)", tested.len())));
        let permuted = tested.iter().any(|e| e.line.permutation.is_some());
        header.extend(permuted.then(|| "p by permutation [least possible]".to_owned()));
        let undetected = tested.iter().any(|e| e.line.detectable.is_some());
        let detectable = || format!("Ratio that would have been detected ({:.0} % power)", POWER * 100.0);
        header.extend(undetected.then(detectable));
        header.extend(mixed.then(|| "× faster per iteration".to_owned()));
        let mut table = Table::new(header);
        for entry in &tested {
            let line = &entry.line;
            let p = line.ratio_samples_per_s.and_then(|ratio| ratio.p);
            let permutation = line.permutation.map(|test| {
                let least = format::figure(test.smallest);
                format!("{} [{least}]", p_value(test.p))
            });
            let detectable = line.detectable.map(|ratio| {
                let (above, below) = (format::ratio(ratio), format::ratio(1.0 / ratio));
                format!("≥ {above} or ≤ {below}")
            });
            let mut cells = vec![line.row.label.clone()];
            cells.extend(entry.base.clone().filter(|_| several_bases));
            cells.push(p.map_or_else(missing, |p| format!("{} ({})", p_value(p), test_name(line.paired))));
            cells.extend((tested.len() > 1).then(|| line.p_holm.map_or_else(missing, p_value)));
            cells.extend(permuted.then(|| permutation.unwrap_or_else(missing)));
            cells.extend(undetected.then(|| detectable.unwrap_or_else(missing)));
            let per_iteration = line.ratio_it_per_s.filter(|_| line.mixed_batch());
            let per_iteration = per_iteration.as_ref().map_or_else(missing, format::ratio_with_interval);
            cells.extend(mixed.then_some(per_iteration));
            table.row(cells);
        }
        Some(table)
    }

    /// Verdicts against the baseline, and settings that differ.
    pub fn verdicts(&self) -> Vec<String> {
        self.findings().into_iter().chain(self.differing()).collect()
    }

    /// What a reader of the ratios must know beside their verdicts: rows of another class, rows without a ratio, settings that differ.
    pub fn remarks(&self) -> Vec<String> {
        let lone: Vec<&str> = self.lines().filter(|line| line.lone).map(|line| line.row.label.as_str()).collect();
        let lone = (!lone.is_empty()).then(|| {
            format!(
                "alone they would have had a verdict, among so many ratios they have none: {}",
                format::listed(&lone)
            )
        });
        let mut apart = self.other_classes();
        if apart.len() > MAX_ROWS {
            let left_out = apart.len() - MAX_ROWS;
            apart.truncate(MAX_ROWS);
            apart.push(format!("… and {} more that are not like for like", format::thousands(left_out as u64)));
        }
        apart.into_iter().chain(self.without_ratio()).chain(lone).chain(self.differing()).collect()
    }

    /// Settings in which rows differ.
    fn differing(&self) -> Option<String> {
        let rows = self.rows();
        let differences: Vec<String> = differences(&rows).iter().map(Difference::words).collect();
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        let order =
            if rows.len() > 1 { format!(" (in this order: {})", format::listed(&labels)) } else { String::new() };
        (!differences.is_empty()).then(|| format!("rows {}{order}: {}", rows_differ_in(&rows), differences.join(", ")))
    }

    /// Rows whose base is of another class, with what differs.
    fn other_classes(&self) -> Vec<String> {
        let across = |entry: &ResultLine<'_>| {
            let base = entry.base.as_ref().filter(|_| entry.line.across())?;
            let (label, crosses) = (&entry.line.row.label, confound_words(&entry.line.crosses));
            Some(format!("† {label}: not like for like with {base}: {crosses}"))
        };
        self.0.iter().filter_map(across).collect()
    }

    /// Rows for whose point of the sweep there is no baseline.
    fn without_ratio(&self) -> Option<String> {
        let alone = |entry: &&ResultLine<'a>| !entry.line.baseline && entry.base.is_none() && !entry.line.row.profiler;
        let alone: Vec<&str> = self.0.iter().filter(alone).map(|entry| entry.line.row.label.as_str()).collect();
        let has_baseline = self.0.iter().any(|entry| entry.line.baseline);
        (!alone.is_empty() && has_baseline).then(|| {
            format!("no ratio, because the baseline was not run at the same point: {}", format::listed(&alone))
        })
    }

    /// Verdicts against the baseline, the fastest first.
    pub fn findings(&self) -> Vec<String> {
        self.findings_of(|_| true, true)
    }

    /// The findings on the rows that are `shown`; with those that have too few runs for a verdict if `with_few`.
    fn findings_of(&self, shown: impl Fn(&ResultLine<'a>) -> bool, with_few: bool) -> Vec<String> {
        let entries = &self.0;
        let mut all = Vec::new();
        let mut open: Vec<&str> = Vec::new();
        let tested = entries.iter().filter(|e| e.line.p_holm.is_some()).count();
        let mut by_speed: Vec<&ResultLine<'a>> = entries.iter().filter(|e| shown(e)).collect();
        by_speed.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
        for e in by_speed {
            let (Some(base), Some(verdict)) = (&e.base, e.line.verdict) else { continue };
            if verdict == Verdict::TooFewRuns {
                open.push(&e.line.row.label);
                continue;
            }
            let words = RatioWords { line: &e.line, name: &e.line.row.label, base, tested };
            all.extend(words.sentence(false));
        }
        all.extend(self.other_classes());
        if !open.is_empty() && with_few {
            let need = format!("{MIN_RUNS_FOR_VERDICT} runs are needed on both sides");
            all.push(format!("too few runs for a verdict ({need}): {}", format::listed(&open)));
        }
        all.extend(self.without_ratio());
        all
    }
}

/// `2.7 s`, `2.7 s–3.6 s`: measured time of the runs; `None` without runs.
pub fn measured_per_run(seconds: &[f64]) -> Option<String> {
    let ends = [f64::min as fn(f64, f64) -> f64, f64::max].map(|of| seconds.iter().copied().reduce(of));
    let [shortest, longest] = [ends[0]?, ends[1]?].map(format::seconds);
    Some(if shortest == longest { shortest } else { format!("{shortest}–{longest}") })
}

/// `completed`, or a count of each state: `2 completed, 1 failed`.
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

/// Whether the job has several modes.
pub fn mixed_modes(job: &MeasuredJob) -> bool {
    job.runs.iter().map(|r| r.trial.settings.train.mode.name()).collect::<BTreeSet<_>>().len() > 1
}
