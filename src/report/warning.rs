//! Warnings: one for each cause, with the variants that have it, ranked by how much it moves a verdict.

use std::collections::{BTreeMap, BTreeSet};

use expctl_ledger::{MeasuredJob, Run};
use expctl_stats::Interval;
use expctl_text::format;
use serde::Serialize;

use super::attempts::attempt_sentences;
use super::breakdown::{Breakdown, Closure};
use super::caution::{Bearing, Cause, Caution};
use super::line::Line;
use super::rates::{completed_steps, measured_steps};
use super::scaling::{crowded_nodes, scaled_variants};
use super::side_by_side::packs;
use super::variant_row::VariantRow;

/// Share of a rate from which an effect is shown if there is no verdict that it could change.
const MIN_EFFECT: f64 = 0.05;

/// One cause with all variants that have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warning {
    /// The cause.
    pub cause: Cause,
    /// Its meaning for the verdicts.
    pub bearing: Bearing,
    /// The variants; empty for a warning of the job.
    pub variants: Vec<String>,
    /// Factor by which the rate of the worst variant would change without the cause; `None` if not known.
    pub rate_without: Option<f64>,
    /// One sentence: the variants, the worst case, what to do.
    pub text: String,
}

impl Warning {
    /// A warning of the job, not of a variant.
    pub fn for_job(cause: Cause, text: String) -> Self {
        Self { cause, bearing: cause.bearing(), variants: Vec::new(), rate_without: None, text }
    }
}

/// The interval of a ratio with the names of its two rows.
#[derive(Clone, Debug)]
pub struct RatioInterval {
    row: String,
    base: String,
    interval: Interval,
}

impl RatioInterval {
    /// The interval of a line with a tested ratio; `name` names its rows.
    pub fn from_line(line: &Line, name: impl Fn(&VariantRow) -> String) -> Option<Self> {
        let interval = line.ratio_samples_per_s?.interval.filter(|_| line.p_holm.is_some())?;
        Some(Self { row: name(&line.row), base: name(line.base.as_ref()?), interval })
    }

    /// Whether the interval excludes 1 either before or after the rates of its rows are multiplied by their factors, but not both.
    fn changes(&self, factors: &BTreeMap<&str, f64>) -> bool {
        let factor = |name: &str| factors.get(name).copied().unwrap_or(1.0);
        let moved = factor(&self.row) / factor(&self.base);
        let Interval { low, high } = self.interval;
        // Above 1, below 1, or neither.
        let side = |low: f64, high: f64| (low > 1.0, high < 1.0);
        side(low, high) != side(low * moved, high * moved)
    }
}

/// Ratios by the name of each of their two rows.
type RatiosOfRows<'a> = BTreeMap<&'a str, Vec<&'a RatioInterval>>;

/// One warning for each cause, those that forbid or change a verdict first, then by effect.
///
/// `found`: the cautions of each variant by its name, in the order of the table. `ratios`: those with a verdict.
pub fn merged(found: impl IntoIterator<Item = (String, Caution)>, ratios: &[RatioInterval]) -> Vec<Warning> {
    let mut groups: Vec<Vec<(String, Caution)>> = Vec::new();
    let mut group_of: BTreeMap<(Cause, Option<String>), usize> = BTreeMap::new();
    for (name, caution) in found {
        let sentence = caution.cause.by_sentence().then(|| caution.sentence.clone());
        let group = *group_of.entry((caution.cause, sentence)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push((name, caution));
    }
    let mut of_row: RatiosOfRows<'_> = BTreeMap::new();
    for ratio in ratios {
        of_row.entry(&ratio.row).or_default().push(ratio);
        if ratio.base != ratio.row {
            of_row.entry(&ratio.base).or_default().push(ratio);
        }
    }
    groups.iter().filter_map(|group| merge(group, &of_row)).collect()
}

/// Sort: those that forbid or change a verdict first, then by effect.
pub fn sort_by_effect(warnings: &mut [Warning]) {
    let effect = |warning: &Warning| warning.rate_without.map_or(0.0, |factor| factor.ln().abs());
    warnings.sort_by(|a, b| a.bearing.cmp(&b.bearing).then(effect(b).total_cmp(&effect(a))));
}

/// The sentences of some warnings, those of one cause in one line.
pub fn by_cause(warnings: &[&Warning]) -> Vec<String> {
    let mut lines: Vec<(Cause, String)> = Vec::new();
    for warning in warnings {
        match lines.iter_mut().find(|(cause, _)| *cause == warning.cause) {
            Some((_, line)) => line.push_str(&format!("; {}", warning.text)),
            None => lines.push((warning.cause, warning.text.clone())),
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

fn merge(group: &[(String, Caution)], ratios: &RatiosOfRows<'_>) -> Option<Warning> {
    let factors: BTreeMap<&str, f64> =
        group.iter().filter_map(|(name, caution)| Some((name.as_str(), caution.rate_without?))).collect();
    let bearings = group.iter().map(|entry| (bearing(&entry.0, &entry.1, &factors, ratios), entry));
    let (bearing, (name, caution)) =
        bearings.min_by(|a, b| a.0.cmp(&b.0).then(b.1.1.severity.total_cmp(&a.1.1.severity)))?;
    let (mut known, mut variants) = (BTreeSet::new(), Vec::new());
    for (variant, _) in group {
        if known.insert(variant.as_str()) {
            variants.push(variant.clone());
        }
    }
    let alike = group.iter().all(|(_, other)| other.sentence == caution.sentence);
    let of_worst = if alike { String::new() } else { format!(" (worst: {name})") };
    let mut text = format!("{}{of_worst}: {}", format::listed(&variants), caution.sentence);
    // The worst case may need less than another one.
    let most =
        group.iter().filter_map(|(of, other)| Some((of, other.advice?))).max_by_key(|(_, advice)| advice.at_least);
    if let (Some((of, most)), Some(own)) = (most, caution.advice)
        && most.at_least > own.at_least
    {
        text.push_str(&format!("; {of} needs {} = {}", most.key, most.at_least));
    }
    Some(Warning { cause: caution.cause, bearing, variants, rate_without: caution.rate_without, text })
}

fn bearing(name: &str, caution: &Caution, factors: &BTreeMap<&str, f64>, ratios: &RatiosOfRows<'_>) -> Bearing {
    let Some(factor) = caution.rate_without else { return caution.bearing };
    let of_variant = ratios.get(name).map_or(&[][..], Vec::as_slice);
    let changes = match of_variant {
        // Without a verdict the figure itself counts.
        [] if (factor - 1.0).abs() >= MIN_EFFECT => return Bearing::Unknown,
        [] => false,
        _ => of_variant.iter().any(|ratio| ratio.changes(factors)),
    };
    if changes { Bearing::ChangesVerdict } else { Bearing::ChangesNoVerdict }
}

/// The warnings of a job, one for each cause, those that forbid or change a verdict first. `lines`: its rows with their verdicts, in the
/// order of [`MeasuredJob::by_label`].
pub fn warnings<'a>(job: &MeasuredJob, lines: impl Iterator<Item = &'a Line>) -> Vec<Warning> {
    let lines: Vec<&Line> = lines.collect();
    let ratios: Vec<RatioInterval> =
        lines.iter().filter_map(|line| RatioInterval::from_line(line, |row| row.label.clone())).collect();
    let mut found: Vec<(String, Caution)> = Vec::new();
    for ((label, runs), line) in job.by_label().into_iter().zip(lines) {
        let of_variant = variant_cautions(&runs).into_iter().chain(line.row.cautions.iter().cloned());
        found.extend(of_variant.map(|caution| (label.clone(), caution)));
    }
    for scaled in scaled_variants(job) {
        let crowds = scaled.sizes.iter().filter_map(|size| crowded_nodes(job, &size.runs));
        found.extend(crowds.map(|crowd| {
            let said = format!("{crowd}: how it scales says nothing of a machine with a processor for each rank");
            (scaled.label.clone(), Caution::new(Cause::MoreRanksThanProcessors, 0.0, said))
        }));
    }
    let mut all = job_warnings(job);
    all.extend(merged(found, &ratios));
    sort_by_effect(&mut all);
    all
}

/// Warnings of trials and of the job.
fn job_warnings(job: &MeasuredJob) -> Vec<Warning> {
    let mut all = Vec::new();
    if let Some(name) = job.baseline_not_run() {
        let said = format!("the baseline `{name}` was not run, so there are no ratios");
        all.push(Warning::for_job(Cause::BaselineNotRun, said));
    }
    all.extend(job.runs.iter().flat_map(attempt_sentences).map(|said| Warning::for_job(Cause::Attempts, said)));
    // Trials that are missing for the same reason share a sentence.
    let mut missing: Vec<(String, Vec<String>)> = Vec::new();
    for run in job.incomplete() {
        let (words, name) = (run.state.words(), run.trial.name());
        match missing.iter_mut().find(|(known, _)| *known == words) {
            Some((_, trials)) => trials.push(name),
            None => missing.push((words, vec![name])),
        }
    }
    all.extend(missing.into_iter().map(|(words, trials)| {
        let said = match &trials[..] {
            [trial] => format!("trial {trial} is not counted, {words}"),
            _ => format!("{} trials are not counted, {words}: {}", trials.len(), format::listed(&trials)),
        };
        Warning::for_job(Cause::NotCounted, said)
    }));
    all
}

/// Cautions of the runs of a variant besides those of its row.
fn variant_cautions(runs: &[&Run]) -> Vec<Caution> {
    let mut all = Vec::new();
    match packs(runs).len() {
        0 => {
            all.push(Caution::new(Cause::NoRun, 0.0, "no completed run with measured steps, so no figures".to_owned()))
        }
        1 => {
            let said = "n = 1, so nothing can be said of the spread and no verdict is given";
            all.push(Caution::new(Cause::OneRun, 0.0, said.to_owned()));
        }
        _ => {}
    }
    if runs.iter().any(|run| run.trial.settings.profiles()) {
        let said = "profiled, and what the profiler costs is in these times: they are in no ratio";
        all.push(Caution::new(Cause::Profiled, 0.0, said.to_owned()));
    }
    all.extend(missing_steps(runs));
    all.extend(unattributed(runs));
    all
}

/// The rank that misses most of the requested measured steps, and the number of others that miss some.
fn missing_steps(runs: &[&Run]) -> Option<Caution> {
    // Training that stopped early did all that it set out to do.
    let runs = runs.iter().copied().filter(|run| run.completed() && run.stopped_after().is_none());
    let short: Vec<(&Run, usize, usize)> = runs.flat_map(short_ranks).collect();
    let (run, rank, steps) = *short.iter().min_by(|a, b| share_measured(a).total_cmp(&share_measured(b)))?;
    let alike = short.iter().filter(|other| std::ptr::eq(other.0, run) && other.2 == steps).count();
    // A checkpoint is of all ranks, so mostly they miss the same steps.
    let (who, told) = if alike == run.ranks.len() && alike > 1 {
        ("every rank".to_owned(), alike)
    } else {
        (format!("rank {rank}"), 1)
    };
    let others = match short.len() - told {
        0 => String::new(),
        n => format!(" (and {} with fewer than asked for)", format::count(n as u64, "other rank")),
    };
    let asked = run.trial.settings.measure.steps;
    let warm_up = run.warm_up_after_checkpoints(rank);
    let reason = if warm_up == 0 {
        String::new()
    } else {
        let after = format::count(run.parts.len() as u64 - 1, "checkpoint");
        let among = if steps + warm_up == asked as usize { "" } else { "among others, " };
        format!(": {among}{} after {after} are warm-up", format::count(warm_up as u64, "step"))
    };
    let said = format!("repeat {}, {who}: {steps} of {asked} measured steps{reason}{others}", run.trial.repeat);
    Some(Caution::new(Cause::MissingSteps, 1.0 - share_measured(&(run, rank, steps)), said))
}

/// Ranks with fewer measured steps than requested, with their number of steps.
fn short_ranks(run: &Run) -> Vec<(&Run, usize, usize)> {
    let asked = run.trial.settings.measure.steps as usize;
    let counted = run.ranks.iter().map(|steps| measured_steps(steps).count()).enumerate();
    counted.filter(|(_, steps)| *steps < asked).map(|(rank, steps)| (run, rank, steps)).collect()
}

fn share_measured((run, _, steps): &(&Run, usize, usize)) -> f64 {
    *steps as f64 / run.trial.settings.measure.steps as f64
}

/// Stages that do not close. It bears on verdicts if the gap is more than any stage takes: then the longest wait is not known.
fn unattributed(runs: &[&Run]) -> Option<Caution> {
    let breakdown = Breakdown::from_steps(completed_steps(runs))?;
    let (cause, said) = match breakdown.closure() {
        Closure::Closed => return None,
        Closure::Open(share) => {
            let share = format::percent(share);
            (Cause::Unattributed, format!("{share} of the step time is not covered by any stage"))
        }
        Closure::Overlap(sum) => {
            let sum = format::percent(sum);
            (Cause::Overlap, format!("stages overlap or were counted twice: they add up to {sum} of the step"))
        }
    };
    let caution = Caution::new(cause, breakdown.open_share().abs(), said);
    let hidden = breakdown.most_exposed().is_none_or(|(_, ns)| breakdown.unattributed.abs() > ns);
    let bearing = if hidden { Bearing::Unknown } else { caution.bearing };
    Some(Caution { bearing, ..caution })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(row: &str, low: f64, high: f64) -> RatioInterval {
        RatioInterval { row: row.to_owned(), base: "lazy".to_owned(), interval: Interval { low, high } }
    }

    fn slow(name: &str, rate_without: f64) -> (String, Caution) {
        (name.to_owned(), Caution::with_effect(Cause::SlowSteps, rate_without, format!("slow steps in {name}")))
    }

    fn found(cautions: &[(String, Caution)], ratios: &[RatioInterval]) -> Vec<Warning> {
        let mut all = merged(cautions.iter().cloned(), ratios);
        sort_by_effect(&mut all);
        all
    }

    #[test]
    fn an_effect_that_would_move_the_interval_over_1_comes_first_and_the_others_fold() {
        let ratios = [ratio("ids", 1.05, 1.20), ratio("dango", 9.0, 11.0)];
        // Without its slow steps the baseline is 8 % faster, so `ids` no longer is.
        let all = found(&[slow("lazy", 1.08)], &ratios);
        assert_eq!((all[0].bearing, all[0].rate_without), (Bearing::ChangesVerdict, Some(1.08)));
        // 4 % are not enough, and 30 % of `dango` are far from enough.
        for cautions in [slow("lazy", 1.04), slow("dango", 1.3), slow("ids", 1.3)] {
            assert_eq!(found(&[cautions], &ratios)[0].bearing, Bearing::ChangesNoVerdict);
        }
        // No difference shown, which would be one.
        assert_eq!(found(&[slow("ids", 1.2)], &[ratio("ids", 0.9, 1.3)])[0].bearing, Bearing::ChangesVerdict);
        // An effect on both sides cancels.
        let both = found(&[slow("lazy", 1.08), slow("ids", 1.08)], &ratios[..1]);
        assert_eq!((both.len(), both[0].bearing), (1, Bearing::ChangesNoVerdict));
    }

    #[test]
    fn without_a_verdict_the_size_of_the_effect_decides() {
        assert_eq!(found(&[slow("ids", 1.06)], &[])[0].bearing, Bearing::Unknown);
        assert_eq!(found(&[slow("ids", 1.04)], &[])[0].bearing, Bearing::ChangesNoVerdict);
    }

    #[test]
    fn one_sentence_for_a_cause_with_its_worst_case_and_the_largest_advice() {
        let warm = |name: &str, factor: f64, at_least: u64| {
            let caution = Caution::with_effect(Cause::WarmUp, factor, format!("set measure.warmup to {at_least}"));
            (name.to_owned(), caution.advise("measure.warmup", at_least))
        };
        let all = found(&[warm("lazy", 1.03, 90), slow("ids", 1.5), warm("ids", 1.20, 40)], &[]);
        let texts: Vec<&str> = all.iter().map(|warning| warning.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "ids: slow steps in ids",
                "lazy, ids (worst: ids): set measure.warmup to 40; lazy needs measure.warmup = 90"
            ]
        );
        assert_eq!(all[1].variants, ["lazy", "ids"]);
    }

    #[test]
    fn what_forbids_a_verdict_comes_before_any_effect() {
        let one = Caution::new(Cause::OneRun, 0.0, "n = 1".to_owned());
        let gone = |why: &str| ("ids".to_owned(), Caution::new(Cause::NotCounted, 0.0, why.to_owned()));
        let all = found(&[slow("ids", 2.0), gone("a"), gone("b"), ("ids".to_owned(), one)], &[]);
        let causes: Vec<Cause> = all.iter().map(|warning| warning.cause).collect();
        // Trials that are missing for different reasons are different things to know.
        assert_eq!(causes, [Cause::OneRun, Cause::SlowSteps, Cause::NotCounted, Cause::NotCounted]);
    }
}
