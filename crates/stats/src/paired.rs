use super::student::Student;
use super::{ALPHA, Interval, Ratio};

/// Ratio of rates that were measured in pairs: (side, base) of the same repeat of interleaved trials.
///
/// Student's t on the differences of the log rates, taken back by the exponential: what hits both trials of a repeat alike (a
/// busy file system, a warm machine) cancels. Without an interval below two pairs, and where
/// all pairs have the same ratio; none without a pair, or if a rate is not
/// positive.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let fine = |rate: f64| rate.is_finite() && rate > 0.0;
    if pairs.is_empty() || pairs.iter().any(|(side, base)| !fine(*side) || !fine(*base)) {
        return None;
    }
    if let [(side, base)] = pairs {
        return Some(Ratio { value: side / base, interval: None, p: None });
    }
    let logs: Vec<f64> = pairs.iter().map(|(side, base)| (side / base).ln()).collect();
    let student = Student::of_mean(&logs)?;
    let spread = student.with_spread();
    let interval = |student: Student| {
        let half = student.half_width(ALPHA);
        Interval { low: (student.value - half).exp(), high: (student.value + half).exp() }
    };
    Some(Ratio { value: student.value.exp(), interval: spread.map(interval), p: spread.map(|student| student.p()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hits_both_alike_cancels() {
        // Each repeat is slower than the one before, on both sides.
        let pairs = [(12.0, 10.0), (6.1, 5.0), (2.38, 2.0), (1.21, 1.0)];
        let paired = paired_ratio(&pairs).unwrap();
        let (side, base): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let apart = crate::stats::ratio(&side, &base).unwrap();
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
        assert_eq!(crate::stats::verdict(&found, (3, 3)), crate::stats::Verdict::NoSpread);
    }

    #[test]
    fn one_pair_is_a_ratio_without_interval() {
        assert_eq!(paired_ratio(&[(0.24, 0.42)]), Some(Ratio { value: 0.24 / 0.42, interval: None, p: None }));
        assert_eq!((paired_ratio(&[]), paired_ratio(&[(1.0, 0.0)])), (None, None));
    }
}
