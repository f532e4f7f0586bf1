//! Finding the period with which batches are slow.
//!
//! Invariant: times count only by their ranks in a window, so no tail is too heavy, and under exchangeable batches the statistic does not
//! depend on their distribution.

use expctl_stats::LaggedProducts;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};
use statrs::function::erf::erfc;
use statrs::function::gamma::checked_gamma_ur;

/// Level at which a period is reported: the probability of one as clear by chance, over all periods tried.
pub const ALPHA: f64 = 0.001;

/// Longest period that is tried, in batches.
pub const LONGEST: usize = 1024;

/// Numbers of multiples of a period that are tested together: few for phases that slip, many for weak and steady ones.
const MULTIPLES: [usize; 6] = [1, 2, 3, 4, 8, 16];

/// Share of the strongest correlation from which a shorter period is taken instead.
const FUNDAMENTAL: f64 = 0.6;

/// A period that chance does not explain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FoundPeriod {
    /// Batches from one slow batch to the next.
    pub period: usize,
    /// p value over all periods tried, if the order of batches means nothing (Bonferroni's bound).
    pub p: f64,
    /// Correlation of slowness one period apart minus that at other lags.
    pub correlation: f64,
}

/// One candidate: a period with a number of its multiples.
#[derive(Clone, Copy, Debug)]
struct PeriodCandidate {
    period: usize,
    multiples: usize,
    /// Correlation at multiples of the period minus that at other lags.
    contrast: f64,
    /// `contrast` in standard deviations.
    z: f64,
    /// p value of this candidate alone.
    p: f64,
}

/// The period in `lags`; `None` if chance explains all of them.
///
/// For each period, the test statistic is the mean correlation at its first 1, 2, 3, 4, 8 or 16 multiples minus that at the lags between
/// them. A drift, whose correlation decays slowly over the lags, cancels in that difference. Under exchangeable batches the difference has
/// mean 0 and a variance that depends on the counts alone (Wald and Wolfowitz 1943; for scores Hallin, Ingenbleek and Puri
/// 1985); its tail is taken as that of a gamma distribution with the same skewness (Pearson's type III). A period counts
/// where it is clear both in the scores and in their innovations: the first alone is misled by neighbours that resemble
/// each other, the second alone by levels that change.
pub fn search(lags: &Lags) -> Option<FoundPeriod> {
    let longest = longest_tried(lags);
    let both = [&lags.scores, &lags.innovations].map(|sums| (sums, CumulativeSums::new(sums)));
    let mut count = 0;
    // The clearest candidate of each period, from period 2.
    let mut best: Vec<Option<PeriodCandidate>> = Vec::new();
    for period in 2..=longest {
        let trials = MULTIPLES.iter().filter_map(|k| {
            let [scores, innovations] = both.each_ref().map(|(sums, run)| trial(sums, run, lags.batches, period, *k));
            Some(if clearer(scores.as_ref()?, innovations.as_ref()?) { innovations? } else { scores? })
        });
        let trials: Vec<PeriodCandidate> = trials.collect();
        count += trials.len();
        best.push(trials.into_iter().reduce(|a, b| if clearer(&b, &a) { b } else { a }));
    }
    let clearest = best.iter().flatten().copied().reduce(|a, b| if clearer(&b, &a) { b } else { a })?;
    let corrected = |trial: &PeriodCandidate| (trial.p * count as f64).min(1.0);
    if corrected(&clearest) >= ALPHA {
        return None;
    }
    let at = |period: usize| period.checked_sub(2).and_then(|i| best.get(i)?.as_ref());
    // Multiples of a period are periods, too, and so are sums of it and regular slips of its phase: the shortest one that explains
    // about as much is taken. Its multiples between those of the clearest one must be clear as well.
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
    Some(FoundPeriod { period: found.period, p: corrected(found), correlation: found.contrast })
}

/// The longest period that [`search`] tries: a quarter of the batches, within the reach of the lags. Below 2 it tries none.
pub fn longest_tried(lags: &Lags) -> usize {
    let lengths = lags.scores.sums.len().saturating_sub(1);
    LONGEST.min(lengths * 2 / 3).min(lags.batches as usize / 4)
}

/// Whether a period is not a half, third, fifth or seventh of the true one: whether the multiples that the true one would not share are
/// about as correlated as those that it would.
fn steady(sums: &LagSums, running: &CumulativeSums, trial: &PeriodCandidate) -> bool {
    [2, 3, 5, 7].into_iter().filter(|m| *m <= trial.multiples).all(|m| {
        let of = |shared: bool| {
            let on = (1..=trial.multiples).filter(|k| k.is_multiple_of(m) == shared).map(|k| k * trial.period);
            contrast(sums, running, trial.period, trial.multiples, on)
        };
        matches!((of(false), of(true)), (Some((own, _)), Some((shared, _))) if own >= FUNDAMENTAL * shared)
    })
}

/// Whether chance explains `a` less well than `b`. p values that underflow are told apart by the deviations.
fn clearer(a: &PeriodCandidate, b: &PeriodCandidate) -> bool {
    a.p.total_cmp(&b.p).then(b.z.total_cmp(&a.z)).is_lt()
}

/// Cumulative sums over the lags, for sums over ranges of lags.
struct CumulativeSums {
    sums: Vec<f64>,
    variances: Vec<f64>,
}

impl CumulativeSums {
    fn new(sums: &LagSums) -> Self {
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

/// Mean correlation at the lags `on` minus that at the lags which are no multiples of the period, up to half a period around
/// its first `multiples`; and the standard deviation of that. `None` where there are no such lags.
fn contrast(
    sums: &LagSums,
    running: &CumulativeSums,
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

/// Test the first `multiples` of a period against the lags between and around them; `None` where the lags do not reach as far.
fn trial(
    sums: &LagSums,
    running: &CumulativeSums,
    batches: u64,
    period: usize,
    multiples: usize,
) -> Option<PeriodCandidate> {
    let on = (1..=multiples).map(|k| k * period);
    let (contrast, deviation) = contrast(sums, running, period, multiples, on)?;
    let z = contrast / deviation;
    let k = multiples as f64;
    let third = sums.third / batches as f64;
    // Products share their factors: three at lags a, b and a + b have an expected product of 1, and there are k(k-1)/2 such
    // triples in k multiples, each in six orders.
    let skewness = (third * third * k + 3.0 * k * (k - 1.0)) / (k.powf(1.5) * sums.variances[period].sqrt());
    Some(PeriodCandidate { period, multiples, contrast, z, p: tail(z, skewness) })
}

/// Skewness below which the normal distribution replaces the gamma distribution, whose shape `4 / skewness²` becomes too large for its
/// tail to be computed: scores of two values that are equally frequent have no skewness at all.
const SYMMETRIC: f64 = 1e-3;

/// Probability that a standardised gamma variable of this skewness exceeds `z`; 1 below `z` = 2, where the exact value does not matter.
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

/// Batches that are ranked together. Longer series are cut into windows, so that slow changes do not matter and memory is bounded.
pub const WINDOW: usize = 4096;

/// Longest lag.
const MAX_LAG: usize = 2048;

/// Serial rank statistics of one or several series: of the scores and of their innovations.
///
/// Sums of several series can be added, which is how epochs are tested together.
#[derive(Clone, Debug, Default)]
pub struct Lags {
    /// Sums of the scores.
    scores: LagSums,
    /// Sums of the innovations where neighbours are correlated; else of the scores.
    innovations: LagSums,
    /// Batches in the sums.
    pub batches: u64,
}

/// Sums of the products of scores, by lag.
#[derive(Clone, Debug, Default)]
struct LagSums {
    /// Sum over windows of the products at each lag, minus its expectation if order means nothing.
    sums: Vec<f64>,
    /// Variance of each sum if order means nothing: the number of products.
    variances: Vec<f64>,
    /// Third moment of the scores, summed over the batches.
    third: f64,
}

impl Lags {
    /// Add the sums of another series.
    pub fn add(&mut self, other: &Self) {
        self.scores.add(&other.scores);
        self.innovations.add(&other.innovations);
        self.batches += other.batches;
    }
}

impl LagSums {
    fn add(&mut self, other: &Self) {
        grow(&mut self.sums, other.sums.len());
        grow(&mut self.variances, other.variances.len());
        self.sums.iter_mut().zip(&other.sums).for_each(|(a, b)| *a += b);
        self.variances.iter_mut().zip(&other.variances).for_each(|(a, b)| *a += b);
        self.third += other.third;
    }
}

fn grow(values: &mut Vec<f64>, length: usize) {
    if values.len() < length {
        values.resize(length, 0.0);
    }
}

/// Adds windows to [`Lags`]; keeps its tables between windows.
#[derive(Debug, Default)]
pub struct Correlator {
    scores: RankScores,
    products: LaggedProducts<f32>,
}

impl Correlator {
    /// Add a window of times. Windows of fewer than 16 batches, or of equal times, are skipped.
    pub fn add(&mut self, times: &[f64], lags: &mut Lags) {
        let n = times.len();
        if n < 16 {
            return;
        }
        let Some(scores) = self.scores.slowness(times) else { return };
        let of_scores = self.lag_sums(&scores);
        match self.scores.innovations(times) {
            Some(innovations) => lags.innovations.add(&self.lag_sums(&innovations)),
            None => lags.innovations.add(&of_scores),
        }
        lags.scores.add(&of_scores);
        lags.batches += n as u64;
    }

    fn lag_sums(&mut self, scores: &[f32]) -> LagSums {
        let n = scores.len();
        let mut sums = self.products.compute(scores, (n / 2).min(MAX_LAG) + 1);
        let mut variances = vec![0.0; sums.len()];
        for (lag, (sum, variance)) in sums.iter_mut().zip(&mut variances).enumerate().skip(1) {
            *variance = (n - lag) as f64;
            // Of values that sum to 0, two different ones have a product of -1/(n-1) on average (Wald and Wolfowitz 1943).
            *sum += *variance / (n as f64 - 1.0);
        }
        sums[0] = 0.0;
        LagSums { sums, variances, third: scores.iter().map(|s| f64::from(*s).powi(3)).sum() }
    }
}

/// Scores of the batches of a window by the rank of their times.
///
/// Normal (van der Waerden) scores keep the shape of slow drifts, so drift is estimated on them. Exponential (Savage) scores weigh the slow
/// end, so the period is searched in them. Both have mean 0 and variance 1.
#[derive(Debug, Default)]
pub struct RankScores {
    normal: Vec<f64>,
    savage: Vec<f64>,
    order: Vec<u32>,
}

impl RankScores {
    /// Exponential scores of the innovations: of what the batch before does not explain; `None` where it explains nothing, or all times are
    /// equal.
    ///
    /// Correlated neighbours (an AR(1) process) make every lag look more significant than it is. Subtracting φ times the normal score of the
    /// batch before (pre-whitening; von Storch 1995) leaves the innovations, which are exchangeable if the process is AR(1) after some monotone
    /// map. A negative correlation is left in: a period of 2 looks like that.
    pub fn innovations(&mut self, times: &[f64]) -> Option<Vec<f32>> {
        self.prepare(times.len());
        let normal = self.scored(times, Self::normal)?;
        let phi = correlation_with_next(&normal).min(0.99);
        // A correlation that chance explains is left in.
        if phi < 2.0 / (times.len() as f64).sqrt() {
            return None;
        }
        let mut before = 0.0;
        let innovations: Vec<f64> = normal.iter().map(|x| x - phi * std::mem::replace(&mut before, *x)).collect();
        self.scored(&innovations, Self::savage).map(to_f32)
    }

    /// Exponential scores of the times: large where a batch is slow; `None` where all times are equal.
    pub fn slowness(&mut self, times: &[f64]) -> Option<Vec<f32>> {
        self.prepare(times.len());
        self.scored(times, Self::savage).map(to_f32)
    }

    fn normal(&self) -> &[f64] {
        &self.normal
    }

    fn savage(&self) -> &[f64] {
        &self.savage
    }

    fn prepare(&mut self, n: usize) {
        if self.normal.len() == n {
            return;
        }
        let standard = Normal::standard();
        self.normal = (0..n).map(|k| standard.inverse_cdf((k as f64 + 0.5) / n as f64)).collect();
        self.savage = (0..n).map(|k| -(1.0 - (k as f64 + 0.5) / n as f64).ln() - 1.0).collect();
    }

    /// The scores of a table in the order of the values, shared by equal values, with mean 0 and variance 1.
    fn scored(&mut self, values: &[f64], table: fn(&Self) -> &[f64]) -> Option<Vec<f64>> {
        let n = values.len();
        self.order.clear();
        self.order.extend(0..n as u32);
        let mut order = std::mem::take(&mut self.order);
        order.sort_unstable_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]));
        let table = table(self);
        let mut scores = vec![0.0; n];
        let mut first = 0;
        while first < n {
            let value = values[order[first] as usize];
            let last = first + order[first..].iter().take_while(|i| values[**i as usize] == value).count();
            let shared = table[first..last].iter().sum::<f64>() / (last - first) as f64;
            order[first..last].iter().for_each(|i| scores[*i as usize] = shared);
            first = last;
        }
        self.order = order;
        let mean = scores.iter().sum::<f64>() / n as f64;
        let variance = scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / n as f64;
        if variance < 1e-12 {
            return None;
        }
        let scale = variance.sqrt().recip();
        scores.iter_mut().for_each(|s| *s = (*s - mean) * scale);
        Some(scores)
    }
}

fn to_f32(scores: Vec<f64>) -> Vec<f32> {
    scores.into_iter().map(|s| s as f32).collect()
}

/// Correlation of each value with the next one, of values with mean 0 and variance 1.
fn correlation_with_next(values: &[f64]) -> f64 {
    values.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / values.len() as f64
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
