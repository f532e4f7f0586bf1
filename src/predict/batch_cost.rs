//! How the time of a stage depends on the number of samples in a batch.

use expctl_stats::{median, quantile};
use serde::Serialize;

/// Batches of another size that must be there before their times say anything.
const MIN_BATCHES: usize = 3;
/// How much smaller or larger than usual a batch must be.
const MIN_DIFFERENCE: f64 = 0.2;
/// Standard error of a median over that of a mean, for normal values, times the ratio of standard deviation and median absolute deviation.
const ERROR_OF_MEDIAN: f64 = 1.2533 * 1.4826;

/// The share of a stage's time that a batch takes whatever its size; the rest grows with its samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FixedShare {
    /// The share, in [0, 1].
    pub value: f64,
    /// Smallest share that the record allows.
    pub low: f64,
    /// Largest one.
    pub high: f64,
    /// Whether batches of several sizes showed it. Otherwise it is assumed that time grows with the samples, and that it may not grow at all.
    pub shown: bool,
}

impl FixedShare {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { value: 0.0, low: 0.0, high: 1.0, shown: false };
    /// The time does not depend on the samples.
    pub const FIXED: Self = Self { value: 1.0, low: 1.0, high: 1.0, shown: true };

    /// From batches of these sizes with these times, in any unit: the last batch of an epoch, say, is often smaller. The median of
    /// (t/t₀ − n/n₀) / (1 − n/n₀) over batches of n samples and t time, where n₀ is the most frequent size and t₀ the median time of it; with
    /// two standard errors of that median.
    pub fn from_batches(samples: &[f64], times: &[f64]) -> Self {
        let Some(usual) = mode(samples) else { return Self::UNKNOWN };
        let of_usual: Vec<f64> = samples.iter().zip(times).filter(|(n, _)| **n == usual).map(|(_, t)| *t).collect();
        let Some(time) = median(&of_usual).filter(|time| *time > 0.0) else { return Self::UNKNOWN };
        let share = |(n, t): (&f64, &f64)| {
            let ratio = n / usual;
            ((ratio - 1.0).abs() >= MIN_DIFFERENCE).then(|| (t / time - ratio) / (1.0 - ratio))
        };
        let shares: Vec<f64> = samples.iter().zip(times).filter_map(share).collect();
        let (Some(value), true) = (median(&shares), shares.len() >= MIN_BATCHES) else { return Self::UNKNOWN };
        let distances: Vec<f64> = shares.iter().map(|share| (share - value).abs()).collect();
        let spread = quantile(&distances, 0.5).unwrap_or(0.0);
        let error = 2.0 * ERROR_OF_MEDIAN * spread / (shares.len() as f64).sqrt();
        let within = |share: f64| share.clamp(0.0, 1.0);
        Self { value: within(value), low: within(value - error), high: within(value + error), shown: true }
    }

    /// The time of a batch of `times` the samples over that of the usual one, if `share` of it is fixed.
    pub fn factor(share: f64, times: f64) -> f64 {
        share + (1.0 - share) * times
    }
}

/// The most frequent value; of several the largest.
fn mode(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let groups = sorted.chunk_by(|a, b| a == b);
    groups.max_by_key(|group| group.len()).and_then(|group| group.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batch_of_an_epoch_shows_what_does_not_grow() {
        // 2 ms and 0.5 ms a sample; batches of 16, and every tenth of 4.
        let samples: Vec<f64> = (0..100).map(|i| if i % 10 == 9 { 4.0 } else { 16.0 }).collect();
        let times: Vec<f64> = samples.iter().map(|n| 2.0 + 0.5 * n).collect();
        let found = FixedShare::from_batches(&samples, &times);
        assert!((found.value - 0.2).abs() < 1e-9 && found.shown, "{found:?}");
        assert!((FixedShare::factor(found.value, 2.0) - 18.0 / 10.0).abs() < 1e-9);
        assert_eq!((found.low, found.high), (found.value, found.value));
    }

    #[test]
    fn equal_batches_show_nothing() {
        assert_eq!(FixedShare::from_batches(&[16.0; 50], &[1.0; 50]), FixedShare::UNKNOWN);
        assert_eq!(FixedShare::from_batches(&[], &[]), FixedShare::UNKNOWN);
        // Two smaller batches are not enough.
        let mut samples = [16.0; 50];
        (samples[3], samples[9]) = (4.0, 4.0);
        assert_eq!(FixedShare::from_batches(&samples, &[1.0; 50]), FixedShare::UNKNOWN);
    }

    #[test]
    fn scattered_times_leave_a_range() {
        let samples: Vec<f64> = (0..60).map(|i| if i % 10 == 9 { 8.0 } else { 16.0 }).collect();
        let times: Vec<f64> = (0..60).map(|i| if i % 10 == 9 { 5.0 + f64::from(i % 20) / 10.0 } else { 8.0 }).collect();
        let found = FixedShare::from_batches(&samples, &times);
        assert!(found.low < found.value && found.value < found.high, "{found:?}");
    }
}
