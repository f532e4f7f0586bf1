use serde::Serialize;

use super::student::Student;
use super::{ALPHA, Estimate, Interval};

/// What an interval covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One run: what another stretch of the same run would have given.
    WithinRun,
    /// The mean over runs: where that of ever more runs would come to lie. A single further run may well lie outside.
    OverRuns,
}

impl Scope {
    /// In words, behind an interval.
    pub const fn words(self) -> &'static str {
        match self {
            Self::WithinRun => "within the run only",
            Self::OverRuns => "over runs",
        }
    }
}

/// Rate of a variant over its runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RateOverRuns {
    /// Geometric mean of the rates of the runs.
    pub value: f64,
    /// 95 % interval; none of a single run that has none, and of runs that do not differ from each other.
    pub interval: Option<Interval>,
    /// What the interval covers.
    pub scope: Scope,
    /// Standard deviation of the log rates of the runs, so about their relative spread; none below two runs.
    pub spread: Option<f64>,
    /// How much of that a single run explains by itself: standard error of a run's log rate by its own steps, root mean square
    /// over the runs; none where a run has no interval. Where it is as large as `spread`, longer runs help; where it is much
    /// smaller, only more runs do.
    pub within: Option<f64>,
}

/// Rate over runs, each with its own interval; none without a run, or if a rate is not positive.
pub fn rate_over_runs(runs: &[Estimate]) -> Option<RateOverRuns> {
    if runs.is_empty() || runs.iter().any(|run| !run.value.is_finite() || run.value <= 0.0) {
        return None;
    }
    let errors: Option<Vec<f64>> = runs.iter().map(|run| run.error).collect();
    let within = errors.map(|all| (all.iter().map(|e| e * e).sum::<f64>() / all.len() as f64).sqrt());
    if let [run] = runs {
        let Estimate { value, interval, .. } = *run;
        return Some(RateOverRuns { value, interval, scope: Scope::WithinRun, spread: None, within });
    }
    let logs: Vec<f64> = runs.iter().map(|run| run.value.ln()).collect();
    let student = Student::of_mean(&logs)?;
    let interval = student.with_spread().map(|student| {
        let half = student.half_width(ALPHA);
        Interval { low: (student.value - half).exp(), high: (student.value + half).exp() }
    });
    Some(RateOverRuns {
        value: student.value.exp(),
        interval,
        scope: Scope::OverRuns,
        spread: Some(student.error * (runs.len() as f64).sqrt()),
        within,
    })
}
