//! The results of a job: rates, verdicts, step times, epochs, and rates by published estimators.

use std::collections::BTreeSet;

use expctl_ledger::{MeasuredJob, Rates, Run};
use expctl_settings::Estimator;
use expctl_stats::{MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, Verdict, median};
use expctl_text::Table;
use expctl_text::format::{self, MISSING, missing};
use serde_json::{Value, json};

use super::TitledTable;
use crate::report::bottleneck::MasksBy;
use crate::report::differences::{Difference, confound_words, confounds, differences, rows_differ_in};
use crate::report::emulation::Emulation;
use crate::report::epoch_time::FirstEpoch;
use crate::report::line::{Line, RatioWords, lines_of_job};
use crate::report::rates::{StepTimes, all_rates, completed_steps, estimated_rates, step_times};
use crate::report::variant_row::{VariantRow, measured_rows};

/// Column of the utilisation of emulated accelerators: behind what a step waits for.
const UTILISATION_COLUMN: usize = 5;

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

    /// `Fastest: ids, 4.00× lazy (95 % 3.80–4.21, 3 runs each, derived)`.
    fn fastest_sentence(&self, base: &str) -> String {
        let line = &self.line;
        let interval = line.ratio_samples_per_s.as_ref().and_then(format::ratio_interval);
        let interval = interval.map(|ends| format!("95 % {ends}, ")).unwrap_or_default();
        let runs = match line.runs {
            Some((n, _)) if line.paired => format!("{n} pairs of runs, "),
            Some((n, of_base)) if n == of_base => format!("{n} runs each, "),
            Some((n, of_base)) => format!("{n} and {of_base} runs, "),
            None => String::new(),
        };
        let apart = if line.across() { " †" } else { "" };
        let (label, ratio) = (&line.row.label, format::ratio(self.ratio()));
        format!("Fastest: {label}, {ratio} {base} ({interval}{runs}derived){apart}")
    }
}

/// What the rows of a baseline say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BaselineAnswer {
    /// The row of this index is the fastest of those shown to be faster.
    Fastest(usize),
    /// All rows do the same kind of work and are shown to be slower.
    Baseline,
    /// No row is shown to be faster, though at least one was tested.
    NoneFaster,
    /// No row was tested, for this reason.
    NoVerdict(Verdict),
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

    /// Rates and bottleneck of each variant: a row per variant and point of the sweep.
    pub fn table(&self) -> Table {
        // The answer first: columns beyond the seventh may be outside of a window.
        let has_methods = self.0.iter().any(|e| !e.runs[0].trial.method.eq_ignore_ascii_case(&e.runs[0].trial.variant));
        let mut header = vec![
            "Variant",
            "samples/s (median)",
            "× faster (geometric means)",
            "n",
            "A step waits most for",
            "The loader works most on",
            "it/s (median)",
            "95 % (samples/s)",
            "ms/sample",
            "MiB/batch",
            "Storage",
        ];
        header.extend(has_methods.then_some("Method"));
        let emulates = self.0.iter().any(|entry| entry.line.row.emulation.is_some());
        if emulates {
            header.insert(UTILISATION_COLUMN, "AU");
        }
        let numbers =
            ["samples/s (median)", "n", "AU", "it/s (median)", "95 % (samples/s)", "ms/sample", "MiB/batch", "Storage"];
        let is_number = |name: &str| numbers.contains(&name) || name.starts_with('×');
        let right: Vec<usize> = (0..header.len()).filter(|column| is_number(header[*column])).collect();
        let mut table = Table::new(header).right(right);
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
                row.median_samples_per_s().map_or_else(missing, format::rate),
                ratio,
                row.n.to_string(),
                row.bottleneck.and_then(|b| b.waits_in_words()).unwrap_or_else(missing),
                row.bottleneck.and_then(|b| b.works_on).map_or_else(missing, |part| part.words()),
                row.median_it_per_s().map_or_else(missing, format::rate),
                row.samples_per_s_rate.and_then(|rate| format::rate_interval(&rate)).unwrap_or_else(missing),
                row.ms_per_sample().map_or_else(missing, |(ms, _)| format::milliseconds(ms * 1e6)),
                row.batch_bytes.map_or_else(missing, format::mebibytes),
                row.storage_bytes.map_or_else(missing, |s| format::bytes_with_ratio(s, line.ratio_storage)),
            ];
            let method = has_methods.then(|| entry.runs[0].trial.method.clone());
            let mut cells: Vec<String> = cells.into_iter().chain(method).collect();
            if emulates {
                cells.insert(UTILISATION_COLUMN, row.utilisation().unwrap_or_else(missing));
            }
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
            let used = if used.is_empty() { String::new() } else { format!("; AU (derived): {}", used.join(", ")) };
            format!("{}: {sentence}{used}", labels.join(", "))
        };
        alike.into_iter().map(said).collect()
    }

    /// The bottleneck of each variant with a completed run, one sentence each.
    pub fn bottlenecks(&self) -> Vec<String> {
        self.0.iter().filter_map(|e| Some(e.line.row.bottleneck?.sentence(&e.line.row.label))).collect()
    }

    /// Whether a variant with a completed run makes masks in its steps.
    pub fn masks_in_step(&self) -> bool {
        self.0.iter().filter_map(|e| e.line.row.bottleneck).any(|b| b.masks_by != MasksBy::Loader)
    }

    /// Step times, and states of the runs.
    pub fn step_times(&self) -> Table {
        let mut table = Table::new(["Variant", "ms/step (median)", "p5–p95", "Measured per run", "State"]).right(1..4);
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

    /// The answer of the job, for each baseline the fastest variant of those shown to be faster, or why there is none; baselines with the same
    /// reason share a sentence. Empty without ratios.
    pub fn answers(&self) -> Vec<String> {
        let mut answers: Vec<(BaselineAnswer, Vec<&str>)> = Vec::new();
        for base in self.bases() {
            let answer = self.answer(base);
            match answers.iter_mut().find(|(other, _)| *other == answer) {
                Some((_, bases)) => bases.push(base),
                None => answers.push((answer, vec![base])),
            }
        }
        answers.into_iter().map(|(answer, bases)| self.sentence(answer, &bases)).collect()
    }

    /// What the rows of one baseline say.
    fn answer(&self, base: &str) -> BaselineAnswer {
        let of_base = || self.0.iter().enumerate().filter(|(_, e)| e.base.as_deref() == Some(base));
        let faster = of_base().filter(|(_, e)| e.line.verdict == Some(Verdict::Faster));
        if let Some((fastest, _)) = faster.max_by(|a, b| a.1.ratio().total_cmp(&b.1.ratio())) {
            return BaselineAnswer::Fastest(fastest);
        }
        // What does other work is no proof of that.
        if of_base().all(|(_, e)| e.line.verdict == Some(Verdict::Slower) && !e.line.across()) {
            return BaselineAnswer::Baseline;
        }
        let verdicts: Vec<Verdict> = of_base().filter_map(|(_, e)| e.line.verdict).collect();
        let is_open =
            |verdict: &Verdict| matches!(verdict, Verdict::TooFewRuns | Verdict::TooShort | Verdict::NoSpread);
        match verdicts.iter().copied().min_by_key(|verdict| *verdict != Verdict::TooFewRuns) {
            Some(first) if verdicts.iter().all(is_open) => BaselineAnswer::NoVerdict(first),
            _ => BaselineAnswer::NoneFaster,
        }
    }

    /// An answer that holds for these baselines.
    fn sentence(&self, answer: BaselineAnswer, bases: &[&str]) -> String {
        let names = self.base_words(bases);
        match answer {
            BaselineAnswer::Fastest(index) => self.0[index].fastest_sentence(&names),
            BaselineAnswer::Baseline => format!("Fastest: {names} (the baseline)"),
            BaselineAnswer::NoneFaster => format!("No variant is shown to be faster than {names}"),
            BaselineAnswer::NoVerdict(Verdict::TooFewRuns) => {
                format!("No verdict against {names}: too few runs ({MIN_RUNS_FOR_VERDICT} needed on both sides)")
            }
            BaselineAnswer::NoVerdict(Verdict::TooShort) => {
                let needed = format::seconds(MIN_SECONDS_FOR_VERDICT);
                format!("No verdict against {names}: measured too briefly (less than {needed} per run)")
            }
            BaselineAnswer::NoVerdict(_) => {
                format!("No verdict against {names}: no run differs from another, so no test is possible")
            }
        }
    }

    /// `lazy`; of several points of one variant `lazy at each of its 4 points`.
    fn base_words(&self, bases: &[&str]) -> String {
        let row = |label: &str| self.0.iter().map(|e| &e.line.row).find(|row| row.label == label);
        if let [first, _, ..] = bases
            && let Some(variant) = row(first).map(|row| row.variant.as_str())
            && bases.iter().all(|base| row(base).is_some_and(|row| row.variant == variant))
        {
            let points = self.0.iter().filter(|e| e.line.row.variant == variant).count();
            return match bases.len() {
                n if n == points => format!("{variant} at each of its {n} points"),
                n => format!("{variant} at {n} of its {points} points"),
            };
        }
        bases.join(" and ")
    }

    /// For each of several variants with several points of one kind of work the point with the highest rate, one sentence each. Without
    /// tests: the points of a variant are not compared with each other.
    pub fn best_points(&self) -> Vec<String> {
        let mut variants: Vec<&str> = self.0.iter().map(|e| e.line.row.variant.as_str()).collect();
        variants.dedup();
        if variants.len() < 2 {
            // Its first point is the baseline, and the answer is on that.
            return Vec::new();
        }
        variants.iter().filter_map(|variant| self.best_point(variant)).collect()
    }

    fn best_point(&self, variant: &str) -> Option<String> {
        let rows = || self.0.iter().map(|e| &e.line.row).filter(|row| row.variant == variant && !row.profiler);
        let first = rows().next().filter(|first| !first.point.is_empty())?;
        // Modes, for example, are not alternatives to each other.
        if rows().any(|row| !confounds(row, first).0.is_empty()) {
            return None;
        }
        let rated: Vec<(&VariantRow, f64)> =
            rows().filter_map(|row| Some((row, row.median_samples_per_s()?))).collect();
        let (_, of_first) = rated.iter().find(|(row, _)| row.label == first.label)?;
        let (best, rate) = rated.iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| rated.len() > 1)?;
        let point: Vec<String> = best.point.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let against = if best.label == first.label {
            "its first point".to_owned()
        } else {
            format!("{} its first point", format::ratio(rate / of_first))
        };
        Some(format!("{variant}: best at {} ({against}; medians of samples/s, no test)", point.join(", ")))
    }

    /// The baselines, the rows that the answers name, and those that wait for processors, which says more of the machine than of them.
    pub fn answering_rows(&self) -> Vec<&VariantRow> {
        let named: Vec<usize> = self.bases().into_iter().filter_map(|base| self.fastest(base)).collect();
        let answers = |(i, e): &(usize, &ResultLine<'a>)| {
            let is_crowded = e.line.row.bottleneck.is_some_and(|b| b.crowded_other().is_some());
            e.line.baseline || is_crowded || named.contains(i)
        };
        self.0.iter().enumerate().filter(answers).map(|(_, e)| &e.line.row).collect()
    }

    /// Labels of the rows that verdicts refer to, each once.
    fn bases(&self) -> Vec<&str> {
        let mut bases: Vec<&str> = Vec::new();
        let judged = self.0.iter().filter(|e| e.line.verdict.is_some());
        for base in judged.filter_map(|e| e.base.as_deref()) {
            if !bases.contains(&base) {
                bases.push(base);
            }
        }
        bases
    }

    /// Index of the fastest of the rows that are shown to be faster than this one.
    fn fastest(&self, base: &str) -> Option<usize> {
        match self.answer(base) {
            BaselineAnswer::Fastest(index) => Some(index),
            _ => None,
        }
    }

    /// Verdicts against the baseline, and settings that differ.
    pub fn verdicts(&self) -> Vec<String> {
        let rows = self.rows();
        let differences: Vec<String> = differences(&rows).iter().map(Difference::words).collect();
        let mut all = self.findings();
        if !differences.is_empty() {
            all.push(format!("rows {}: {}", rows_differ_in(&rows), differences.join(", ")));
        }
        all
    }

    /// Verdicts against the baseline, the fastest first.
    pub fn findings(&self) -> Vec<String> {
        self.findings_of(|_| true, true)
    }

    /// The findings on all rows but those that the answers name.
    pub fn other_findings(&self) -> Vec<String> {
        let named: Vec<&str> = self
            .bases()
            .into_iter()
            .filter_map(|base| self.fastest(base))
            .map(|index| self.0[index].line.row.label.as_str())
            .collect();
        let few = BaselineAnswer::NoVerdict(Verdict::TooFewRuns);
        let answers_say_few = self.bases().into_iter().all(|base| self.answer(base) == few);
        self.findings_of(|entry| !named.contains(&entry.line.row.label.as_str()), !answers_say_few)
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
        let across = |e: &ResultLine<'_>| {
            let base = e.base.as_ref().filter(|_| e.line.across())?;
            Some(format!("† {}: {} {base}: {}", e.line.row.label, ANOTHER_CLASS, confound_words(&e.line.crosses)))
        };
        all.extend(entries.iter().filter_map(across));
        if !open.is_empty() && with_few {
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
        all
    }
}

/// Words between a row and its base of another class.
const ANOTHER_CLASS: &str = "not like for like with";

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

/// Time per epoch of each variant, and the rate of the first epoch beside later ones: a table, and which of the two it has. `None` if no
/// epoch was timed whole and no config asks for epochs.
pub fn epochs(job: &MeasuredJob, rows: &[&VariantRow]) -> Option<Value> {
    let groups = job.by_label();
    let asked = |runs: &[&Run]| {
        let settings = &runs[0].trial.settings;
        settings.measure.epochs > 0 || settings.train.epochs > 0
    };
    if !rows.iter().any(|row| row.has_epochs()) && !groups.iter().any(|(_, runs)| asked(runs)) {
        return None;
    }
    let firsts: Vec<Option<FirstEpoch>> = groups.iter().map(|(_, runs)| FirstEpoch::from_runs(runs)).collect();
    let several = firsts.iter().any(Option::is_some);
    if !several && rows.iter().all(|row| row.epoch_time.is_none()) {
        return None;
    }
    let mut names = vec!["Variant", "Time per epoch (s)", "95 % (s)", "Epochs", "Figures"];
    if several {
        names.extend(["First epoch (samples/s)", "Later epochs (samples/s)", "First epoch × faster"]);
    }
    let columns = names.len();
    let mut table = Table::new(names).right([1].into_iter().chain(5..columns));
    for (row, first) in rows.iter().zip(&firsts) {
        let mut cells = epoch_cells(row);
        if several {
            cells.extend(first_epoch_cells(first.as_ref()));
        }
        table.row(cells);
    }
    let derived = rows.iter().any(|row| row.epoch_time.is_some_and(|time| !time.measured()));
    Some(json!({ "table": table.markdown(), "derived": derived, "first": several }))
}

fn epoch_cells(row: &VariantRow) -> Vec<String> {
    let Some(time) = &row.epoch_time else {
        return std::iter::once(row.label.clone()).chain((0..4).map(|_| missing())).collect();
    };
    vec![
        row.label.clone(),
        format::rate(time.time_s.value),
        format::rate_interval(&time.time_s).unwrap_or_else(missing),
        if time.measured() { time.count() } else { missing() },
        time.class().to_owned(),
    ]
}

fn first_epoch_cells(first: Option<&FirstEpoch>) -> [String; 3] {
    let medians = first.and_then(FirstEpoch::medians);
    let ratio = first.and_then(FirstEpoch::ratio);
    [
        medians.map_or_else(missing, |(first, _)| format::rate(first)),
        medians.map_or_else(missing, |(_, later)| format::rate(later)),
        ratio.as_ref().map_or_else(missing, format::ratio_with_interval),
    ]
}

/// Sentence for steps without a copy to a device.
const NO_COPY: &str = " No copy to a device was made here; the published figure was the rate of that copy.";

/// A table for each published estimator of the config: its rate of each variant beside the measured one.
pub fn estimated(job: &MeasuredJob) -> Vec<TitledTable> {
    let copied: Vec<u64> = job.runs.iter().filter(|run| run.completed()).map(bytes_to_device).collect();
    let no_copy = if !copied.is_empty() && copied.iter().all(|bytes| *bytes == 0) { NO_COPY } else { "" };
    let copy_note = |estimator: Estimator| if estimator == Estimator::TimerAfterArrival { no_copy } else { "" };
    let titled = |estimator: &Estimator| {
        let mut table = Table::new([
            "Variant",
            "it/s (measured)",
            "it/s (estimated)",
            "samples/s (measured)",
            "samples/s (estimated)",
            "Factor",
            "n",
        ]);
        for (label, runs) in job.by_label() {
            let (right, other) = (all_rates(&runs), estimated_rates(*estimator, &runs));
            let [right_it, other_it] = [&right, &other].map(|rates| median_rate(rates, |r| r.it_per_s));
            let [right_samples, other_samples] = [&right, &other].map(|rates| median_rate(rates, |r| r.samples_per_s));
            let factor = other_it.zip(right_it).map(|(other, right)| format::ratio(other / right));
            let rate = |rate: Option<f64>| rate.map_or_else(|| MISSING.to_owned(), format::rate);
            table.row([
                label,
                rate(right_it),
                rate(other_it),
                rate(right_samples),
                rate(other_samples),
                factor.unwrap_or_else(|| MISSING.to_owned()),
                other.len().to_string(),
            ]);
        }
        TitledTable {
            label: format!("`{}`", estimator.name()),
            table: table.markdown(),
            sentence: format!("Estimated, as published: {}.{}", estimator.label(), copy_note(*estimator)),
        }
    };
    job.record.estimators.iter().map(titled).collect()
}

/// Bytes that all steps of a run copied to a device.
fn bytes_to_device(run: &Run) -> u64 {
    run.ranks.iter().flatten().map(|step| step.bytes_to_device).sum()
}

/// Median over the runs.
fn median_rate(rates: &[Rates], of: impl Fn(&Rates) -> f64) -> Option<f64> {
    median(&rates.iter().map(of).collect::<Vec<_>>())
}
