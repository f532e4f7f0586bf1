//! Figures with intervals: of one run, over runs, over the epochs of a run.

use serde::Serialize;

use crate::mean;
use crate::student::{ALPHA, Interval, Student};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
}
