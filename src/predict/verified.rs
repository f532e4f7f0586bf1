//! Predictions beside what was measured of them, and the record of all that a ledger has.

use expctl_ledger::{Ledger, LedgerError, MeasuredJob, VerifiedPrediction};
use expctl_stats::{Interval, Ratio, median, paired_ratio, quantile};
use serde::Serialize;

use crate::report::rates::run_rates;

/// A prediction with the outcome of the job that was submitted to verify it.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// The job that ran the change beside the settings that it was predicted from.
    pub job: u64,
    /// The job that was predicted from.
    pub predicted_from: u64,
    /// The variant, with its swept settings.
    pub label: String,
    /// The change, as `--set` takes it.
    pub setting: String,
    /// Predicted gain. Class: estimated.
    pub predicted: f64,
    /// Interval of the predicted gain, within which a measured one is expected in 95 % of cases.
    pub predicted_interval: Option<Interval>,
    /// Measured gain: rates with the change over rates without, run by run. Class: measured. `None`: no repeat of both completed.
    pub measured: Option<Ratio>,
    /// Repeats in which both completed.
    pub runs: usize,
}

impl Verified {
    /// The predictions that a job was submitted to verify; none for any other job.
    pub fn of_job(job: &MeasuredJob) -> Vec<Self> {
        let Some(verifies) = &job.record.verifies else { return Vec::new() };
        verifies.predictions.iter().map(|one| Self::of_prediction(job, verifies.job, one)).collect()
    }

    fn of_prediction(job: &MeasuredJob, predicted_from: u64, one: &VerifiedPrediction) -> Self {
        let rate = |variant: &str, repeat: u32| {
            let mut runs = job.runs.iter();
            let run = runs.find(|run| run.trial.variant == variant && run.trial.repeat == repeat)?;
            run_rates(run).map(|rates| rates.samples_per_s)
        };
        let repeats = job.runs.iter().map(|run| run.trial.repeat).max().unwrap_or(0);
        let pairs: Vec<(f64, f64)> = (1..=repeats)
            .filter_map(|repeat| Some((rate(&one.variant, repeat)?, rate(&one.baseline, repeat)?)))
            .collect();
        Self {
            job: job.record.job,
            predicted_from,
            label: one.label.clone(),
            setting: one.setting.clone(),
            predicted: one.gain,
            predicted_interval: one.gain_interval.map(|(low, high)| Interval { low, high }),
            measured: paired_ratio(&pairs),
            runs: pairs.len(),
        }
    }

    /// Measured gain over the predicted one, less 1; `None` where nothing was measured.
    pub fn error(&self) -> Option<f64> {
        self.measured.map(|measured| measured.value / self.predicted - 1.0)
    }

    /// Whether the measured gain is in the interval of the prediction; `None` where one of them is missing.
    pub fn is_within(&self) -> Option<bool> {
        let (measured, interval) = (self.measured?, self.predicted_interval?);
        Some(interval.low <= measured.value && measured.value <= interval.high)
    }
}

/// How far predictions in a ledger were off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrackRecord {
    /// Predictions that were measured.
    pub predictions: usize,
    /// Median of the errors without sign, as a share of the prediction.
    pub median_error: f64,
    /// 90th percentile of the errors without sign.
    pub p90_error: f64,
    /// Predictions whose measured gain is in their interval.
    pub within: usize,
    /// Predictions that have an interval.
    pub with_interval: usize,
}

impl TrackRecord {
    /// Of predictions that were measured; `None` if there are none.
    pub fn from_verified(all: &[Verified]) -> Option<Self> {
        let errors: Vec<f64> = all.iter().filter_map(Verified::error).map(f64::abs).collect();
        let within: Vec<bool> = all.iter().filter_map(Verified::is_within).collect();
        Some(Self {
            predictions: errors.len(),
            median_error: median(&errors)?,
            p90_error: quantile(&errors, 0.9)?,
            within: within.iter().filter(|is| **is).count(),
            with_interval: within.len(),
        })
    }

    /// Of all jobs of a ledger that verify predictions; `None` if nothing was measured yet. Jobs that cannot be read are left out, with a
    /// warning.
    pub fn of_ledger(ledger: &Ledger) -> Option<Self> {
        let verified = ledger.measured_ids().into_iter().filter_map(|id| {
            let load = || -> Result<Option<MeasuredJob>, LedgerError> {
                let Ok(folder) = ledger.measured(id) else { return Ok(None) };
                if folder.record()?.verifies.is_none() {
                    return Ok(None);
                }
                MeasuredJob::load(&folder).map(Some)
            };
            load().unwrap_or_else(|e| {
                tracing::warn!("job {id} does not count among verified predictions: {e}");
                None
            })
        });
        Self::from_verified(&verified.flat_map(|job| Verified::of_job(&job)).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(predicted: f64, measured: Option<f64>) -> Verified {
        Verified {
            job: 2,
            predicted_from: 1,
            label: "lazy".to_owned(),
            setting: "loader.workers=2".to_owned(),
            predicted,
            predicted_interval: Some(Interval { low: predicted * 0.9, high: predicted * 1.1 }),
            measured: measured.map(|value| Ratio { value, interval: None, p: None }),
            runs: usize::from(measured.is_some()),
        }
    }

    #[test]
    fn errors_are_shares_of_the_prediction() {
        let all = [verified(2.0, Some(2.1)), verified(1.0, Some(0.8)), verified(1.5, None)];
        assert!((all[0].error().unwrap() - 0.05).abs() < 1e-12 && all[2].error().is_none());
        assert_eq!([all[0].is_within(), all[1].is_within(), all[2].is_within()], [Some(true), Some(false), None]);
        let record = TrackRecord::from_verified(&all).unwrap();
        assert_eq!((record.predictions, record.within, record.with_interval), (2, 1, 2));
        assert!((record.median_error - 0.125).abs() < 1e-12 && record.p90_error <= 0.2 + 1e-12, "{record:?}");
    }

    #[test]
    fn nothing_measured_is_no_record() {
        assert_eq!(TrackRecord::from_verified(&[]), None);
        assert_eq!(TrackRecord::from_verified(&[verified(1.0, None)]), None);
    }
}
