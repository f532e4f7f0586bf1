//! Mean, median, quantiles, and robust distances from the median.

use statrs::statistics::{Data, OrderStatistics, Statistics};

/// Standard deviation of a normal distribution over its median absolute deviation.
const MEDIAN_TO_SD: f64 = 1.482_602_218_505_602;
/// Standard deviation of a normal distribution over its mean absolute deviation.
const MEAN_TO_SD: f64 = 1.253_314_137_315_5;

/// Arithmetic mean, Σx/n; `None` for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.mean())
}

/// Middle value in sorted order, or the mean of the two middle ones; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| Data::new(values.to_vec()).median())
}

/// Quantile `p` in [0, 1]; `None` for no values.
///
/// Linear between the order statistics, at position p·(n − 1) counted from 0 (numpy's default; type 7 of R. J. Hyndman, Y. Fan, *Sample
/// quantiles in statistical packages*, The American Statistician 50 (1996) 361–365).
pub fn quantile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let share = position - below as f64;
    Some(sorted[below] + share * (sorted[above] - sorted[below]))
}

/// Modified z scores: (x − median) / (1.4826 · MAD), without unit, one for each value.
///
/// MAD is the median absolute deviation from the median. Where it is 0, because more than half of the values are equal, the mean
/// absolute deviation times 1.2533 takes its place. All scores are 0 where all values are equal.
///
/// Source: B. Iglewicz, D. C. Hoaglin, *How to detect and handle outliers*, ASQC Quality Press (1993).
pub fn modified_z(values: &[f64]) -> Vec<f64> {
    let Some(middle) = median(values) else { return Vec::new() };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let by_median = median(&distances).unwrap_or_default() * MEDIAN_TO_SD;
    let sd = if by_median > 0.0 { by_median } else { mean(&distances).unwrap_or_default() * MEAN_TO_SD };
    values.iter().map(|value| if sd > 0.0 { (value - middle) / sd } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_numpy() {
        // numpy.percentile([3, 1, 2, 10, 7, 4], [5, 50, 95])
        let values = [3.0, 1.0, 2.0, 10.0, 7.0, 4.0];
        for (p, expected) in [(0.05, 1.25), (0.5, 3.5), (0.95, 9.25)] {
            assert!((quantile(&values, p).unwrap() - expected).abs() < 1e-12);
        }
        assert_eq!(median(&values), Some(3.5));
        assert_eq!(mean(&values), Some(4.5));
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!((quantile(&[], 0.5), median(&[]), mean(&[])), (None, None, None));
    }

    #[test]
    fn scores_are_distances_in_robust_deviations() {
        // Median 3, absolute deviations 2, 1, 0, 1, 97: their median is 1.
        let scores = modified_z(&[1.0, 2.0, 3.0, 4.0, 100.0]);
        assert!((scores[4] - 97.0 / MEDIAN_TO_SD).abs() < 1e-9 && scores[2] == 0.0, "{scores:?}");
        // More than half are equal: the mean deviation, 97/5, stands in.
        let scores = modified_z(&[3.0, 3.0, 3.0, 3.0, 100.0]);
        assert!((scores[4] - 5.0 / MEAN_TO_SD).abs() < 1e-9, "{scores:?}");
        assert_eq!(modified_z(&[2.0; 3]), [0.0; 3]);
        assert!(modified_z(&[]).is_empty());
    }
}
