//! The parts of a step, of variants that ran in several modes.
//!
//! Invariant: the times of stages within one mode (measured) and the differences of modes (derived) have columns of their own, and no
//! sum or share mixes the two.

use std::collections::BTreeMap;

use expctl_ledger::{MeasuredJob, Run, Stage};
use expctl_settings::{Mode, Slurm};
use expctl_stats::{Difference, Verdict, difference, mean, paired_difference};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use minijinja::{Value, context};

use super::breakdowns::{loading_share, step_tree};
use super::isolation_summary::summaries;
use super::results::Results;
use crate::ledger::setting_text;
use crate::report::breakdown::{Breakdown, ISOLATION_MODES, data_stages, step_parts};
use crate::report::line::Line;
use crate::report::rates::{completed_steps, measured_steps, run_rates};
use crate::report::side_by_side::packs;

/// Values for the template of a note; `None` if no variant ran in the mode data and in a longer one.
pub fn isolation(job: &MeasuredJob, results: &Results<'_>) -> Option<Value> {
    let variants = variants_by_mode(job);
    if variants.is_empty() {
        return None;
    }
    let shown: Vec<Value> = variants
        .iter()
        .map(|variant| {
            context! {
                label => variant.label.as_str(),
                table => parts_table(variant).markdown(),
                sentences => parts_sentences(variant),
                tree => mode_tree(variant),
            }
        })
        .collect();
    let summaries: Vec<Value> = summaries(job.record.baseline.as_deref(), &variants)
        .into_iter()
        .map(|summary| context! { of => summary.of, table => summary.table.markdown() })
        .collect();
    let (rates, verdicts) = rates_by_mode(results, &variants);
    let models = models_table(&variants).markdown();
    Some(context! { models, summaries, variants => shown, rates => rates.markdown(), verdicts })
}

/// How much of a step that computes is loading, for the summary: a sentence for each mode in which variants are taken apart.
pub fn loading_answers(job: &MeasuredJob) -> Vec<String> {
    let mut by_mode: Vec<(Mode, Vec<(String, String)>)> = Vec::new();
    for variant in variants_by_mode(job) {
        let Some(share) = variant.breakdown().as_ref().and_then(loading_share) else { continue };
        let (mode, entry) = (variant.whole(), (format::percent(share), variant.label));
        match by_mode.iter_mut().find(|(other, _)| *other == mode) {
            Some((_, all)) => all.push(entry),
            None => by_mode.push((mode, vec![entry])),
        }
    }
    let sentence = |(mode, all): (Mode, Vec<(String, String)>)| {
        let words = |(i, (share, label)): (usize, &(String, String))| match i {
            0 => format!("{share} of a {} step of {label}", mode.name()),
            _ => format!("{share} of {label}"),
        };
        let said: Vec<String> = all.iter().enumerate().take(MAX_LOADING_SHARES).map(words).collect();
        let left = all.len() - said.len();
        let more = if left > 0 { format!(" and {left} more, below") } else { String::new() };
        format!("Loading is {}{more} (measured)", said.join(", "))
    };
    by_mode.into_iter().map(sentence).collect()
}

/// Variants whose share of loading the summary names.
const MAX_LOADING_SHARES: usize = 8;

/// The mean step of the longest mode as a tree.
fn mode_tree(variant: &VariantByMode<'_>) -> String {
    let whole = variant.whole();
    let head = format!("{}, {}, n = {}", variant.label, whole.name(), variant.runs(whole).len());
    variant.breakdown().map(|breakdown| step_tree(&head, &breakdown)).unwrap_or_default()
}

/// A variant at one point of its sweep, with its completed runs by mode.
pub(super) struct VariantByMode<'a> {
    /// Variant and swept settings, without the mode.
    pub label: String,
    /// The variant.
    pub variant: String,
    /// Its swept settings without the mode, as text.
    pub point: Vec<(String, String)>,
    /// Completed runs, by index in [`ISOLATION_MODES`].
    runs: [Vec<&'a Run>; 4],
}

impl<'a> VariantByMode<'a> {
    /// Completed runs in a mode.
    pub fn runs(&self, mode: Mode) -> &[&'a Run] {
        ISOLATION_MODES.iter().position(|(m, _)| *m == mode).map_or(&[], |at| &self.runs[at])
    }

    /// Mean time of a step in a mode, ns, a value for each run; of runs side by side one for each pack.
    pub fn times(&self, mode: Mode) -> Vec<f64> {
        packs(self.runs(mode)).iter().filter_map(|pack| pack.mean(mean_step)).collect()
    }

    /// Difference of the mean steps of two modes, ns; of pairs by repeat if the trials took turns.
    pub fn difference(&self, more: Mode, less: Mode) -> Option<Difference> {
        let interleaved = |run: &&Run| run.trial.settings.measure.interleave;
        let timed = |mode: Mode| -> Vec<(u32, f64)> {
            self.runs(mode).iter().filter_map(|run| Some((run.trial.repeat, mean_step(run)?))).collect()
        };
        if self.runs(more).iter().chain(self.runs(less)).all(interleaved) {
            let base = timed(less);
            let of = |(repeat, time): (u32, f64)| Some((time, base.iter().find(|(other, _)| *other == repeat)?.1));
            let pairs: Vec<(f64, f64)> = timed(more).into_iter().filter_map(of).collect();
            if pairs.len() >= 2 {
                return paired_difference(&pairs);
            }
        }
        difference(&self.times(more), &self.times(less))
    }

    /// The longest mode that ran: the whole of the parts.
    pub fn whole(&self) -> Mode {
        ISOLATION_MODES
            .iter()
            .rev()
            .map(|(mode, _)| *mode)
            .find(|mode| !self.runs(*mode).is_empty())
            .unwrap_or(Mode::Data)
    }

    /// The mean step of that mode.
    pub fn breakdown(&self) -> Option<Breakdown> {
        Breakdown::from_steps(completed_steps(self.runs(self.whole())))
    }

    /// Loader threads of a rank: with any, batches are made while the step computes.
    pub fn workers(&self) -> u32 {
        self.runs(self.whole()).first().map_or(0, |run| run.trial.settings.loader.workers)
    }
}

/// Mean wall time of the measured steps of the slowest rank, ns.
fn mean_step(run: &Run) -> Option<f64> {
    run_rates(run)?;
    let of = |steps: &Vec<_>| mean(&measured_steps(steps).map(|step| step.wall_ns as f64).collect::<Vec<_>>());
    run.ranks.iter().filter_map(of).max_by(f64::total_cmp)
}

/// A variant and its swept settings but for the mode.
type VariantPoint<'a> = (&'a str, Vec<(String, String)>);

/// The variants that completed runs in the mode data and in a longer one.
fn variants_by_mode(job: &MeasuredJob) -> Vec<VariantByMode<'_>> {
    let mut found: Vec<VariantByMode<'_>> = Vec::new();
    let mut index_by_point: BTreeMap<VariantPoint<'_>, usize> = BTreeMap::new();
    for run in job.runs.iter().filter(|run| run_rates(run).is_some()) {
        let Some(at) = ISOLATION_MODES.iter().position(|(mode, _)| *mode == run.trial.settings.train.mode) else {
            continue;
        };
        let swept: BTreeMap<&String, String> = run.trial.point.iter().map(|(k, v)| (k, setting_text(v))).collect();
        let mut point: Vec<(String, String)> =
            swept.into_iter().filter(|(key, _)| *key != "train.mode").map(|(k, v)| (k.clone(), v)).collect();
        // Trials that ran alone and those with others beside them are not of one row, swept or not.
        let (key, pack) = (Slurm::PACK.name(), run.trial.settings.slurm.pack);
        if pack > 1 && !run.trial.point.contains_key(key) {
            point.push((key.to_owned(), pack.to_string()));
        }
        let variant = &run.trial.variant;
        let index = *index_by_point.entry((variant.as_str(), point.clone())).or_insert_with(|| {
            let said: Vec<String> = point.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let label = if said.is_empty() { variant.clone() } else { format!("{variant} ({})", said.join(", ")) };
            found.push(VariantByMode { label, variant: variant.clone(), point, runs: Default::default() });
            found.len() - 1
        });
        found[index].runs[at].push(run);
    }
    found.retain(|variant| !variant.runs[0].is_empty() && variant.runs[1..].iter().any(|runs| !runs.is_empty()));
    found
}

/// The model of each variant, with the number of trained parameters that rank 0 counted.
fn models_table(variants: &[VariantByMode<'_>]) -> Table {
    let mut table = Table::new(["Variant", "Model", "Parameters", "Named by"]).right([2]);
    for variant in variants {
        let runs = variant.runs(variant.whole());
        let Some(trial) = runs.first().map(|run| &run.trial) else { continue };
        let count = runs.iter().find_map(|run| parameters(run));
        table.row([
            variant.label.clone(),
            trial.settings.model.words(),
            count.map_or_else(|| MISSING.to_owned(), format::thousands),
            if trial.default_model { "nobody: the default" } else { "the config" }.to_owned(),
        ]);
    }
    table
}

/// Number of trained parameters; `None` for a run that did not record it or did not reach its last step.
fn parameters(run: &Run) -> Option<u64> {
    run.parts.last()?.usage.first()?.parameters
}

/// Share of the exposed loading in the mode data by which that of another mode must differ for loading to count as overlapping.
const OVERLAP_LIMIT: f64 = 0.1;
/// The smallest shift of a difference that is shown, ns.
const MIN_SHIFT: f64 = 1000.0;

/// A part by difference of modes.
enum DerivedPart {
    /// The step of the mode data, which is no difference.
    Measured(f64),
    /// Difference to the mode before it.
    Difference(Difference),
}

/// The parts by stages and by differences of modes, side by side.
fn parts_table(variant: &VariantByMode<'_>) -> Table {
    let mut table =
        Table::new(["Part", "Stages: ms/step", "ms/sample", "%", "Class", "Modes: ms/step", "ms/sample", "%", "Class"])
            .right([1, 2, 3, 5, 6, 7]);
    let whole = variant.whole();
    let (Some(breakdown), Some(total)) = (variant.breakdown(), mean(&variant.times(whole))) else { return table };
    let missing = || MISSING.to_owned();
    let per_sample = |ns: f64| breakdown.per_sample(ns).map_or_else(missing, format::milliseconds_in_column);

    let stages: Vec<(&str, Option<f64>)> =
        step_parts().into_iter().map(|(part, stages)| (part, breakdown.exposed_in(&stages))).collect();
    let other = breakdown.rest();
    let share = |ns: f64| format::share(ns, breakdown.wall);
    let derived = derived_parts(variant);
    for (part, ns) in &stages {
        let by_mode = derived.iter().find(|(name, _)| name == part).map(|(_, value)| value);
        if ns.is_none() && by_mode.is_none() {
            continue;
        }
        let mut row = vec![(*part).to_owned()];
        row.extend(match ns {
            Some(ns) => [format::milliseconds_in_column(*ns), per_sample(*ns), share(*ns), "measured".to_owned()],
            None => [missing(), missing(), missing(), missing()],
        });
        row.extend(match by_mode {
            Some(value) => derived_cells(value, total, &breakdown),
            None => [missing(), missing(), missing(), missing()],
        });
        table.row(row);
    }
    let mut row = vec!["other, unattributed".to_owned()];
    row.extend([format::milliseconds_in_column(other), per_sample(other), share(other), "derived".to_owned()]);
    row.extend([missing(), missing(), missing(), missing()]);
    table.row(row);
    let both =
        |ns: f64| [format::milliseconds_in_column(ns), per_sample(ns), "100.0 %".to_owned(), "measured".to_owned()];
    table.bold_row(["total".to_owned()].into_iter().chain(both(breakdown.wall)).chain(both(total)));
    table
}

fn derived_cells(value: &DerivedPart, total: f64, whole: &Breakdown) -> [String; 4] {
    let (ns, interval, class) = match value {
        DerivedPart::Measured(ns) => (*ns, None, "measured"),
        DerivedPart::Difference(difference) => (difference.value, difference.interval, "derived"),
    };
    let time = format::milliseconds_in_column;
    let shown = match interval {
        Some(interval) => format!("{} [{} to {}]", time(ns), time(interval.low), time(interval.high)),
        None => time(ns),
    };
    // A batch has as many samples in each mode.
    let per_sample = whole.per_sample(ns).map_or_else(|| MISSING.to_owned(), time);
    [shown, per_sample, format::percent(ns / total), class.to_owned()]
}

/// The difference of each mode to the one before it, with the part that it adds.
fn derived_parts(variant: &VariantByMode<'_>) -> Vec<(&'static str, DerivedPart)> {
    let mut all = Vec::new();
    let mut before: Option<Mode> = None;
    let mut skipped = false;
    for (mode, part) in ISOLATION_MODES {
        let Some(mean) = mean(&variant.times(mode)) else {
            skipped = true;
            continue;
        };
        match before {
            None => all.push((part, DerivedPart::Measured(mean))),
            // If a mode between did not run, the difference is of two parts.
            Some(_) if skipped => {}
            Some(before) => {
                all.extend(
                    variant.difference(mode, before).map(|difference| (part, DerivedPart::Difference(difference))),
                );
            }
        }
        skipped = false;
        before = Some(mode);
    }
    all
}

/// Exposed loading in each mode, and what that means for the differences.
///
/// The cost of a part is its difference plus the decrease of exposed loading. That decrease may be negative, because loading and computing
/// share the processors.
fn overlap(variant: &VariantByMode<'_>) -> Option<String> {
    if variant.workers() == 0 {
        return Some("No loader threads: nothing overlaps, so both ways speak of the same work.".to_owned());
    }
    // Not the whole step of the mode data: unattributed time is not loading.
    let waited = |mode: Mode| {
        let breakdown = Breakdown::from_steps(completed_steps(variant.runs(mode)))?;
        Some(breakdown.exposed_in(&data_stages()).unwrap_or(0.0))
    };
    let alone = waited(Mode::Data)?;
    let ms = format::milliseconds;
    let mut waits = Vec::new();
    let mut shifts: Vec<(&str, f64)> = Vec::new();
    let mut before: Option<f64> = None;
    for (mode, part) in ISOLATION_MODES {
        let Some(now) = waited(mode) else {
            // No difference across a mode that did not run.
            before = None;
            continue;
        };
        waits.push(format!("{} ms in {}", ms(now), mode.name()));
        shifts.extend(before.map(|before| (part, before - now)));
        before = Some(now);
    }
    let hides = shifts.iter().any(|(_, shift)| shift.abs() > alone * OVERLAP_LIMIT);
    let head = if hides { "Loading overlaps computing" } else { "Little overlaps" };
    let mut text = format!("{head}: a step waits for loading {} (exposed).", waits.join(", "));
    let said: Vec<String> = shifts
        .iter()
        .filter(|(_, shift)| shift.abs() >= MIN_SHIFT)
        .map(|(part, shift)| format!("{part} {} ms {}", ms(shift.abs()), if *shift > 0.0 { "more" } else { "less" }))
        .collect();
    if let Some(now) = waited(variant.whole()).filter(|now| alone - now >= MIN_SHIFT) {
        let whole = variant.whole().name();
        text.push_str(&format!(
            " Of the {} ms that data alone costs, {whole} waits {} ms: {} ms are hidden behind the rest of the step (derived).",
            ms(alone),
            ms(now),
            ms(alone - now)
        ));
    }
    if !said.is_empty() {
        text.push_str(&format!(
            " So the differences of the modes are not what the parts cost. Against its difference, a part costs: {}.",
            said.join(", ")
        ));
    }
    Some(text)
}

/// Remarks on the two ways.
fn parts_sentences(variant: &VariantByMode<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let whole = variant.whole();
    let runs: Vec<String> = ISOLATION_MODES
        .iter()
        .filter(|(mode, _)| !variant.runs(*mode).is_empty())
        .map(|(mode, _)| format!("{} {}", mode.name(), variant.runs(*mode).len()))
        .collect();
    all.push(format!("Stages: of the steps in mode {}. Runs: {}.", whole.name(), runs.join(", ")));
    all.extend(overlap(variant));
    let breakdown = Breakdown::from_steps(completed_steps(variant.runs(Mode::ForwardBackward)));
    if let Some(ns) = breakdown.and_then(|b| b.exposed_in(&[Stage::Allreduce])).filter(|ns| *ns > 0.0) {
        all.push(format!(
            "Gradients are exchanged wherever there is a backward pass: by difference, allreduce ({} ms, exposed) is in backward.",
            format::milliseconds(ns)
        ));
    }
    let open: Vec<&str> = derived_parts(variant)
        .into_iter()
        .filter_map(|(part, value)| match value {
            DerivedPart::Difference(Difference { interval: Some(i), .. }) if i.low <= 0.0 && i.high >= 0.0 => {
                Some(part)
            }
            _ => None,
        })
        .collect();
    if !open.is_empty() {
        all.push(format!("By difference not to be told from 0: {}.", open.join(", ")));
    }
    if ISOLATION_MODES.iter().any(|(mode, _)| variant.runs(*mode).len() == 1) {
        all.push("n = 1 in a mode: its differences have no interval.".to_owned());
    }
    all
}

/// Rates of each variant in each mode against the baseline in the same mode, with verdicts.
///
/// Ratios and verdicts are those of `results`, so that a note is consistent: paired if trials took turns, and judged among all ratios of
/// the job.
fn rates_by_mode(results: &Results<'_>, variants: &[VariantByMode<'_>]) -> (Table, Vec<String>) {
    let mut table =
        Table::new(["Mode", "Variant", "it/s", "samples/s", "× faster (it/s)", "× faster (samples/s)", "n"])
            .right([2, 3, 6]);
    let mut verdicts = Vec::new();
    let missing = || MISSING.to_owned();
    for (mode, _) in ISOLATION_MODES {
        for variant in variants {
            let Some(run) = variant.runs(mode).first() else { continue };
            let label = run.trial.label();
            let here = |line: &&Line| line.row.label == label;
            let Some(line) = results.lines().find(here) else { continue };
            let row = &line.row;
            let across = if line.across() { " †" } else { "" };
            let [by_it, by_sample] = [line.ratio_it_per_s, line.ratio_samples_per_s].map(|ratio| match ratio {
                _ if line.baseline => "baseline".to_owned(),
                Some(ratio) => format!("{}{across}", format::times_as_fast(&ratio)),
                None => missing(),
            });
            let cells = [
                mode.name().to_owned(),
                variant.label.clone(),
                row.median_it_per_s().map_or_else(missing, format::rate),
                row.median_samples_per_s().map_or_else(missing, format::rate),
                by_it,
                by_sample,
                row.n.to_string(),
            ];
            if line.baseline {
                table.bold_row(cells)
            } else {
                table.row(cells)
            }
            verdicts.extend(ratio_verdict(line).map(|said| format!("{}, {}: {said}", mode.name(), variant.label)));
        }
    }
    (table, verdicts)
}

/// The verdict on a ratio in words, to follow the name of its row; `None` without one.
fn ratio_verdict(line: &Line) -> Option<String> {
    let open = [Verdict::TooFewRuns, Verdict::TooShort];
    let verdict = line.verdict.filter(|verdict| !open.contains(verdict))?;
    let (base, ratio, (n, base_n)) = (line.base.as_ref()?, line.ratio_samples_per_s?, line.runs?);
    let runs = if line.paired { format!("{n} pairs, by repeat") } else { format!("n = {n} and {base_n}") };
    let lone = if line.lone { "; alone it would have had a verdict, among so many ratios it has none" } else { "" };
    let ratio = format::times_as_fast(&ratio);
    Some(format!("{} {}, {ratio} in samples/s ({runs}){lone}", verdict.against(), base.variant))
}
