//! Metrics of predictions. Invariant: they are computed in float64 over whole sets, never averaged over batches or ranks.

use tch::{TchError, Tensor};
use torch_dist::{DistError, ProcessGroup};

/// Errors and correlations of predictions over a set of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegressionMetrics {
    /// Number of samples.
    pub samples: u64,
    /// Mean squared error, in the units of the labels; NaN without samples.
    pub mse: f64,
    /// Pearson's correlation; `None` where either side is constant.
    pub pearson: Option<f64>,
    /// Spearman's rank correlation; `None` where either side is constant.
    pub spearman: Option<f64>,
}

impl RegressionMetrics {
    /// Compare `predictions` and `labels`, both in the units of the labels and of one length.
    pub fn new(predictions: &[f32], labels: &[f32]) -> Self {
        Self {
            samples: labels.len() as u64,
            mse: mean_squared_error(predictions, labels),
            pearson: pearson(predictions, labels),
            spearman: spearman(predictions, labels),
        }
    }
}

/// Mean squared difference of two lists of one length; NaN where they are empty.
pub fn mean_squared_error(a: &[f32], b: &[f32]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    squares.sum::<f64>() / a.len() as f64
}

/// Pearson's correlation of two lists of one length; `None` where either is constant or not finite, or they have fewer than two values.
pub fn pearson(a: &[f32], b: &[f32]) -> Option<f64> {
    let widened = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
    correlation(&widened(a), &widened(b))
}

/// Spearman's rank correlation, where equal values have the mean of their ranks; `None` as with [`pearson`].
pub fn spearman(a: &[f32], b: &[f32]) -> Option<f64> {
    let finite = a.iter().chain(b).all(|v| v.is_finite());
    finite.then(|| correlation(&ranks(a), &ranks(b))).flatten()
}

fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() || a.len() < 2 {
        return None;
    }
    // The mean of equal values can be off by a rounding, so that they would seem to vary.
    let constant = |values: &[f64]| values.iter().all(|v| *v == values[0]);
    if constant(a) || constant(b) {
        return None;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut aa, mut bb, mut ab) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        aa += a * a;
        bb += b * b;
        ab += a * b;
    }
    let result = ab / (aa.sqrt() * bb.sqrt());
    result.is_finite().then(|| result.clamp(-1.0, 1.0))
}

/// Rank of each value, from 1.
fn ranks(values: &[f32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    // 0 and −0 are next to each other, and equal.
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = start as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|i| ranks[*i] = rank);
        start += equal.len();
    }
    ranks
}

/// Gather predictions and labels of all ranks, in rank order. Ranks can have different numbers of them, or none. All ranks call it
/// together.
///
/// # Errors
/// A peer is gone, or libtorch fails.
pub fn gather_predictions(
    group: &ProcessGroup,
    predictions: &[f32],
    labels: &[f32],
) -> Result<(Vec<f32>, Vec<f32>), DistError> {
    debug_assert_eq!(predictions.len(), labels.len());
    if group.world() == 1 {
        return Ok((predictions.to_vec(), labels.to_vec()));
    }
    let fail = |e: TchError| DistError::from_tch("gather predictions", &e);
    let counts = group.all_gather(&Tensor::f_from_slice(&[labels.len() as i64]).map_err(fail)?)?;
    let counts: Vec<usize> =
        counts.iter().map(|c| c.f_int64_value(&[0]).map(|c| c as usize)).collect::<Result<_, _>>().map_err(fail)?;
    // A collective takes one shape from all ranks: predictions, zeros, labels, zeros.
    let max_count = counts.iter().copied().max().unwrap_or(0);
    let mut own = vec![0f32; 2 * max_count];
    own[..labels.len()].copy_from_slice(predictions);
    own[max_count..max_count + labels.len()].copy_from_slice(labels);
    let parts = group.all_gather(&Tensor::f_from_slice(&own).map_err(fail)?)?;
    let (mut all_predictions, mut all_labels) = (Vec::new(), Vec::new());
    for (part, count) in parts.iter().zip(counts) {
        let part = Vec::<f32>::try_from(part).map_err(fail)?;
        all_predictions.extend_from_slice(&part[..count]);
        all_labels.extend_from_slice(&part[max_count..max_count + count]);
    }
    Ok((all_predictions, all_labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_at_once() {
        let figures = RegressionMetrics::new(&[1.0, 2.0, 4.0], &[1.0, 3.0, 2.0]);
        assert_eq!(figures.samples, 3);
        assert!((figures.mse - 5.0 / 3.0).abs() < 1e-12);
        assert!((figures.spearman.unwrap() - 0.5).abs() < 1e-12);
        let none = RegressionMetrics::new(&[], &[]);
        assert!(none.mse.is_nan() && none.pearson.is_none());
    }

    #[test]
    fn values_by_hand() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0]);
        // Deviations (−1.5, −.5, .5, 1.5) and (−.5, −1.5, 1.5, .5): 3 / 5.
        assert!((pearson(&a, &b).unwrap() - 0.6).abs() < 1e-12);
        assert!((spearman(&a, &b).unwrap() - 0.6).abs() < 1e-12);
        assert!((pearson(&a, &[2.0, 4.0, 6.0, 8.0]).unwrap() - 1.0).abs() < 1e-12);
        assert!((pearson(&a, &[8.0, 6.0, 4.0, 2.0]).unwrap() + 1.0).abs() < 1e-12);
        assert!((spearman(&a, &[1.0, 10.0, 100.0, 1e30]).unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn equal_values_share_their_mean_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0, 3.0, 0.0, -0.0]), [6.0, 3.0, 6.0, 4.0, 6.0, 1.5, 1.5]);
        // Ranks (1.5, 1.5, 3) and (1, 2, 3): deviations (−.5, −.5, 1) and (−1, 0, 1), 1.5 / √(1.5 · 2).
        let got = spearman(&[5.0, 5.0, 6.0], &[1.0, 2.0, 3.0]).unwrap();
        assert!((got - 1.5 / 3f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn there_is_none_without_two_different_values() {
        assert_eq!(pearson(&[], &[]), None);
        assert_eq!(pearson(&[1.0], &[2.0]), None);
        assert_eq!(pearson(&[0.1; 7], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), None);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[4.0; 3]), None);
        assert_eq!(pearson(&[1.0, f32::NAN, 3.0], &[4.0, 5.0, 6.0]), None);
        assert_eq!(spearman(&[1.0, f32::NAN, 3.0], &[4.0, 5.0, 6.0]), None);
        assert_eq!(spearman(&[1.0, f32::INFINITY, 3.0], &[4.0, 5.0, 6.0]), None);
    }

    #[test]
    fn large_means_leave_their_digits() {
        let a: Vec<f32> = (0..1000).map(|i| 1e6 + (i % 7) as f32).collect();
        let b: Vec<f32> = a.iter().map(|v| v * 2.0).collect();
        assert!((pearson(&a, &b).unwrap() - 1.0).abs() < 1e-12);
    }
}
