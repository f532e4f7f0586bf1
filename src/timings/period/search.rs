use serde::Serialize;
use statrs::function::erf::erfc;
use statrs::function::gamma::checked_gamma_ur;

use super::lags::{Lags, Sums};

/// A period is reported if chance gives one as clear less often than this, over all periods that are tried.
pub const ALPHA: f64 = 0.001;

/// Longest period that is looked for, in batches.
pub const LONGEST: usize = 1024;

/// How many multiples of a period are looked at together. Few for phases that slip, many for weak and steady ones.
const MULTIPLES: [usize; 6] = [1, 2, 3, 4, 8, 16];

/// How much of the strongest correlation a shorter period must have to be the period itself.
const FUNDAMENTAL: f64 = 0.6;

/// A period that chance does not explain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Batches from one slow batch to the next.
    pub period: usize,
    /// Chance of one as clear among all periods tried, if the order of batches means nothing (Bonferroni's bound).
    pub p: f64,
    /// Correlation of slowness one period apart, less that between the beats.
    pub correlation: f64,
}

/// One candidate: a period with a number of its multiples.
#[derive(Clone, Copy, Debug)]
struct Trial {
    period: usize,
    multiples: usize,
    /// Correlation on the beat less that off it.
    contrast: f64,
    /// The same in standard deviations.
    z: f64,
    /// Chance of as much, for this one alone.
    p: f64,
}

/// The period in `lags`, or none that chance does not explain.
///
/// For each period, the mean correlation at its first 1, 2, 3, 4, 8 or 16 multiples is set against that of the lags between
/// them. What decays slowly over the lags, a drift, cancels in that difference. Under exchangeable batches the difference has
/// mean 0 and a variance that depends on the counts alone (Wald and Wolfowitz 1943; for scores Hallin, Ingenbleek and Puri
/// 1985); its tail is taken as that of a gamma distribution with the same skewness (Pearson's type III). A period counts
/// where it is clear both in the scores and in their innovations: the first alone is misled by neighbours that resemble
/// each other, the second alone by levels that change.
pub fn search(lags: &Lags) -> Option<Found> {
    let longest = longest_tried(lags);
    let both = [&lags.scores, &lags.innovations].map(|sums| (sums, Running::of(sums)));
    let mut count = 0;
    // The clearest trial of each period, from period 2.
    let mut best: Vec<Option<Trial>> = Vec::new();
    for period in 2..=longest {
        let trials = MULTIPLES.iter().filter_map(|k| {
            let [scores, innovations] = both.each_ref().map(|(sums, run)| trial(sums, run, lags.batches, period, *k));
            Some(if clearer(scores.as_ref()?, innovations.as_ref()?) { innovations? } else { scores? })
        });
        let trials: Vec<Trial> = trials.collect();
        count += trials.len();
        best.push(trials.into_iter().reduce(|a, b| if clearer(&b, &a) { b } else { a }));
    }
    let clearest = best.iter().flatten().copied().reduce(|a, b| if clearer(&b, &a) { b } else { a })?;
    let corrected = |trial: &Trial| (trial.p * count as f64).min(1.0);
    if corrected(&clearest) >= ALPHA {
        return None;
    }
    let at = |period: usize| period.checked_sub(2).and_then(|i| best.get(i)?.as_ref());
    // A period has its multiples for periods, too, and where its phase slips regularly, sums of it and the slips: the
    // shortest that explains about as much is the one. What is between the multiples of the clearest must be so as well.
    let shorter = (2..clearest.period).filter_map(at).find(|t| {
        let neighbours = [at(t.period - 1), at(t.period + 1)];
        corrected(t) < ALPHA
            && neighbours.into_iter().flatten().all(|n| !clearer(n, t))
            && both.iter().all(|(sums, running)| {
                let steady = steady(sums, running, t);
                let own = (1..=t.multiples).map(|k| k * t.period).filter(|lag| !lag.is_multiple_of(clearest.period));
                let between = contrast(sums, running, t.period, t.multiples, own);
                steady && between.is_some_and(|(between, _)| between >= FUNDAMENTAL * clearest.contrast)
            })
    });
    let found = shorter.unwrap_or(&clearest);
    Some(Found { period: found.period, p: corrected(found), correlation: found.contrast })
}

/// The longest period that [`search`] tries: a quarter of the batches, and what the lags reach. Below 2 it tries none.
pub fn longest_tried(lags: &Lags) -> usize {
    let lengths = lags.scores.sums.len().saturating_sub(1);
    LONGEST.min(lengths * 2 / 3).min(lags.batches as usize / 4)
}

/// Whether a period is none of a half, a third, a fifth or a seventh of one: whether the multiples that such a one has not are
/// about as good as those that it has.
fn steady(sums: &Sums, running: &Running, trial: &Trial) -> bool {
    [2, 3, 5, 7].into_iter().filter(|m| *m <= trial.multiples).all(|m| {
        let of = |shared: bool| {
            let on = (1..=trial.multiples).filter(|k| k.is_multiple_of(m) == shared).map(|k| k * trial.period);
            contrast(sums, running, trial.period, trial.multiples, on)
        };
        matches!((of(false), of(true)), (Some((own, _)), Some((shared, _))) if own >= FUNDAMENTAL * shared)
    })
}

/// Whether chance explains `a` less well than `b`. Chances too small for a number are told apart by the deviations.
fn clearer(a: &Trial, b: &Trial) -> bool {
    a.p.total_cmp(&b.p).then(b.z.total_cmp(&a.z)).is_lt()
}

/// Running sums over the lags, for sums over ranges of them.
struct Running {
    sums: Vec<f64>,
    variances: Vec<f64>,
}

impl Running {
    fn of(sums: &Sums) -> Self {
        let running = |values: &[f64]| {
            let mut total = 0.0;
            let totals = values.iter().map(|value| {
                total += value;
                total
            });
            std::iter::once(0.0).chain(totals).collect()
        };
        Self { sums: running(&sums.sums), variances: running(&sums.variances) }
    }
}

/// Mean correlation at the lags `on` less that at the lags which are no multiples of the period, up to half a period around
/// its first `multiples`; and the standard deviation of that. None where there are no such lags.
fn contrast(
    sums: &Sums,
    running: &Running,
    period: usize,
    multiples: usize,
    on: impl Iterator<Item = usize>,
) -> Option<(f64, f64)> {
    let half = (period / 2).max(1);
    let (from, to) = (period - half, multiples * period + half + 1);
    if to > sums.sums.len() {
        return None;
    }
    let mut off = running.sums[to] - running.sums[from];
    let mut off_pairs = running.variances[to] - running.variances[from];
    for lag in (1..=multiples).map(|k| k * period) {
        off -= sums.sums[lag];
        off_pairs -= sums.variances[lag];
    }
    let (mut beat, mut pairs) = (0.0, 0.0);
    for lag in on {
        beat += sums.sums[lag];
        pairs += sums.variances[lag];
    }
    (pairs > 0.0 && off_pairs > 0.0)
        .then(|| (beat / pairs - off / off_pairs, (pairs.recip() + off_pairs.recip()).sqrt()))
}

/// The first `multiples` of a period against the lags between and around them; none where the lags do not reach as far.
fn trial(sums: &Sums, running: &Running, batches: u64, period: usize, multiples: usize) -> Option<Trial> {
    let on = (1..=multiples).map(|k| k * period);
    let (contrast, deviation) = contrast(sums, running, period, multiples, on)?;
    let z = contrast / deviation;
    let k = multiples as f64;
    let third = sums.third / batches as f64;
    // Products share their factors: three at lags a, b and a + b have an expected product of 1, and there are k(k-1)/2 such
    // triples in k multiples, each in six orders.
    let skewness = (third * third * k + 3.0 * k * (k - 1.0)) / (k.powf(1.5) * sums.variances[period].sqrt());
    Some(Trial { period, multiples, contrast, z, p: tail(z, skewness) })
}

/// Skewness below which the gamma distribution is as good as a normal one. Its shape, `4 / skewness²`, grows beyond what its
/// tail can be worked out for: scores of two values that are equally frequent have no skewness at all.
const SYMMETRIC: f64 = 1e-3;

/// Chance that a standardised gamma variable of this skewness exceeds `z`; 1 for what nobody would call clear.
fn tail(z: f64, skewness: f64) -> f64 {
    if z < 2.0 {
        return 1.0;
    }
    if skewness.abs() < SYMMETRIC {
        return erfc(z / std::f64::consts::SQRT_2) / 2.0;
    }
    let shape = 4.0 / (skewness * skewness);
    checked_gamma_ur(shape, shape + z * shape.sqrt()).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_goes_over_into_the_normal_one() {
        // scipy.stats.norm.sf([3, 5]); none of it is ever certain, however small the skewness.
        for (z, normal) in [(3.0, 1.349_898e-3), (5.0, 2.866_516e-7)] {
            for skewness in [0.0, 1e-200, 1e-9, 0.99e-3, 1.01e-3, 1e-2] {
                let ratio = tail(z, skewness) / normal;
                assert!((0.99..1.3).contains(&ratio), "{z}, {skewness}: {ratio}");
            }
        }
    }
}
