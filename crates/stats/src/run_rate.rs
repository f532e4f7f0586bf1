//! Rates with intervals: of the steps of one run, over runs, over the epochs of a run.

use serde::{Deserialize, Serialize};

use crate::block_bootstrap::BlockBootstrap;
use crate::student::{ALPHA, Interval, Student};
use crate::{Periods, mean, quantile};

/// A figure with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// 95 % interval; `None` where there are too few values for one.
    pub interval: Option<Interval>,
    /// Standard error of the figure's logarithm; `None` without an interval, and for a median, whose interval does not rest on one. With
    /// few blocks the interval is wider than ± 1.96 standard errors.
    pub error: Option<f64>,
}

impl Estimate {
    /// A figure without an interval.
    pub const fn plain(value: f64) -> Self {
        Self { value, interval: None, error: None }
    }

    /// The same figure and interval in another unit.
    pub fn times(self, factor: f64) -> Self {
        let interval = self.interval.map(|interval| interval.times(factor));
        Self { value: self.value * factor, interval, error: self.error }
    }
}

/// Population that an interval refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One run: what another stretch of the same run would have given.
    WithinRun,
    /// The mean over runs: where the mean of ever more runs would lie. A single further run may well lie outside.
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

/// Rate over several runs, in the unit of their rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateOverRuns {
    /// Geometric mean of the rates of the runs.
    pub value: f64,
    /// 95 % interval; `None` for a single run that has none, and for runs that do not differ from each other.
    pub interval: Option<Interval>,
    /// Population that the interval refers to.
    pub scope: Scope,
    /// Standard deviation of the log rates of the runs, so about their relative spread; `None` below two runs.
    pub spread: Option<f64>,
    /// The part of `spread` that the steps of a single run explain: the standard error of a run's log rate from its own steps, root
    /// mean square over the runs; `None` where a run has no interval. Where `within` is as large as `spread`, longer runs help; where
    /// it is much smaller, only more runs do.
    pub within: Option<f64>,
}

/// Rate over runs, each with its own interval; `None` without a run, or if a rate is not positive.
///
/// exp(m ± t·s/√n) with m and s the mean and the standard deviation of the log rates and t the 97.5 % quantile of Student's t with n − 1
/// degrees of freedom. A single run keeps its own interval, with [`Scope::WithinRun`].
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
    let student = Student::from_values(&logs)?;
    Some(RateOverRuns {
        value: student.value.exp(),
        interval: student.with_spread().map(|student| Interval::from_log(student.value, student.half_width(ALPHA))),
        scope: Scope::OverRuns,
        spread: Some(student.error * (runs.len() as f64).sqrt()),
        within,
    })
}

/// Mean time of some epochs of one run, in the unit of `times`, with its 95 % interval over these epochs; `None` without an epoch, or if
/// a time is not positive.
///
/// x̄ · exp(± t·s/√n) with x̄ the arithmetic mean of the times, s the standard deviation of their logarithms and t the 97.5 % quantile of
/// Student's t with n − 1 degrees of freedom. There is no interval for a single epoch, nor for epochs that do not differ. The interval
/// says nothing of other runs.
pub fn epoch_mean(times: &[f64]) -> Option<Estimate> {
    if times.iter().any(|time| !time.is_finite() || *time <= 0.0) {
        return None;
    }
    let value = mean(times)?;
    let logs: Vec<f64> = times.iter().map(|time| time.ln()).collect();
    let student = Student::from_values(&logs).and_then(Student::with_spread);
    let interval = student.map(|student| {
        let factor = student.half_width(ALPHA).exp();
        Interval { low: value / factor, high: value * factor }
    });
    Some(Estimate { value, interval, error: student.map(|student| student.error) })
}

/// Steps below which a run has no interval of its own: the dependence of so few cannot be seen.
pub const MIN_STEPS_FOR_INTERVAL: usize = 50;

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
    /// Steps in a block of the bootstrap of the mean; 0 where there is no interval.
    pub block: usize,
    /// Steps after which the times repeat themselves, not always a whole number; `None` where they do not.
    pub period: Option<f64>,
}

/// Rates of the steps of one run: `times_s` in seconds, in order, and the number of `samples` of all of them. `None` if there is no step, a
/// time is not finite or negative, or all are 0.
///
/// Mean rate: r = n / Σt, with interval r · exp(± reach · error / t̄) by the circular block bootstrap, because steps depend on those before
/// them. Median rate: 1 / median, with interval 1 / q(0.5 ± h), where h is the half width of the bootstrap of the share of steps at or below
/// the median. There is no interval below [`MIN_STEPS_FOR_INTERVAL`] steps.
///
/// Where the steps have `periods` (known ones, or [those found in them](Periods::find)), the interval rests on sums over whole periods, and
/// there is none below [`MIN_PERIODS_FOR_INTERVAL`](crate::MIN_PERIODS_FOR_INTERVAL) of them. It then covers two figures, from the lower end
/// about the one to the upper end about the other: the rate of all steps, which is the value, and that of the whole periods alone. They
/// differ where the incomplete period at the end has more or fewer slow steps than its share.
///
/// Source: R. S. Woodruff, *Confidence intervals for medians and other position measures*, JASA 47 (1952) 635–646.
pub fn run_rate(times_s: &[f64], samples: u64, periods: Option<&Periods>) -> Option<RunRate> {
    let total: f64 = times_s.iter().sum();
    if times_s.iter().any(|t| !t.is_finite() || *t < 0.0) || !total.is_finite() || total <= 0.0 {
        return None;
    }
    let steps = times_s.len();
    let enough = steps >= MIN_STEPS_FOR_INTERVAL;
    let found = if enough && periods.is_none() { Periods::find(times_s) } else { None };
    let periods = periods.or(found.as_ref());
    let rate = steps as f64 / total;
    let bootstrap = if enough { bootstrap(times_s, periods) } else { None };
    let interval = bootstrap.map(|(blocks, mean)| {
        // Half width relative to the mean step time = half width of the logarithm of the rate (delta method).
        let factor = (blocks.half_width() / mean).exp();
        Interval { low: rate.min(1.0 / mean) / factor, high: rate.max(1.0 / mean) * factor }
    });
    let it_per_s = Estimate { value: rate, interval, error: bootstrap.map(|(blocks, mean)| blocks.error / mean) };
    Some(RunRate {
        steps,
        it_per_s,
        samples_per_s: it_per_s.times(samples as f64 / steps as f64),
        median_it_per_s: median_rate(times_s, periods, enough)?,
        block: bootstrap.map_or(0, |(blocks, _)| blocks.length),
        period: periods.map(Periods::length),
    })
}

/// Bootstrap of the mean of a series, and that mean, over whole periods where there are some.
fn bootstrap(series: &[f64], periods: Option<&Periods>) -> Option<(BlockBootstrap, f64)> {
    match periods {
        Some(periods) => BlockBootstrap::from_periods(series, periods),
        None => Some((BlockBootstrap::from_series(series)?, mean(series)?)),
    }
}

fn median_rate(times: &[f64], periods: Option<&Periods>, enough: bool) -> Option<Estimate> {
    let middle = quantile(times, 0.5)?;
    let below: Vec<f64> = times.iter().map(|t| f64::from(u8::from(*t <= middle))).collect();
    let bootstrap = if enough { bootstrap(&below, periods) } else { None };
    let interval = bootstrap.and_then(|(blocks, _)| {
        let half = blocks.half_width();
        let ends = [0.5 + half, 0.5 - half].map(|p| quantile(times, p));
        // A step that took no time has no rate.
        Some(Interval { low: 1.0 / ends[0]?, high: 1.0 / ends[1].filter(|time| *time > 0.0)? })
    });
    (middle > 0.0).then(|| Estimate { value: 1.0 / middle, interval, error: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_logarithms_about_the_mean() {
        // The standard error of the logarithms times 2.776 445 105 2, the 97.5 % quantile of t with 4 degrees of freedom.
        let found = epoch_mean(&[9.0, 8.0, 8.1, 8.2, 7.9]).unwrap();
        let interval = found.interval.unwrap();
        assert!((found.value - 8.24).abs() < 1e-12, "{found:?}");
        assert!(((interval.high / found.value).ln() - 0.064_351_720_4).abs() < 1e-8, "{found:?}");
        assert!((interval.low * interval.high - found.value * found.value).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn one_epoch_and_equal_epochs_have_no_interval() {
        assert_eq!(epoch_mean(&[2.0]), Some(Estimate::plain(2.0)));
        assert_eq!(epoch_mean(&[2.0, 2.0]), Some(Estimate::plain(2.0)));
        assert_eq!([&[][..], &[1.0, 0.0], &[1.0, f64::NAN]].map(epoch_mean), [None, None, None]);
    }

    #[test]
    fn rates_of_a_periodic_run_know_their_period() {
        // Nine steps of 10 ms and one of 1 s, with a little noise: 10 steps in 1.09 s.
        let noise = |i: usize| 1.0 + ((i * 7919 % 101) as f64 - 50.0) / 1000.0;
        let times: Vec<f64> = (0..1000).map(|i| if i % 10 == 9 { 1.0 } else { 0.01 } * noise(i)).collect();
        let found = run_rate(&times, 28_000, None).unwrap();
        assert_eq!((found.steps, found.period, found.block % 10), (1000, Some(10.0), 0));
        let interval = found.it_per_s.interval.unwrap();
        assert!((found.it_per_s.value - 9.174).abs() < 0.05, "{found:?}");
        // The slow steps are no chance, so the interval is that of the noise alone.
        assert!(interval.high / interval.low < 1.02, "{found:?}");
        assert!((found.samples_per_s.value / found.it_per_s.value - 28.0).abs() < 1e-9);
        assert!((found.median_it_per_s.value - 100.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn the_interval_reaches_farther_than_the_normal_distribution_has_it() {
        // Steps that hang together closely: few blocks, so Kiefer & Vogelsang's value is far above 1.96.
        let times: Vec<f64> = (0..60).map(|i| 1.0 + 0.1 * (f64::from(i) / 9.0).sin()).collect();
        let found = run_rate(&times, 1, None).unwrap().it_per_s;
        let interval = found.interval.unwrap();
        let reach = (interval.high / found.value).ln() / found.error.unwrap();
        assert!(reach > 2.5 && reach < 3.0, "{reach}");
        let over = rate_over_runs(&[found]).unwrap();
        assert!((over.within.unwrap() / found.error.unwrap() - 1.0).abs() < 1e-12, "{over:?}");
        assert_eq!(found.times(28.0).error, found.error);
    }

    #[test]
    fn few_steps_have_rates_without_interval() {
        let found = run_rate(&[0.5; 10], 100, None).unwrap();
        assert_eq!(found.it_per_s, Estimate::plain(2.0));
        assert_eq!(found.samples_per_s.value, 20.0);
        assert_eq!(found.median_it_per_s, Estimate::plain(2.0));
        assert_eq!(
            (run_rate(&[], 0, None), run_rate(&[0.0; 9], 1, None), run_rate(&[f64::NAN], 1, None)),
            (None, None, None)
        );
    }
}
