//! How two sides differ: ratio of rates and difference of values over runs, the smallest ratio that their runs can show, and the comparison
//! of two short series of steps.

use serde::{Deserialize, Serialize};
use statrs::statistics::Statistics;

use crate::block_bootstrap::BlockBootstrap;
use crate::mean;
use crate::student::{ALPHA, Interval, NoncentralT, Student, critical};

/// Power at which a ratio counts as detectable.
pub const POWER: f64 = 0.8;

/// Intervals of the integral of the power: with the t of a verdict it is right to about 10⁻¹⁰. A table has a noncentrality for each
/// of its rows, and some tables have thousands.
const POWER_INTERVALS: usize = 400;

/// How close to [`POWER`] the power at the noncentrality is: closer than the integral is right.
const POWER_TOLERANCE: f64 = 1e-12;

/// Most steps of the search for the noncentrality. Mostly eight or so are enough.
const MAX_STEPS: u32 = 100;

/// Ratio of the rates of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Ratio of the geometric means of the rates; of the two values where there is one run each.
    pub value: f64,
    /// exp of the 95 % interval of the difference of the mean log rates; `None` below two runs on a side, and where no run differs from
    /// another on either side.
    pub interval: Option<Interval>,
    /// Two-sided p value of the ratio being 1, by the same t; `None` where there is no interval. Below 0.05 exactly where the interval
    /// excludes 1. A verdict needs it corrected for the table ([`judge`](crate::judge)).
    pub p: Option<f64>,
}

/// Difference of two sides, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Difference of the means.
    pub value: f64,
    /// 95 % interval by Student's t, of Welch where nothing is paired; `None` below two runs on a side, or two pairs.
    pub interval: Option<Interval>,
}

/// Ratio of the rates of `side` to those of `base`, one value per run; `None` if a side has no run or a rate is not positive.
///
/// exp(d ± t·e) with d the difference of the mean log rates, e Welch's standard error of it and t the 97.5 % quantile of Student's t with
/// Satterthwaite's degrees of freedom. Swapping the sides inverts the ratio and its interval.
///
/// Sources: B. L. Welch, Biometrika 34 (1947) 28–35; F. E. Satterthwaite, Biometrics Bulletin 2 (1946) 110–114.
pub fn ratio(side: &[f64], base: &[f64]) -> Option<Ratio> {
    if side.is_empty() || base.is_empty() || !all_positive(side.iter().chain(base)) {
        return None;
    }
    let (a, b) = (logs(side), logs(base));
    // The logarithm of a single value would only cost its last digits.
    if let ([side], [base]) = (side, base) {
        return Some(Ratio { value: side / base, interval: None, p: None });
    }
    let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
    let difference = mean(&a) - mean(&b);
    let welch = Student::welch(&a, &b).and_then(Student::with_spread);
    let interval = welch.map(|welch| Interval::from_log(difference, welch.half_width(ALPHA)));
    Some(Ratio { value: difference.exp(), interval, p: welch.map(|welch| welch.p()) })
}

/// Ratio of rates that were measured in pairs, (side, base); `None` without a pair, or if a rate is not positive.
///
/// exp(d ± t·s/√n) with d and s the mean and the standard deviation of the n differences of the log rates and t the 97.5 % quantile of
/// Student's t with n − 1 degrees of freedom. What slows both of a pair alike (a busy file system, a warm machine) cancels. There is
/// no interval below two pairs, nor where all pairs have the same ratio.
///
/// Source: Student, *The probable error of a mean*, Biometrika 6 (1908) 1–25.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    paired_ratio_at(pairs, ALPHA)
}

/// [`paired_ratio`] with an interval of 1 − `alpha` in place of 95 %: for tests that are corrected for their number. The p value does not
/// depend on it.
pub fn paired_ratio_at(pairs: &[(f64, f64)], alpha: f64) -> Option<Ratio> {
    if pairs.is_empty() || !all_positive(pairs.iter().flat_map(|(side, base)| [side, base])) {
        return None;
    }
    if let [(side, base)] = pairs {
        return Some(Ratio { value: side / base, interval: None, p: None });
    }
    let student = Student::from_values(&log_ratios(pairs))?;
    let spread = student.with_spread();
    let interval = spread.map(|student| Interval::from_log(student.value, student.half_width(alpha)));
    Some(Ratio { value: student.value.exp(), interval, p: spread.map(|student| student.p()) })
}

/// Mean of `side` minus that of `base`, one value per run; `None` if a side has no run or a value is not finite.
///
/// d ± t·e by Welch, as in [`ratio`], of the values themselves.
pub fn difference(side: &[f64], base: &[f64]) -> Option<Difference> {
    if side.is_empty() || base.is_empty() || side.iter().chain(base).any(|value| !value.is_finite()) {
        return None;
    }
    let value = side.mean() - base.mean();
    let interval = Student::welch(side, base).map(|welch| Interval::symmetric(value, welch.half_width(ALPHA)));
    Some(Difference { value, interval })
}

/// Mean difference of values that were measured in pairs, (side, base); `None` without a pair, or if a value is not finite.
///
/// d ± t·s/√n of the differences, as in [`paired_ratio`], of the values themselves.
pub fn paired_difference(pairs: &[(f64, f64)]) -> Option<Difference> {
    let differences: Vec<f64> = pairs.iter().map(|(side, base)| side - base).collect();
    if differences.is_empty() || differences.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let value = (&differences).mean();
    let student = Student::from_values(&differences);
    Some(Difference { value, interval: student.map(|s| Interval::symmetric(value, s.half_width(ALPHA))) })
}

/// The smallest ratio above 1 that these runs would show at level [`ALPHA`] with probability [`POWER`], if the spread of both sides is the
/// one they have; `None` below two runs on a side, where no run differs from another, or if a rate is not positive.
///
/// exp(δ·e) with e Welch's standard error of the difference of the mean log rates and δ the noncentrality at which |t| exceeds its
/// critical value with probability POWER ([`noncentral_t`](crate::noncentral_t), with Satterthwaite's degrees of freedom). The inverse is
/// the largest ratio below 1 that they would show.
///
/// It is for one comparison; in a table that is corrected for its length a ratio must be somewhat larger. The spread is itself an
/// estimate, so with three runs a side this is the right order of magnitude rather than an exact figure.
pub fn minimum_detectable(side: &[f64], base: &[f64]) -> Option<f64> {
    if !all_positive(side.iter().chain(base)) {
        return None;
    }
    let welch = Student::welch(&logs(side), &logs(base))?.with_spread()?;
    Some((noncentrality(welch.freedom) * welch.error).exp())
}

/// [`minimum_detectable`] of runs that were measured in pairs, (side, base): exp(δ·s/√n) with n − 1 degrees of freedom for n pairs.
pub fn minimum_detectable_paired(pairs: &[(f64, f64)]) -> Option<f64> {
    if !all_positive(pairs.iter().flat_map(|(side, base)| [side, base])) {
        return None;
    }
    let student = Student::from_values(&log_ratios(pairs))?.with_spread()?;
    Some((noncentrality(student.freedom) * student.error).exp())
}

/// Difference, in standard errors, at which |t| exceeds its critical value with probability [`POWER`].
///
/// By regula falsi with the weights of Illinois: the end of the bracket that stays counts half each time, so that the other end does not
/// creep. The power grows with the difference, so there is one such difference.
///
/// Source: M. Dowell, P. Jarratt, BIT 11 (1971) 168–174.
fn noncentrality(freedom: f64) -> f64 {
    let t = critical(freedom, ALPHA);
    let of_t = NoncentralT::with_intervals(freedom, POWER_INTERVALS);
    let over = |delta: f64| 1.0 - of_t.cdf(t, delta) + of_t.cdf(-t, delta) - POWER;
    let (mut low, mut high) = ((0.0, over(0.0)), (t + 1.0, over(t + 1.0)));
    while high.1 < 0.0 {
        let further = 2.0 * high.0;
        (low, high) = (high, (further, over(further)));
    }
    let mut best = high.0;
    let mut was_below = None;
    for _ in 0..MAX_STEPS {
        best = (low.0 * high.1 - high.0 * low.1) / (high.1 - low.1);
        let at_best = over(best);
        if at_best.abs() <= POWER_TOLERANCE {
            break;
        }
        let is_below = at_best < 0.0;
        let twice = was_below == Some(is_below);
        if is_below {
            low = (best, at_best);
            high.1 *= if twice { 0.5 } else { 1.0 };
        } else {
            high = (best, at_best);
            low.1 *= if twice { 0.5 } else { 1.0 };
        }
        was_below = Some(is_below);
    }
    best
}

fn all_positive<'a>(mut rates: impl Iterator<Item = &'a f64>) -> bool {
    rates.all(|rate| rate.is_finite() && *rate > 0.0)
}

fn logs(rates: &[f64]) -> Vec<f64> {
    rates.iter().map(|rate| rate.ln()).collect()
}

fn log_ratios(pairs: &[(f64, f64)]) -> Vec<f64> {
    pairs.iter().map(|(side, base)| (side / base).ln()).collect()
}

/// Difference and ratio of the steps of two windows. The intervals are about further steps of the same two runs, and say nothing of other
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedSteps {
    /// Mean of the one side minus that of the other, in the unit of the values. Its interval is `None` below two steps on a side, and
    /// where no step differs from another on either.
    pub difference: Difference,
    /// Speed of the one side over that of the other, by their mean times (mean of the other over mean of the one); `None` where one of them is not above 0. Its
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

    /// Make the error relative to the mean: the error of the logarithm.
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
    use crate::{Verdict, verdict};

    /// Sides, base, and what scipy.stats.ttest_ind(log(side), log(base), equal_var=False) says: ratio, low, high.
    #[test]
    fn intervals_are_those_of_scipy() {
        let cases: [(&[f64], &[f64], [f64; 3]); 3] = [
            (
                &[12.0, 12.9, 12.2],
                &[10.0, 10.4, 9.8, 10.1],
                [1.227_152_110_069_452_7, 1.136_791_538_843_014_3, 1.324_695_205_578_820_1],
            ),
            (&[5.0, 5.5], &[4.0, 4.1], [1.294_924_425_707_030_7, 0.804_853_715_651_087_1, 2.083_396_318_716_389_8]),
            (
                &[5.0, 5.5, 4.6],
                &[4.9, 5.2, 5.3],
                [0.978_449_488_962_646_5, 0.810_690_843_417_246_7, 1.180_922_925_459_178_9],
            ),
        ];
        let expected = [Verdict::Faster, Verdict::TooFewRuns, Verdict::NoDifferenceShown];
        for ((side, base, [value, low, high]), word) in cases.into_iter().zip(expected) {
            let found = ratio(side, base).unwrap();
            let interval = found.interval.unwrap();
            for (got, want) in [(found.value, value), (interval.low, low), (interval.high, high)] {
                assert!((got - want).abs() < 1e-8 * want, "{got} is not {want}");
            }
            assert_eq!(verdict(&found, (side.len(), base.len())), word);
        }
    }

    #[test]
    fn one_run_gives_a_ratio_without_interval() {
        let found = ratio(&[0.24], &[0.42]).unwrap();
        assert_eq!(found, Ratio { value: 0.24 / 0.42, interval: None, p: None });
        assert_eq!(verdict(&found, (1, 1)), Verdict::TooFewRuns);
        assert_eq!(ratio(&[], &[1.0]), None);
        assert_eq!(ratio(&[0.0], &[1.0]), None);
    }

    #[test]
    fn without_spread_there_is_no_p() {
        // Rounded: nothing can be said of how much is chance, however large or small the ratio.
        for (side, base) in
            [([2.0; 3], [1.0; 3]), ([1.01; 3], [1.0; 3]), ([1.0; 3], [1.0; 3]), ([0.1 + 0.2, 0.3, 0.3], [0.3; 3])]
        {
            let found = ratio(&side, &base).unwrap();
            assert_eq!((found.interval, found.p), (None, None), "{found:?}");
            assert_eq!(verdict(&found, (3, 3)), Verdict::NoSpread);
        }
        // One side's spread is enough for Welch.
        let found = ratio(&[2.0, 2.01, 1.99], &[1.0; 3]).unwrap();
        assert_eq!((found.p.is_some(), verdict(&found, (3, 3))), (true, Verdict::Faster));
    }

    #[test]
    fn swapping_the_sides_inverts_everything() {
        let (a, b) = ([4.0, 4.2, 4.1], [2.0, 2.3, 2.1]);
        let (ab, ba) = (ratio(&a, &b).unwrap(), ratio(&b, &a).unwrap());
        assert!((ab.value * ba.value - 1.0).abs() < 1e-12);
        assert!((ab.interval.unwrap().low * ba.interval.unwrap().high - 1.0).abs() < 1e-9);
        assert_eq!((verdict(&ab, (3, 3)), verdict(&ba, (3, 3))), (Verdict::Faster, Verdict::Slower));
    }

    #[test]
    fn what_hits_both_alike_cancels() {
        // Each repeat is slower than the one before, on both sides.
        let pairs = [(12.0, 10.0), (6.1, 5.0), (2.38, 2.0), (1.21, 1.0)];
        let paired = paired_ratio(&pairs).unwrap();
        let (side, base): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let apart = crate::ratio(&side, &base).unwrap();
        assert!((paired.value - apart.value).abs() < 1e-12);
        let (paired, apart) = (paired.interval.unwrap(), apart.interval.unwrap());
        assert!(paired.low > 1.18 && paired.high < 1.23, "{paired:?}");
        assert!(apart.low < 0.3 && apart.high > 5.0, "{apart:?}");
    }

    #[test]
    fn equal_pairs_have_no_p() {
        let found = paired_ratio(&[(2.0, 1.0), (4.0, 2.0), (0.6, 0.3)]).unwrap();
        assert!((found.value - 2.0).abs() < 1e-12, "{found:?}");
        assert_eq!((found.interval, found.p), (None, None));
        assert_eq!(crate::verdict(&found, (3, 3)), crate::Verdict::NoSpread);
    }

    #[test]
    fn a_smaller_level_gives_a_wider_interval_around_the_same_ratio() {
        // Log ratios 1, 2, 3 with two degrees of freedom: the quantiles of t at 97.5 % and 99.5 % are 4.302653 and 9.924843.
        let pairs: Vec<(f64, f64)> = [1.0_f64, 2.0, 3.0].iter().map(|log| (log.exp(), 1.0)).collect();
        for (alpha, t) in [(0.05, 4.302_652_729_911_275), (0.01, 9.924_843_200_918_07)] {
            let found = paired_ratio_at(&pairs, alpha).unwrap();
            let interval = found.interval.unwrap();
            assert!((found.value.ln() - 2.0).abs() < 1e-12, "{found:?}");
            assert!((interval.high.ln() - 2.0 - t / 3.0_f64.sqrt()).abs() < 1e-6, "{found:?}");
        }
        assert_eq!(paired_ratio_at(&pairs, ALPHA), paired_ratio(&pairs));
    }

    #[test]
    fn one_pair_is_a_ratio_without_interval() {
        assert_eq!(paired_ratio(&[(0.24, 0.42)]), Some(Ratio { value: 0.24 / 0.42, interval: None, p: None }));
        assert_eq!((paired_ratio(&[]), paired_ratio(&[(1.0, 0.0)])), (None, None));
    }

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

    #[test]
    fn more_runs_and_less_spread_show_less() {
        let three = minimum_detectable(&[10.0, 10.2, 10.4], &[10.0, 10.2, 10.4]).unwrap();
        let wide = minimum_detectable(&[10.0, 11.0, 12.0], &[10.0, 11.0, 12.0]).unwrap();
        let six = [10.0, 10.2, 10.4, 10.0, 10.2, 10.4];
        let six = minimum_detectable(&six, &six).unwrap();
        assert!(1.0 < six && six < three && three < wide, "{six} {three} {wide}");
        assert_eq!(minimum_detectable(&[10.0], &[10.0, 10.2]), None);
        assert_eq!(minimum_detectable(&[10.0, 10.0], &[10.0, 10.0]), None);
        assert_eq!(minimum_detectable_paired(&[(2.0, 1.0), (4.0, 2.0)]), None);
    }

    #[test]
    fn of_pairs_what_hits_both_alike_does_not_count() {
        let pairs = [(12.0, 10.0), (6.1, 5.0), (2.38, 2.0), (1.21, 1.0)];
        let (side, base): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let (paired, apart) = (minimum_detectable_paired(&pairs).unwrap(), minimum_detectable(&side, &base).unwrap());
        assert!(1.0 < paired && paired < 1.05 && apart > 3.0, "{paired} {apart}");
        assert_eq!((minimum_detectable_paired(&pairs[..1]), minimum_detectable_paired(&[])), (None, None));
    }

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
