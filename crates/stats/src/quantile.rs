use statrs::statistics::{Data, OrderStatistics, Statistics};

/// Arithmetic mean; none of no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.mean())
}

/// Middle value, or the mean of the two middle ones; none of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| Data::new(values.to_vec()).median())
}

/// Quantile `p` in [0, 1], linear between the order statistics (numpy's default); none of no values.
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
}
