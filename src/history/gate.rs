//! The newest job of a history against the level before it, for CI.

use expctl_stats::{ALPHA, RateLevels, Ratio, holm, ratio_to_level};
use expctl_text::format;
use serde::Serialize;

use super::job_rates::JobRates;
use super::percent::change_words;
use super::rate_history::RateHistory;
use super::series::RateSeries;
use crate::report::junit::{JunitCase, JunitOutcome, JunitReason};
use crate::report::line::too_short_words;

/// Loss, in percent, up to which a job passes.
pub const DEFAULT_MARGIN: f64 = 5.0;

/// Jobs that the level before the newest one needs: fewer do not say how much jobs differ by chance.
const MIN_JOBS: usize = 3;

/// What a gate says of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// The newest job is not slower by more than the margin.
    Holds,
    /// It is, and that is more than chance.
    Fails,
    /// Nothing can be said.
    NoVerdict,
}

/// The newest job against the level before it, in one series.
#[derive(Clone, Debug, Serialize)]
pub struct NewestCheck {
    /// Name of the series.
    pub series: String,
    /// Name of the config.
    pub config: String,
    /// The newest job.
    pub job: u64,
    /// What is said of it.
    pub state: GateState,
    /// Its rate over that of the level before it, with the interval of a single job; `None` where there is none.
    pub ratio: Option<Ratio>,
    /// p value of the ratio, corrected by Holm for the series that were tested; `None` without a test.
    pub p_holm: Option<f64>,
    /// First and last job of that level, and the number of its jobs that count; `None` without one.
    pub reference: Option<(u64, u64, usize)>,
    /// All of it in one sentence.
    pub sentence: String,
}

impl NewestCheck {
    /// As a test case for CI.
    pub fn junit_case(&self) -> JunitCase {
        let because = |kind: &str| JunitReason { kind: kind.to_owned(), message: self.sentence.clone() };
        let outcome = match self.state {
            GateState::Holds => JunitOutcome::Passed(self.sentence.clone()),
            GateState::Fails => JunitOutcome::Failed(because("gate")),
            GateState::NoVerdict => JunitOutcome::Skipped(because("no verdict")),
        };
        let (class, name) = (self.config.clone(), self.series.clone());
        JunitCase { class, name, time_s: None, properties: Vec::new(), outcome }
    }
}

/// Check each series that the newest job of the history is in.
///
/// The newest job is compared with the level of the jobs before it: the last one, but a level that came by a slowdown does not take the place
/// of the faster one before it, or a loss would become the rule by itself. It fails if it is slower than that level by more than `margin`
/// percent, and p of its ratio, corrected for the series that are tested, is below [`ALPHA`]. There is no verdict with fewer than three jobs
/// at that level, with runs that are too short, and where the loss is larger than the margin and may be chance.
pub fn newest_checks(history: &RateHistory, margin: f64) -> Vec<NewestCheck> {
    let newest = history.newest();
    let series = history.series.iter().filter(|series| series.newest().map(|job| job.job) == newest);
    let compared: Vec<(&RateSeries, Comparable)> = series.map(|series| (series, compare(series))).collect();
    let p: Vec<f64> =
        compared.iter().filter_map(|(_, found)| found.ratio?.p.filter(|_| found.why_not.is_none())).collect();
    let mut corrected = holm(&p).into_iter();
    let checks = compared.into_iter().filter_map(|(series, found)| {
        let tested = found.ratio.and_then(|ratio| ratio.p).is_some() && found.why_not.is_none();
        let p_holm = if tested { corrected.next() } else { None };
        check(series, found, p_holm, margin)
    });
    checks.collect()
}

/// The newest job of a series and the level before it.
struct Comparable {
    ratio: Option<Ratio>,
    reference: Option<(u64, u64, usize)>,
    /// Why nothing can be said, whatever the ratio is.
    why_not: Option<String>,
}

fn compare(series: &RateSeries) -> Comparable {
    let nothing = |why: String| Comparable { ratio: None, reference: None, why_not: Some(why) };
    let Some((newest, _)) = series.jobs.split_last() else { return nothing("it has no job".to_owned()) };
    if newest.samples_per_s.is_empty() {
        return nothing("no run of it completed".to_owned());
    }
    let before = series.jobs.len() - 1;
    let earlier: Vec<&JobRates> = series.counted(before);
    let Some(levels) = series.rate_levels(before) else {
        return nothing("no earlier job with these settings on this hardware counts".to_owned());
    };
    let reference = reference(&levels);
    let jobs = earlier.get(levels.levels[reference].rates.clone()).unwrap_or_default();
    let rates: Vec<Vec<f64>> = earlier.iter().map(|job| job.samples_per_s.clone()).collect();
    let ratio = ratio_to_level(&newest.samples_per_s, &rates, &levels.levels, reference);
    let why_not = match (newest.too_short(), ratio.and_then(|ratio| ratio.interval)) {
        (Some(seconds), _) => Some(format!("it was {}", too_short_words(seconds))),
        _ if jobs.len() < MIN_JOBS => {
            let n = format::count(jobs.len() as u64, "job");
            Some(format!("{n} before it at that level, and {MIN_JOBS} are needed to tell a loss from chance"))
        }
        (None, None) => Some("no job before it differs from another (rounded figures?)".to_owned()),
        _ => None,
    };
    let reference = jobs.first().zip(jobs.last()).map(|(first, last)| (first.job, last.job, jobs.len()));
    Comparable { ratio, reference, why_not }
}

/// The level that a new job is held against: the last one, or an earlier one from which changes led down only.
fn reference(levels: &RateLevels) -> usize {
    let mut at = levels.levels.len() - 1;
    while at > 0 && levels.changes[at - 1].ratio.value < 1.0 {
        at -= 1;
    }
    at
}

fn check(series: &RateSeries, found: Comparable, p_holm: Option<f64>, margin: f64) -> Option<NewestCheck> {
    let newest = series.newest()?;
    let Comparable { ratio, reference, why_not } = found;
    let loss = ratio.map_or(0.0, |ratio| (1.0 - ratio.value) * 100.0);
    let margin_words = format!("the margin of {} %", format::figure(margin));
    let (state, why) = match why_not {
        Some(why) => (GateState::NoVerdict, why),
        None if loss <= margin => (GateState::Holds, format!("within {margin_words}")),
        None if p_holm.is_some_and(|p| p < ALPHA) => (GateState::Fails, format!("more than {margin_words}")),
        None => (
            GateState::NoVerdict,
            format!(
                "more than {margin_words}, but jobs differ so much that it may be chance: run it again, or with more repeats"
            ),
        ),
    };
    let name = format::code(&series.name);
    let against = ratio.zip(reference).map(|(ratio, (first, last, n))| {
        let level = if n == 1 { format!("job {first}") } else { format!("jobs {first} to {last} ({n} jobs)") };
        format!("job {} is {} than {level}", newest.job, change_words(&ratio))
    });
    let word = match state {
        GateState::Holds => "holds for",
        GateState::Fails => "fails for",
        GateState::NoVerdict => "has no verdict on",
    };
    let said = against.map_or(why.clone(), |against| format!("{against}, {why}"));
    let sentence = format!("gate {word} {name}: {said}");
    let (config, job) = (newest.config.clone(), newest.job);
    Some(NewestCheck { series: series.name.clone(), config, job, state, ratio, p_holm, reference, sentence })
}
