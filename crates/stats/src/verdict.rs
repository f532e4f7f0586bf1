//! Verdicts on the ratios of a table, with p values corrected by Holm.

use serde::Serialize;

use crate::Ratio;
use crate::student::ALPHA;

/// Runs that both sides need before a word like "faster" is said.
///
/// With two runs a side the interval exists, but it rests on one degree of freedom each.
pub const MIN_RUNS_FOR_VERDICT: usize = 3;

/// Seconds that each run of both sides must have been measured for before such a word is said: the summed wall time of the measured steps.
///
/// Ten periods of 100 ms, in which Linux grants and withholds the processor time of a limited control group; a slice of the
/// scheduler (3 to 24 ms) that another process takes is then a few percent at most. A shorter run tells what the machine did at that
/// moment.
pub const MIN_SECONDS_FOR_VERDICT: f64 = 1.0;

/// Verdict on a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Above 1, and the p value, corrected for the table, is below [`ALPHA`].
    Faster,
    /// Below 1, and the p value, corrected for the table, is below [`ALPHA`].
    Slower,
    /// The corrected p value is not below [`ALPHA`].
    NoDifferenceShown,
    /// Fewer than [`MIN_RUNS_FOR_VERDICT`] runs on a side.
    TooFewRuns,
    /// A run of one side was measured for less than [`MIN_SECONDS_FOR_VERDICT`].
    TooShort,
    /// No run differs from another on either side, so that no test is possible: the figures were rounded, or copied from elsewhere.
    NoSpread,
}

impl Verdict {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifferenceShown => "no difference shown",
            Self::TooFewRuns => "too few runs",
            Self::TooShort => "measured too briefly",
            Self::NoSpread => "no test possible",
        }
    }

    /// In words that the name of the baseline follows.
    pub const fn against(self) -> &'static str {
        match self {
            Self::Faster => "faster than",
            Self::Slower => "slower than",
            Self::NoDifferenceShown => "no difference shown to",
            Self::TooFewRuns => "too few runs against",
            Self::TooShort => "measured too briefly against",
            Self::NoSpread => {
                "no test possible, because no run differs from another (rounded or imported figures?), against"
            }
        }
    }
}

/// A verdict with its p value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// p value of the ratio, corrected by Holm for the ratios of the table that may have a verdict; `None` below
    /// [`MIN_RUNS_FOR_VERDICT`] runs on a side, and without spread.
    pub p_holm: Option<f64>,
    /// True if the ratio's own interval excludes 1, but the corrected p value does not pass: alone it would have had a
    /// verdict, among so many it has none. A remark should say so.
    pub lone: bool,
}

/// A ratio with the number of runs on its two sides.
pub type RatioOfRuns = (Ratio, (usize, usize));

/// Verdict on each ratio of a table, each with the number of runs of its two sides.
///
/// The p values are corrected together ([`holm()`]), so that in a table without any difference a "faster" or "slower" stands
/// anywhere in it with probability [`ALPHA`] at most. Ratios with too few runs, or runs without spread, have no verdict and do not count.
pub fn judge(table: &[RatioOfRuns]) -> Vec<Judgement> {
    let testable = |(ratio, runs): &RatioOfRuns| ratio.p.filter(|_| runs.0.min(runs.1) >= MIN_RUNS_FOR_VERDICT);
    let tested: Vec<f64> = table.iter().filter_map(testable).collect();
    let mut corrected = holm(&tested).into_iter();
    let one = |entry: &RatioOfRuns| {
        // One corrected value for each that was tested, in the same order.
        let Some((p, p_holm)) = testable(entry).and_then(|p| Some((p, corrected.next()?))) else {
            let enough = entry.1.0.min(entry.1.1) >= MIN_RUNS_FOR_VERDICT;
            let verdict = if enough { Verdict::NoSpread } else { Verdict::TooFewRuns };
            return Judgement { verdict, p_holm: None, lone: false };
        };
        let verdict = match p_holm < ALPHA {
            true if entry.0.value > 1.0 => Verdict::Faster,
            true => Verdict::Slower,
            false => Verdict::NoDifferenceShown,
        };
        Judgement { verdict, p_holm: Some(p_holm), lone: p < ALPHA && p_holm >= ALPHA }
    };
    table.iter().map(one).collect()
}

/// Verdict on a ratio that stands alone, with the number of runs of its two sides. In a table use [`judge`].
pub fn verdict(ratio: &Ratio, runs: (usize, usize)) -> Verdict {
    judge(&[(*ratio, runs)]).first().map_or(Verdict::TooFewRuns, |judgement| judgement.verdict)
}

/// p values corrected for being looked at together, in the order given; each at least what it was and at most 1.
///
/// The k-th smallest of m becomes the largest of (m − j + 1)·p₍ⱼ₎ over j ≤ k. Calling those below α significant makes one or more errors
/// with probability α at most, however the tests depend on each other.
///
/// Source: S. Holm, *A simple sequentially rejective multiple test procedure*, Scandinavian Journal of Statistics 6 (1979) 65–70.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        // No value may fall below one that was smaller before the correction.
        largest = largest.max(((p.len() - rank) as f64 * p[index]).min(1.0));
        corrected[index] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio;

    #[test]
    fn a_table_is_judged_together() {
        // p = 0.044 and 0.000007: alone both are faster.
        let base = [10.0, 10.2, 10.1, 9.9];
        let weak = ratio(&[10.4, 10.2, 10.2, 10.6], &base).unwrap();
        let strong = ratio(&[12.0, 12.2, 12.1, 11.9], &base).unwrap();
        let p = weak.p.unwrap();
        assert!(p > 0.025 && p < 0.05, "{p}");
        assert_eq!(verdict(&weak, (4, 4)), Verdict::Faster);
        // Of two it is the larger p, which Holm leaves as it is; of three with another weak one it is doubled.
        let words = |table: &[Ratio]| {
            let table: Vec<_> = table.iter().map(|r| (*r, (4, 4))).collect();
            judge(&table).iter().map(|j| (j.verdict, j.lone)).collect::<Vec<_>>()
        };
        assert_eq!(words(&[weak, strong]), [(Verdict::Faster, false), (Verdict::Faster, false)]);
        let lone = (Verdict::NoDifferenceShown, true);
        assert_eq!(words(&[weak, strong, weak]), [lone, (Verdict::Faster, false), lone]);
    }

    #[test]
    fn ratios_with_too_few_runs_do_not_count() {
        let sure = ratio(&[12.0, 12.2, 12.1], &[10.0, 10.2, 10.1]).unwrap();
        let two = ratio(&[12.0, 12.2], &[10.0, 10.2]).unwrap();
        let one = ratio(&[12.0], &[10.0]).unwrap();
        let found = judge(&[(one, (1, 1)), (sure, (3, 3)), (two, (2, 2))]);
        let none = Judgement { verdict: Verdict::TooFewRuns, p_holm: None, lone: false };
        assert_eq!(found, [none, Judgement { verdict: Verdict::Faster, p_holm: sure.p, lone: false }, none]);
        assert!(judge(&[]).is_empty());
    }

    #[test]
    fn ratios_without_spread_do_not_count() {
        let weak = ratio(&[10.4, 10.2, 10.2, 10.6], &[10.0, 10.2, 10.1, 9.9]).unwrap();
        let equal = ratio(&[2.0; 4], &[1.0; 4]).unwrap();
        let found = judge(&[(equal, (4, 4)), (weak, (4, 4)), (equal, (4, 4))]);
        let none = Judgement { verdict: Verdict::NoSpread, p_holm: None, lone: false };
        // Alone in the correction, so its p is as it was.
        assert_eq!(found, [none, Judgement { verdict: Verdict::Faster, p_holm: weak.p, lone: false }, none]);
    }

    #[test]
    fn corrected_values_keep_their_places_and_order() {
        assert_eq!(holm(&[0.01, 0.5, 0.02]), [0.03, 0.5, 0.04]);
        assert_eq!(holm(&[0.5, 0.6]), [1.0, 1.0]);
        assert_eq!(holm(&[0.03]), [0.03]);
        assert!(holm(&[]).is_empty());
    }
}
