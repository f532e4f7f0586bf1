use serde::Serialize;

use super::Interval;

/// A figure with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// 95 % interval; none where there are too few values for one.
    pub interval: Option<Interval>,
}

/// Rates of one run, with intervals from the steps of that run alone: what another stretch of the same run would have
/// given. They say nothing of what another run would give.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunRate {
    /// Number of steps.
    pub steps: usize,
    /// Steps over their summed time, per second.
    pub it_per_s: Estimate,
    /// Samples over the summed time, per second.
    pub samples_per_s: Estimate,
    /// One over the median step time, per second.
    pub median_it_per_s: Estimate,
    /// Steps in a block of the block bootstrap of the mean.
    pub block: usize,
    /// Steps after which the times repeat themselves; none where they do not.
    pub period: Option<usize>,
}

/// Rates of the steps of one run: `times_s` in seconds, in order, and the number of `samples` of all of them.
///
/// None if there is no step, a time is not finite or negative, or all are 0.
pub fn run_rate(times_s: &[f64], samples: u64) -> Option<RunRate> {
    let total: f64 = times_s.iter().sum();
    if times_s.iter().any(|t| !t.is_finite() || *t < 0.0) || total <= 0.0 {
        return None;
    }
    let plain = |value: f64| Estimate { value, interval: None };
    Some(RunRate {
        steps: times_s.len(),
        it_per_s: plain(times_s.len() as f64 / total),
        samples_per_s: plain(samples as f64 / total),
        median_it_per_s: plain(1.0 / super::median(times_s)?),
        block: 1,
        period: None,
    })
}
