use serde::Serialize;

use super::ALPHA;
use super::student::Student;

/// A 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// How many times as fast one side is as the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Ratio of the geometric means of the rates; of the two values where there is one run each.
    pub value: f64,
    /// Welch's t interval of the difference of the log rates, taken back; none below two runs on a side, and where no run differs from
    /// another on either side.
    pub interval: Option<Interval>,
    /// Two-sided p value of the ratio being 1, by the same t; none where there is no interval. Below 0.05 exactly where the interval
    /// excludes 1. A verdict needs it corrected for the table ([`judge`](super::judge)).
    pub p: Option<f64>,
}

/// Ratio of the rates of `side` to those of `base`, one value per run; none if a side has no run or a rate is not positive.
pub fn ratio(side: &[f64], base: &[f64]) -> Option<Ratio> {
    if side.is_empty() || base.is_empty() || side.iter().chain(base).any(|r| !r.is_finite() || *r <= 0.0) {
        return None;
    }
    let logs = |rates: &[f64]| rates.iter().map(|r| r.ln()).collect::<Vec<_>>();
    let (a, b) = (logs(side), logs(base));
    // A single value needs no detour over its logarithm, which would cost its last digits.
    if let ([side], [base]) = (side, base) {
        return Some(Ratio { value: side / base, interval: None, p: None });
    }
    let mean = |logs: &[f64]| logs.iter().sum::<f64>() / logs.len() as f64;
    let difference = mean(&a) - mean(&b);
    let welch = Student::of_difference(&a, &b).and_then(Student::with_spread);
    let interval = |welch: Student| {
        let half = welch.half_width(ALPHA);
        Interval { low: (difference - half).exp(), high: (difference + half).exp() }
    };
    Some(Ratio { value: difference.exp(), interval: welch.map(interval), p: welch.map(|welch| welch.p()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Verdict, verdict};

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
}
