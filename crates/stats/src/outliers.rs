//! Slow steps of a run, and runs apart from the others.

use serde::Serialize;

use crate::{MIN_STEPS_FOR_SHAPE, Periods, median, modified_z};

/// Modified z score beyond which a value is an outlier (Iglewicz & Hoaglin).
const SCORE: f64 = 3.5;
/// Share of the steps above which slow ones are a part of the work rather than outliers.
const MAX_SHARE: f64 = 0.05;
/// Share of the mean time below which outliers are not reported.
const MIN_EFFECT: f64 = 0.05;

/// Values apart from the others. They are counted, and never left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outliers {
    /// Their indices in the series, in order.
    pub places: Vec<usize>,
    /// Their time beyond the median over the whole time, without unit: how much larger the mean is because of them.
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
