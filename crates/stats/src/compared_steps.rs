//! Comparison of two short series of steps, such as the windows of two profilers.

use serde::Serialize;

use crate::block_bootstrap::BlockBootstrap;
use crate::student::{ALPHA, Interval, Student};
use crate::{Difference, Ratio, mean};

/// How the steps of one window differ from those of another. It says what further steps of the same two runs would have given, and
/// nothing of other runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedSteps {
    /// Mean of the one side minus that of the other, in the unit of the values. Its interval is `None` below two steps on a side, and
    /// where no step differs from another on either.
    pub difference: Difference,
    /// How many times as fast the one side is: mean of the other over that of the one; `None` where one of them is not above 0. Its
    /// interval and p value are `None` below two steps on a side, and where no step differs from another on either.
    pub ratio: Option<Ratio>,
    /// Steps of the two sides.
    pub steps: (usize, usize),
}

/// Compare the times of the steps of `side` with those of `base`, one value per step and in their order; `None` if a side has no step or
/// a value is not finite.
///
/// Error of each mean: that of the circular block bootstrap, because steps depend on those before them, times √(n/(n − 1)) because a
/// window has few steps; its degrees of freedom are n − 1 at most. Error of the difference: Welch's, with Satterthwaite's degrees of
/// freedom. With blocks of one step, which all series of up to five steps have, this is Welch's t.
///
/// The ratio is that of the arithmetic means, because an operation may take no time in a step. Its interval is exp of that of the
/// difference of the logarithms of the two means, whose errors are the relative errors of the means (delta method).
pub fn compare_steps(side: &[f64], base: &[f64]) -> Option<ComparedSteps> {
    if side.iter().chain(base).any(|value| !value.is_finite()) {
        return None;
    }
    let (of_side, of_base) = (StepMean::from_steps(side)?, StepMean::from_steps(base)?);
    let value = of_side.mean - of_base.mean;
    let spread = welch(value, of_side, of_base).filter(|student| student.error > 0.0);
    let interval = spread.map(|student| Interval::symmetric(value, student.half_width(ALPHA)));
    let ratio = (of_side.mean > 0.0 && of_base.mean > 0.0).then(|| {
        let value = of_base.mean / of_side.mean;
        let logs = welch(value.ln(), of_side.relative(), of_base.relative()).and_then(Student::with_spread);
        let interval = logs.map(|student| Interval::from_log(student.value, student.half_width(ALPHA)));
        Ratio { value, interval, p: logs.map(|student| student.p()) }
    });
    Some(ComparedSteps { difference: Difference { value, interval }, ratio, steps: (side.len(), base.len()) })
}

/// Mean of the steps of one side.
#[derive(Clone, Copy, Debug)]
struct StepMean {
    mean: f64,
    /// Standard error of the mean and the degrees of freedom of that; `None` below two steps.
    error: Option<(f64, f64)>,
}

impl StepMean {
    fn from_steps(steps: &[f64]) -> Option<Self> {
        let n = steps.len() as f64;
        let error = BlockBootstrap::from_series(steps).map(|blocks| {
            let few = (n / (n - 1.0)).sqrt();
            (blocks.error * few, (n - 1.0).min(blocks.freedom()))
        });
        Some(Self { mean: mean(steps)?, error })
    }

    /// The same with the error relative to the mean, which is the error of its logarithm.
    fn relative(self) -> Self {
        Self { error: self.error.map(|(error, freedom)| (error / self.mean, freedom)), ..self }
    }
}

/// A difference of two means; `None` where the error of one is not known.
fn welch(value: f64, side: StepMean, base: StepMean) -> Option<Student> {
    let ((side, side_freedom), (base, base_freedom)) = (side.error?, base.error?);
    Some(Student::difference(value, (side * side, side_freedom), (base * base, base_freedom)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference;

    #[test]
    fn few_steps_are_compared_by_welch() {
        let (side, base) = ([12.0, 12.9, 12.2], [10.0, 10.4, 9.8, 10.1]);
        let found = compare_steps(&side, &base).unwrap();
        let (ours, welch) = (found.difference.interval.unwrap(), difference(&side, &base).unwrap().interval.unwrap());
        for (got, want) in [(ours.low, welch.low), (ours.high, welch.high)] {
            assert!((got - want).abs() < 1e-9, "{got} is not {want}");
        }
        assert_eq!(found.steps, (3, 4));
        let ratio = found.ratio.unwrap();
        let (value, interval) = (ratio.value, ratio.interval.unwrap());
        assert!((value - (40.3 / 4.0) / (37.1 / 3.0)).abs() < 1e-12, "{value}");
        assert!(interval.low < value && value < interval.high && interval.high < 1.0 && ratio.p.unwrap() < 0.05);
        // Symmetric on the log scale, and inverted by swapping the sides.
        assert!((interval.low * interval.high / (value * value) - 1.0).abs() < 1e-9, "{ratio:?}");
        let swapped = compare_steps(&base, &side).unwrap().ratio.unwrap();
        assert!((swapped.interval.unwrap().low * interval.high - 1.0).abs() < 1e-9);
    }

    #[test]
    fn steps_that_hang_together_tell_less() {
        // Means of neighbours of the same noise: as many steps, and far fewer independent ones.
        let noise: Vec<f64> = (0..70u64).map(|i| (i * i * 7919 % 1009) as f64).collect();
        let smooth: Vec<f64> = noise.windows(11).map(|near| 100.0 + near.iter().sum::<f64>() / 11.0).collect();
        let base = vec![400.0; smooth.len()];
        let found = compare_steps(&smooth, &base).unwrap().difference.interval.unwrap();
        let welch = difference(&smooth, &base).unwrap().interval.unwrap();
        let wider = (found.high - found.low) / (welch.high - welch.low);
        assert!(wider > 1.5, "{wider}");
    }

    #[test]
    fn one_step_has_no_interval() {
        let found = compare_steps(&[3.0], &[2.0, 2.5]).unwrap();
        assert_eq!((found.difference.interval, found.difference.value), (None, 0.75));
        assert_eq!(found.ratio, Some(Ratio { value: 2.25 / 3.0, interval: None, p: None }));
        assert_eq!((compare_steps(&[], &[1.0]), compare_steps(&[1.0], &[f64::NAN])), (None, None));
    }

    #[test]
    fn what_one_side_never_does_has_a_difference_and_no_ratio() {
        let found = compare_steps(&[0.0; 3], &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((found.ratio, found.difference.value), (None, -2.0));
        let interval = found.difference.interval.unwrap();
        // Student's t of the three: 2 ± 4.302653/√3.
        assert!((interval.low + 2.0 + 4.302_652_729_911_275 / 3.0_f64.sqrt()).abs() < 1e-8, "{interval:?}");
        // Without spread nothing can be said of chance.
        let equal = compare_steps(&[2.0; 4], &[1.0; 4]).unwrap();
        assert_eq!(equal.ratio, Some(Ratio { value: 0.5, interval: None, p: None }));
        assert_eq!(equal.difference, Difference { value: 1.0, interval: None });
    }
}
