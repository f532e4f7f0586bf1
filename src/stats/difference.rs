use serde::Serialize;
use statrs::statistics::Statistics;

use super::student::Student;
use super::{ALPHA, Interval};

/// How much larger one side is than the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Difference of the means.
    pub value: f64,
    /// Welch's t interval of it, 95 %; none below two runs on a side.
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
}
