//! The permutation test of two sides.

use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::block_bootstrap::centred;

/// Largest number of arrangements of which all are computed.
const EXACT_UP_TO: f64 = 50_000.0;
/// Arrangements drawn where there are more.
const DRAWS: usize = 9_999;
/// Relative difference below which two statistics count as equal.
const TIE: f64 = 1e-9;

/// Result of a permutation test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Permutation {
    /// Two-sided p value.
    pub p: f64,
    /// True if every arrangement was computed; false if a fixed number was drawn.
    pub exact: bool,
    /// The smallest p value that so many runs can have. Where it is not below 0.05 the test cannot show anything.
    pub smallest: f64,
}

/// Test whether the runs of two sides are arranged by chance; `None` below two runs on a side, or if a rate is not positive.
///
/// The statistic is Welch's |t| of the log rates: studentised, so that unequal spread of the two sides does no harm. p is the share of
/// arrangements whose statistic is at least the observed one. All are computed where there are at most 50,000; else 9,999 are drawn, the
/// same ones for the same values, and p = (1 + extreme) / (1 + drawn).
///
/// Sources: A. Janssen, *Studentized permutation tests for non-i.i.d. hypotheses and the generalized Behrens–Fisher problem*,
/// Statistics & Probability Letters 36 (1997) 9–21; E. Chung, J. P. Romano, *Exact and asymptotically robust permutation tests*, Annals
/// of Statistics 41 (2013) 484–507; B. Phipson, G. K. Smyth, *Permutation p-values should never be zero*, Statistical Applications in
/// Genetics and Molecular Biology 9 (2010) 39.
pub fn permutation_test(side: &[f64], base: &[f64]) -> Option<Permutation> {
    let rates: Vec<f64> = side.iter().chain(base).copied().collect();
    if side.len() < 2 || base.len() < 2 || rates.iter().any(|rate| !rate.is_finite() || *rate <= 0.0) {
        return None;
    }
    let pooled = Pooled::new(&rates, side.len());
    let first: Vec<usize> = (0..side.len()).collect();
    let limit = pooled.t_squared(&first) * (1.0 - TIE);
    let extreme = |chosen: &[usize]| usize::from(pooled.t_squared(chosen) >= limit);
    let all = binomial(rates.len(), side.len());
    // With sides of equal size an arrangement and its mirror image have the same |t|.
    let best = if side.len() == base.len() { 2.0 } else { 1.0 };
    if all <= EXACT_UP_TO {
        let mut chosen = first;
        let (mut count, mut total) = (0, 0usize);
        loop {
            count += extreme(&chosen);
            total += 1;
            if !advance(&mut chosen, rates.len()) {
                break;
            }
        }
        return Some(Permutation { p: count as f64 / total as f64, exact: true, smallest: best / all });
    }
    let mut random = rand_pcg::Pcg64::seed_from_u64(seed(&rates));
    let mut order: Vec<usize> = (0..rates.len()).collect();
    let mut count = 0;
    for _ in 0..DRAWS {
        for i in 0..side.len() {
            let other = random.random_range(i..order.len());
            order.swap(i, other);
        }
        count += extreme(&order[..side.len()]);
    }
    let of = (DRAWS + 1) as f64;
    Some(Permutation { p: (count + 1) as f64 / of, exact: false, smallest: 1.0 / of })
}

/// The log rates of both sides about their common mean.
struct Pooled {
    logs: Vec<f64>,
    sum: f64,
    squares: f64,
    sizes: (f64, f64),
}

impl Pooled {
    fn new(rates: &[f64], side: usize) -> Self {
        let logs: Vec<f64> = rates.iter().map(|rate| rate.ln()).collect();
        let logs = centred(&logs);
        let squares = logs.iter().map(|log| log * log).sum();
        let sizes = (side as f64, (rates.len() - side) as f64);
        Self { sum: logs.iter().sum(), squares, sizes, logs }
    }

    /// Welch's t², with the chosen ones on one side.
    fn t_squared(&self, chosen: &[usize]) -> f64 {
        let (n, m) = self.sizes;
        let (sum, squares) = chosen
            .iter()
            .map(|i| self.logs[*i])
            .fold((0.0, 0.0), |(sum, squares), log| (sum + log, squares + log * log));
        let (a, b) = (sum / n, (self.sum - sum) / m);
        let spread_a = (squares - n * a * a).max(0.0) / (n - 1.0);
        let spread_b = (self.squares - squares - m * b * b).max(0.0) / (m - 1.0);
        let error = spread_a / n + spread_b / m;
        let difference = (a - b).powi(2);
        // Squares of equal values leave a rounding error.
        let nothing = 1e-13 * self.squares;
        match (error <= nothing, difference <= nothing) {
            (_, true) => 0.0,
            (true, false) => f64::INFINITY,
            _ => difference / error,
        }
    }
}

/// The binomial coefficient n over k.
fn binomial(n: usize, k: usize) -> f64 {
    (0..k).fold(1.0, |all, i| all * (n - i) as f64 / (i + 1) as f64).round()
}

/// The next choice out of `n` in lexical order; false after the last.
fn advance(chosen: &mut [usize], n: usize) -> bool {
    let k = chosen.len();
    let Some(last) = (0..k).rev().find(|i| chosen[*i] < n - k + i) else { return false };
    chosen[last] += 1;
    for i in last + 1..k {
        chosen[i] = chosen[i - 1] + 1;
    }
    true
}

/// A hash of the values (FNV-1a), so that the same values draw the same arrangements.
pub fn seed(values: &[f64]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_runs_a_side_cannot_go_below_a_tenth() {
        let found = permutation_test(&[20.0, 21.0, 22.0], &[10.0, 10.5, 11.0]).unwrap();
        assert_eq!(found, Permutation { p: 0.1, exact: true, smallest: 0.1 });
        let found = permutation_test(&[20.0, 21.0, 22.0, 23.0], &[10.0, 10.5, 11.0, 9.0]).unwrap();
        assert!((found.p - 2.0 / 70.0).abs() < 1e-12 && found.exact, "{found:?}");
    }

    #[test]
    fn equal_runs_show_nothing() {
        assert_eq!(permutation_test(&[5.0; 4], &[5.0; 3]).unwrap().p, 1.0);
        // Without spread on both sides, but apart: as extreme as can be.
        assert_eq!(permutation_test(&[6.0; 3], &[5.0; 3]).unwrap().p, 0.1);
        assert_eq!(permutation_test(&[6.0], &[5.0; 3]), None);
        assert_eq!(permutation_test(&[6.0, 0.0], &[5.0; 3]), None);
    }

    #[test]
    fn many_runs_are_drawn_and_the_same_twice() {
        let side: Vec<f64> = (0..12).map(|i| 10.0 + f64::from(i) * 0.1).collect();
        let base: Vec<f64> = (0..12).map(|i| 10.3 + f64::from(i * i % 7) * 0.1).collect();
        let found = permutation_test(&side, &base).unwrap();
        assert!(!found.exact && found.p > 1e-4 && found.smallest == 1e-4, "{found:?}");
        assert_eq!(permutation_test(&side, &base), Some(found));
    }
}
