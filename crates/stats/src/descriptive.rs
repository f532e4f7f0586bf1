//! Mean, median, quantiles, robust distances from the median, and the outliers that these distances show: slow steps of a run, runs apart
//! from the others.

use serde::Serialize;
use statrs::statistics::{Data, OrderStatistics, Statistics};

use crate::{MIN_STEPS_FOR_SHAPE, Periods};

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

/// Modified z score beyond which a value is an outlier (Iglewicz & Hoaglin).
const SCORE: f64 = 3.5;
/// Share of the steps above which slow ones are a part of the work rather than outliers.
const MAX_SHARE: f64 = 0.05;
/// Share of the mean time below which outliers are not reported.
const MIN_EFFECT: f64 = 0.05;

/// Values apart from the others. They stay in every figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outliers {
    /// Indices of the outliers in the series, ascending.
    pub places: Vec<usize>,
    /// Time of the outliers beyond the median, over the whole time: the share by which they raise the mean.
    pub harm: f64,
    /// The largest one over the median, without unit.
    pub largest: f64,
}

/// Slow steps that raise a mean; `None` if there are none, if they are more than 5 % of the steps, if they raise the mean by less than 5 %,
/// or below [`MIN_STEPS_FOR_SHAPE`] steps. `times` are in order, in any unit.
///
/// A step is slow where its modified z score exceeds 3.5 ([`modified_z`]). Slow steps that come once a period are a part of the work and
/// are left out: those at whose phase, or beside it, half of the periods have one. `periods` are known ones, or [those found in the
/// series](Periods::find). With fewer than two periods no step is an outlier.
pub fn slow_outliers(times: &[f64], periods: Option<&Periods>) -> Option<Outliers> {
    if times.len() < MIN_STEPS_FOR_SHAPE {
        return None;
    }
    let scores = modified_z(times);
    let slow: Vec<usize> = (0..times.len()).filter(|i| scores[*i] > SCORE).collect();
    let found = if periods.is_none() { Periods::find(times) } else { None };
    let places = match periods.or(found.as_ref()) {
        Some(periods) => periods.unexplained(&slow),
        None => slow,
    };
    let (middle, total) = (median(times)?, times.iter().sum::<f64>());
    let harm = places.iter().map(|i| times[*i] - middle).sum::<f64>() / total;
    let largest = places.iter().map(|i| times[*i]).fold(0.0, f64::max) / middle;
    let few = places.len() as f64 <= MAX_SHARE * times.len() as f64;
    (few && middle > 0.0 && harm >= MIN_EFFECT).then_some(Outliers { places, harm, largest })
}

/// Indices of values, such as the rates of runs, that lie apart from the others: beyond 3.5 in their modified z score, and beyond 5 % of
/// the median. Empty below five values, of which no one can be told apart.
pub fn outlying(values: &[f64]) -> Vec<usize> {
    let Some(middle) = median(values).filter(|_| values.len() >= 5) else { return Vec::new() };
    let scores = modified_z(values);
    (0..values.len()).filter(|i| scores[*i].abs() > SCORE && (values[*i] / middle - 1.0).abs() > MIN_EFFECT).collect()
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

    #[test]
    fn slow_steps_are_outliers_where_they_are_few_and_count() {
        let noise = |i: usize| 1.0 + ((i * i * 7919 % 1009) as f64 - 504.0) / 10_000.0;
        let series = |slow: fn(usize) -> bool, by: f64| -> Vec<f64> {
            (0..400).map(|i| noise(i) * if slow(i) { by } else { 1.0 }).collect()
        };
        let found = slow_outliers(&series(|i| i == 77 || i == 200, 30.0), None).unwrap();
        assert_eq!(found.places, [77, 200]);
        assert!((found.harm - 0.127).abs() < 0.005 && (found.largest - 30.0).abs() < 2.0, "{found:?}");
        assert_eq!(slow_outliers(&series(|i| i == 77, 3.0), None), None);
        assert_eq!(slow_outliers(&series(|i| i % 10 == 0, 30.0), None), None);
        assert_eq!(slow_outliers(&[1.0; 50], None), None);
    }

    #[test]
    fn a_run_apart_is_told_from_five_on() {
        assert_eq!(outlying(&[10.0, 10.1, 9.9, 7.0, 10.05]), [3]);
        assert!(outlying(&[10.0, 10.1, 9.9, 10.3, 10.05]).is_empty());
        assert!(outlying(&[10.0, 10.1, 9.9, 7.0]).is_empty());
    }
}
