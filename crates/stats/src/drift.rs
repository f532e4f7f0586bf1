use serde::Serialize;

use super::parts::{differ, means_of_periods, means_of_steps};
use super::{MIN_PERIODS_FOR_SHAPE, MIN_STEPS_FOR_SHAPE, Periods, mean};

/// Difference of the halves, as a share, below which a drift is not spoken of.
const HARM: f64 = 0.05;
/// Level at which the halves differ. Below 0.05, because every rank of every run is looked at.
const LEVEL: f64 = 5e-4;
/// Whole periods below which their means are not compared: what is left of fewer beside a line in each half is too little to tell a
/// spread by.
const MIN_WHOLE_PERIODS: usize = 16;
/// Of a line in each half: two slopes, and one mean more than a series has.
const FITTED: usize = 3;

/// How step times change in the course of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// Mean time of a step in the second half over that in the first.
    pub ratio: f64,
}

/// A series whose halves differ; none if they do not, or if it has fewer than [`MIN_STEPS_FOR_SHAPE`] values.
///
/// The means of the halves are compared by Student's t with the long-run variance about a straight line in each (level 0.0005): a
/// steady trend shows so, and a change of pace within the run as well. Halves that differ by less than 5 % do not drift.
///
/// Where the series has `periods` (known ones, or [those that it shows](Periods::find)), that is done with what is left when each step's
/// usual time within its period is taken off, and, from sixteen whole periods on, with the means of these. Below three periods no
/// drift is reported: the halves do not have the same share of slow steps.
pub fn drift(times: &[f64], periods: Option<&Periods>) -> Option<Drift> {
    if times.len() < MIN_STEPS_FOR_SHAPE {
        return None;
    }
    let found = if periods.is_none() { Periods::find(times) } else { None };
    match periods.or(found.as_ref()) {
        None => between_halves(&means_of_steps(times).0),
        Some(periods) if periods.count() < MIN_PERIODS_FOR_SHAPE as f64 => None,
        Some(periods) => {
            let adjusted = periods.adjusted(times)?;
            let of_periods = || between_halves(&means_of_periods(times, periods, MIN_WHOLE_PERIODS)?.0);
            between_halves(&means_of_steps(&adjusted.rest).0).or_else(of_periods)
        }
    }
}

fn between_halves(means: &[f64]) -> Option<Drift> {
    let (first, second) = means.split_at(means.len() / 2);
    let (before, after) = (mean(first)?, mean(second)?);
    let quiet = [about_line(first), about_line(second)].concat();
    let ratio = after / before;
    let harms = before > 0.0 && ratio.ln().abs() >= HARM.ln_1p();
    (harms && differ(first, second, &quiet, FITTED, LEVEL)).then_some(Drift { ratio })
}

/// What is left of values when the straight line of least squares is taken off.
fn about_line(values: &[f64]) -> Vec<f64> {
    let centre = (values.len() as f64 - 1.0) / 2.0;
    let middle = mean(values).unwrap_or_default();
    let places = || values.iter().enumerate().map(|(i, value)| (i as f64 - centre, value - middle));
    let squares: f64 = places().map(|(x, _)| x * x).sum();
    let slope = if squares > 0.0 { places().map(|(x, y)| x * y).sum::<f64>() / squares } else { 0.0 };
    places().map(|(x, y)| y - slope * x).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(i: usize) -> f64 {
        1.0 + ((i * i * 7919 % 1009) as f64 - 504.0) / 5000.0
    }

    #[test]
    fn a_trend_is_found_and_measured() {
        let rising: Vec<f64> = (0..500).map(|i| noise(i) + 0.4 * i as f64 / 500.0).collect();
        let found = drift(&rising, None).unwrap();
        // 1.3 on average in the second half, 1.1 in the first.
        assert!((found.ratio - 1.3 / 1.1).abs() < 0.02, "{found:?}");
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert!((drift(&falling, None).unwrap().ratio * 1.3 / 1.1 - 1.0).abs() < 0.02);
        let step: Vec<f64> = (0..500).map(|i| noise(i) * if i < 250 { 1.0 } else { 1.4 }).collect();
        assert!((drift(&step, None).unwrap().ratio - 1.4).abs() < 0.02);
    }

    #[test]
    fn what_only_swings_does_not_drift() {
        let steady: Vec<f64> = (0..500).map(noise).collect();
        let small: Vec<f64> = (0..500).map(|i| noise(i) + 0.05 * i as f64 / 500.0).collect();
        let waves: Vec<f64> = (0..500).map(|i| noise(i) + 0.3 * (i as f64 / 20.0).sin()).collect();
        let periodic: Vec<f64> = (0..500).map(|i| if i % 10 == 0 { 100.0 } else { 1.0 } * noise(i)).collect();
        let spike: Vec<f64> = (0..500).map(|i| if i == 400 { 100.0 } else { noise(i) }).collect();
        for series in [steady, small, waves, periodic, spike, vec![1.0; 100], vec![1.0; 5]] {
            assert_eq!(drift(&series, None), None);
        }
    }
}
