//! Warnings as values: one for each cause, with the variants that have it, ranked by how much it moves a verdict.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::compare::{Line, Row};
use crate::stats::Interval;

/// Share of a rate from which an effect is worth a reader's time where there is no verdict that it could change.
const WORTH: f64 = 0.05;

/// Why figures are doubtful, or other than the settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The baseline that the config names was not run.
    BaselineNotRun,
    /// A variant has no completed run.
    NoRun,
    /// A variant has one completed run.
    OneRun,
    /// A run was measured for too short a time.
    ShortMeasurement,
    /// A profiler ran along.
    Profiled,
    /// A trial did not complete.
    NotCounted,
    /// A rank has fewer measured steps than asked for.
    MissingSteps,
    /// A trial took several attempts.
    Attempts,
    /// The loader had less memory than its settings ask for.
    LessMemory,
    /// There are fewer samples than asked for.
    FewerSamples,
    /// Not all that steps read came from the disk, though the page cache was to be cold.
    NotCold,
    /// The measurement ended before the batches that were loaded ahead were used up.
    Burst,
    /// The first measured steps are not like the rest.
    WarmUp,
    /// Step times change in the course of a run.
    Drift,
    /// A few slow steps make a mean what it is.
    SlowSteps,
    /// The rate of a run lies apart from those of the others.
    RunApart,
    /// The stages do not make up the step.
    Unattributed,
    /// The stages make up more than the step.
    Overlap,
    /// Fewer blocks of rows were measured than tell what one costs.
    FewBlocks,
    /// Masks leave out some of the edges that their samples remove.
    ApproximateMasks,
    /// More ranks than processors, where ranks were swept.
    MoreRanksThanProcessors,
    /// More threads than processors.
    MoreThreadsThanProcessors,
    /// The model computes another function of a sample than on the whole graph with masks, or does not read what the step makes for it.
    OtherFunction,
}

impl Cause {
    /// What it means for verdicts, where its effect on the rate is not known.
    const fn bearing(self) -> Bearing {
        match self {
            Self::BaselineNotRun | Self::NoRun | Self::OneRun | Self::ShortMeasurement | Self::Profiled => {
                Bearing::ForbidsVerdict
            }
            Self::FewerSamples
            | Self::Unattributed
            | Self::Overlap
            | Self::FewBlocks
            | Self::MoreThreadsThanProcessors
            | Self::OtherFunction => Bearing::ChangesNoVerdict,
            _ => Bearing::Unknown,
        }
    }

    /// Whether cases that differ in their sentence are different things to know, of which none stands for the others.
    const fn by_sentence(self) -> bool {
        matches!(
            self,
            Self::BaselineNotRun
                | Self::NotCounted
                | Self::Attempts
                | Self::FewerSamples
                | Self::OtherFunction
                | Self::NotCold
        )
    }
}

/// What a warning means for the verdicts, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bearing {
    /// There can be no verdict.
    ForbidsVerdict,
    /// Without its effect a ratio's interval would exclude 1 that now does not, or the other way round.
    ChangesVerdict,
    /// How far it moves the rate is not known.
    Unknown,
    /// The verdicts are the same without its effect.
    ChangesNoVerdict,
}

/// A setting that removes a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Key of the config.
    pub key: &'static str,
    /// The smallest value that helps.
    pub at_least: u64,
}

/// A cause at one variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Caution {
    /// The cause.
    pub cause: Cause,
    /// What it means for verdicts, if `rate_without` is not known.
    pub bearing: Bearing,
    /// By what factor the rate of the variant would change without the cause (1.25: a quarter more); none where that is not known.
    pub rate_without: Option<f64>,
    /// How bad it is among the variants with the same cause; larger is worse.
    pub severity: f64,
    /// What to set, where a setting removes it.
    pub advice: Option<Advice>,
    /// What was found and what to do, without the name of the variant.
    pub sentence: String,
}

impl Caution {
    /// A cause whose effect on the rate is not known.
    pub fn new(cause: Cause, severity: f64, sentence: String) -> Self {
        Self { cause, bearing: cause.bearing(), rate_without: None, severity, advice: None, sentence }
    }

    /// A cause without which the rate would be `rate_without` times what it is.
    pub fn with_effect(cause: Cause, rate_without: f64, sentence: String) -> Self {
        let severity = rate_without.ln().abs();
        Self { rate_without: Some(rate_without), ..Self::new(cause, severity, sentence) }
    }

    /// The same with the setting that removes it.
    pub fn advise(self, key: &'static str, at_least: u64) -> Self {
        Self { advice: Some(Advice { key, at_least }), ..self }
    }
}

/// The sentences of cautions, for JSON.
pub fn sentences<S: Serializer>(cautions: &[Caution], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(cautions.iter().map(|caution| &caution.sentence))
}

/// One cause with all variants that have it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warning {
    /// The cause.
    pub cause: Cause,
    /// What it means for the verdicts.
    pub bearing: Bearing,
    /// The variants; empty where it is of no variant.
    pub variants: Vec<String>,
    /// By what factor the rate of the worst of them would change without the cause; none where that is not known.
    pub rate_without: Option<f64>,
    /// One sentence: the variants, the worst case, what to do.
    pub text: String,
}

impl Warning {
    /// A warning of no variant.
    pub fn of_job(cause: Cause, text: String) -> Self {
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
    /// That of a line whose ratio was judged, with its rows as `name` calls them.
    pub fn of(line: &Line, name: impl Fn(&Row) -> String) -> Option<Self> {
        let interval = line.ratio_samples_per_s?.interval.filter(|_| line.p_holm.is_some())?;
        Some(Self { row: name(&line.row), base: name(line.base.as_ref()?), interval })
    }

    fn concerns(&self, name: &str) -> bool {
        self.row == name || self.base == name
    }

    /// Whether the interval excludes 1 before and not after the rates of its rows were multiplied, or the other way round.
    fn changes(&self, factors: &BTreeMap<&str, f64>) -> bool {
        let factor = |name: &str| factors.get(name).copied().unwrap_or(1.0);
        let moved = factor(&self.row) / factor(&self.base);
        let Interval { low, high } = self.interval;
        // Above 1, below 1, or neither.
        let side = |low: f64, high: f64| (low > 1.0, high < 1.0);
        side(low, high) != side(low * moved, high * moved)
    }
}

/// One warning for each cause, those that forbid or change a verdict first, then by effect.
///
/// `found` has the cautions of each variant by its name, in the order of the table; `ratios` are those that were judged.
pub fn merged(found: impl IntoIterator<Item = (String, Caution)>, ratios: &[RatioInterval]) -> Vec<Warning> {
    let mut groups: Vec<Vec<(String, Caution)>> = Vec::new();
    for (name, caution) in found {
        let same = |group: &&mut Vec<(String, Caution)>| {
            let known = &group[0].1;
            known.cause == caution.cause && (!caution.cause.by_sentence() || known.sentence == caution.sentence)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push((name, caution)),
            None => groups.push(vec![(name, caution)]),
        }
    }
    groups.iter().filter_map(|group| merge(group, ratios)).collect()
}

/// Those that forbid or change a verdict first, then by effect; else as they came.
pub fn rank(warnings: &mut [Warning]) {
    let effect = |warning: &Warning| warning.rate_without.map_or(0.0, |factor| factor.ln().abs());
    warnings.sort_by(|a, b| a.bearing.cmp(&b.bearing).then(effect(b).total_cmp(&effect(a))));
}

fn merge(group: &[(String, Caution)], ratios: &[RatioInterval]) -> Option<Warning> {
    let factors: BTreeMap<&str, f64> =
        group.iter().filter_map(|(name, caution)| Some((name.as_str(), caution.rate_without?))).collect();
    let bearing = |(name, caution): &(String, Caution)| bearing(name, caution, &factors, ratios);
    let worst = group.iter().min_by(|a, b| bearing(a).cmp(&bearing(b)).then(b.1.severity.total_cmp(&a.1.severity)))?;
    let (name, caution) = worst;
    let mut variants: Vec<String> = Vec::new();
    for (variant, _) in group {
        if !variants.contains(variant) {
            variants.push(variant.clone());
        }
    }
    let alike = group.iter().all(|(_, other)| other.sentence == caution.sentence);
    let of_worst = if alike { String::new() } else { format!(" (worst: {name})") };
    let mut text = format!("{}{of_worst}: {}", variants.join(", "), caution.sentence);
    // Where the worst case asks for less than another one does, following it would not be enough.
    let most =
        group.iter().filter_map(|(of, other)| Some((of, other.advice?))).max_by_key(|(_, advice)| advice.at_least);
    if let (Some((of, most)), Some(own)) = (most, caution.advice)
        && most.at_least > own.at_least
    {
        text.push_str(&format!("; {of} needs {} = {}", most.key, most.at_least));
    }
    Some(Warning { cause: caution.cause, bearing: bearing(worst), variants, rate_without: caution.rate_without, text })
}

fn bearing(name: &str, caution: &Caution, factors: &BTreeMap<&str, f64>, ratios: &[RatioInterval]) -> Bearing {
    let Some(factor) = caution.rate_without else { return caution.bearing };
    let of_variant: Vec<&RatioInterval> = ratios.iter().filter(|ratio| ratio.concerns(name)).collect();
    let changes = match of_variant[..] {
        // No verdict that could change: the figure itself is what a reader takes away.
        [] if (factor - 1.0).abs() >= WORTH => return Bearing::Unknown,
        [] => false,
        _ => of_variant.iter().any(|ratio| ratio.changes(factors)),
    };
    if changes { Bearing::ChangesVerdict } else { Bearing::ChangesNoVerdict }
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
        rank(&mut all);
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
        // What hits both sides alike cancels.
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
