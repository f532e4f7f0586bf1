use serde::Serialize;

use super::{MIN_STEPS_FOR_SHAPE, Periods, mean, median};

/// Modified z score beyond which a value is an outlier.
const SCORE: f64 = 3.5;
/// Standard deviation of a normal distribution over its median absolute deviation, and over its mean absolute deviation.
const MEDIAN_TO_SD: f64 = 1.482_602_218_505_602;
const MEAN_TO_SD: f64 = 1.253_314_137_315_5;
/// Share of the steps above which slow ones are a part of the work rather than outliers.
const FEW: f64 = 0.05;
/// Share of the mean time that they must be the cause of to be spoken of.
const HARM: f64 = 0.05;

/// Values that lie apart from the others. They are counted, and never left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outliers {
    /// Their places in the series, in order.
    pub places: Vec<usize>,
    /// What the mean takes more for them, as a share of it: their time beyond the median over the whole time.
    pub harm: f64,
    /// The largest one over the median.
    pub largest: f64,
}

/// Modified z scores: distances from the median, in standard deviations as the median absolute deviation gives them (as the
/// mean one does, where more than half of the values are equal); all 0 where all values are equal.
///
/// Source: B. Iglewicz, D. C. Hoaglin, *How to detect and handle outliers*, ASQC Quality Press (1993).
pub fn modified_z(values: &[f64]) -> Vec<f64> {
    let Some(middle) = median(values) else { return Vec::new() };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let by_median = median(&distances).unwrap_or_default() * MEDIAN_TO_SD;
    let sd = if by_median > 0.0 { by_median } else { mean(&distances).unwrap_or_default() * MEAN_TO_SD };
    values.iter().map(|value| if sd > 0.0 { (value - middle) / sd } else { 0.0 }).collect()
}

/// Slow steps that make a mean what it is; none if there are none, if they are more than 5 % of the steps (then they are no
/// exception), or if the mean is hardly larger for them (5 %). `times` in order; none below [`MIN_STEPS_FOR_SHAPE`].
///
/// Slow steps that come once a period are a part of the work, and not among them: those at whose place in the period, or beside it,
/// half of the periods have one. `periods` are known ones, or [those that the series shows](Periods::find). With fewer than two periods none
/// is an outlier.
pub fn slow_outliers(times: &[f64], periods: Option<&Periods>) -> Option<Outliers> {
    if times.len() < MIN_STEPS_FOR_SHAPE {
        return None;
    }
    let scores = modified_z(times);
    let places: Vec<usize> = (0..times.len()).filter(|i| scores[*i] > SCORE).collect();
    let found = if periods.is_none() { Periods::find(times) } else { None };
    let places = match periods.or(found.as_ref()) {
        Some(periods) => periods.unexplained(&places),
        None => places,
    };
    let (middle, total) = (median(times)?, times.iter().sum::<f64>());
    let harm = places.iter().map(|i| times[*i] - middle).sum::<f64>() / total;
    let largest = places.iter().map(|i| times[*i]).fold(0.0, f64::max) / middle;
    let few = places.len() as f64 <= FEW * times.len() as f64;
    (few && middle > 0.0 && harm >= HARM).then_some(Outliers { places, harm, largest })
}

/// Values, such as the rates of runs, that lie apart from the others by their modified z score and by 5 % of the median; empty
/// below five values, of which no one can be told apart.
pub fn outlying(values: &[f64]) -> Vec<usize> {
    let Some(middle) = median(values).filter(|_| values.len() >= 5) else { return Vec::new() };
    let scores = modified_z(values);
    (0..values.len()).filter(|i| scores[*i].abs() > SCORE && (values[*i] / middle - 1.0).abs() > HARM).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
