use serde::Serialize;
use statrs::statistics::Statistics;

use super::student::Student;
use super::{ALPHA, Interval};

/// How much larger one side is than the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Difference of the means.
    pub value: f64,
    /// Student's t interval of it, 95 %, by Welch where nothing was paired; none below two runs on a side, or two pairs.
    pub interval: Option<Interval>,
}

/// Mean of `side` less that of `base`, one value per run; none if a side has no run or a value is not finite.
pub fn difference(side: &[f64], base: &[f64]) -> Option<Difference> {
    if side.is_empty() || base.is_empty() || side.iter().chain(base).any(|value| !value.is_finite()) {
        return None;
    }
    let value = side.mean() - base.mean();
    let half = Student::of_difference(side, base).map(|welch| welch.half_width(ALPHA));
    let interval = half.map(|half| Interval { low: value - half, high: value + half });
    Some(Difference { value, interval })
}

/// Mean difference of values that were measured in pairs, (side, base) of the same repeat of interleaved trials; none without a pair, or if
/// a value is not finite.
pub fn paired_difference(pairs: &[(f64, f64)]) -> Option<Difference> {
    let differences: Vec<f64> = pairs.iter().map(|(side, base)| side - base).collect();
    if differences.is_empty() || differences.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let value = (&differences).mean();
    let half = Student::of_mean(&differences).map(|student| student.half_width(ALPHA));
    Some(Difference { value, interval: half.map(|half| Interval { low: value - half, high: value + half }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_welch() {
        // Worked out by hand from Welch's formula, with the quantile of Student's t integrated numerically.
        let found = difference(&[12.0, 12.9, 12.2], &[10.0, 10.4, 9.8, 10.1]).unwrap();
        let interval = found.interval.unwrap();
        for (got, want) in
            [(found.value, 2.291666666666666), (interval.low, 1.306258878080543), (interval.high, 3.277074455252789)]
        {
            assert!((got - want).abs() < 1e-8, "{got} is not {want}");
        }
        assert_eq!(difference(&[3.0], &[1.0]), Some(Difference { value: 2.0, interval: None }));
        assert_eq!(difference(&[], &[1.0]), None);
    }

    #[test]
    fn what_hits_both_of_a_pair_alike_cancels() {
        let found = paired_difference(&[(12.0, 10.0), (31.0, 30.0), (53.0, 50.0)]).unwrap();
        // Differences 2, 1, 3: mean 2, standard error 1/√3; the 97.5 % quantile of t with two degrees of freedom is 4.302653.
        let (interval, half) = (found.interval.unwrap(), 4.302_652_729_911_275 / 3.0_f64.sqrt());
        for (got, want) in [(found.value, 2.0), (interval.low, 2.0 - half), (interval.high, 2.0 + half)] {
            assert!((got - want).abs() < 1e-8, "{got} is not {want}");
        }
        assert_eq!(paired_difference(&[(3.0, 1.0)]), Some(Difference { value: 2.0, interval: None }));
        assert_eq!((paired_difference(&[]), paired_difference(&[(f64::NAN, 1.0)])), (None, None));
    }
}
