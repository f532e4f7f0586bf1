use super::scores::Scores;
use crate::stats::LaggedProducts;

/// Batches that are ranked among each other. Longer series are taken in windows, so that slow changes do not matter and
/// memory does not grow.
pub const WINDOW: usize = 4096;

/// Longest lag that is kept.
const MOST_LAGS: usize = 2048;

/// Serial rank statistics of one or several series, of the scores as they are and of their innovations.
///
/// Those of several series can be added up, which is how epochs are tested together.
#[derive(Clone, Debug, Default)]
pub struct Lags {
    /// Of the scores.
    pub(super) scores: Sums,
    /// Of the innovations, where neighbours resemble each other; else of the scores.
    pub(super) innovations: Sums,
    /// Batches that were looked at.
    pub batches: u64,
}

/// For each lag, what the products of scores that far apart sum to.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// Sum over windows of the products at each lag, less what it is expected to be if order means nothing.
    pub sums: Vec<f64>,
    /// Variance of each sum if order means nothing: the number of products.
    pub variances: Vec<f64>,
    /// Third moment of the scores, summed over the batches.
    pub third: f64,
}

impl Lags {
    /// Add the sums of another series.
    pub fn add(&mut self, other: &Self) {
        self.scores.add(&other.scores);
        self.innovations.add(&other.innovations);
        self.batches += other.batches;
    }
}

impl Sums {
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

/// What adds windows to [`Lags`]; keeps its tables between windows.
#[derive(Debug, Default)]
pub struct Correlator {
    scores: Scores,
    products: LaggedProducts<f32>,
}

impl Correlator {
    /// Add a window of times. Windows of fewer than 16 batches, or of equal times, say nothing and are left out.
    pub fn add(&mut self, times: &[f64], lags: &mut Lags) {
        let n = times.len();
        if n < 16 {
            return;
        }
        let Some(scores) = self.scores.slowness(times) else { return };
        let of_scores = self.sums(&scores);
        match self.scores.innovations(times) {
            Some(innovations) => lags.innovations.add(&self.sums(&innovations)),
            None => lags.innovations.add(&of_scores),
        }
        lags.scores.add(&of_scores);
        lags.batches += n as u64;
    }

    fn sums(&mut self, scores: &[f32]) -> Sums {
        let n = scores.len();
        let mut sums = self.products.of(scores, (n / 2).min(MOST_LAGS) + 1);
        let mut variances = vec![0.0; sums.len()];
        for (lag, (sum, variance)) in sums.iter_mut().zip(&mut variances).enumerate().skip(1) {
            *variance = (n - lag) as f64;
            // Of values that sum to 0, two different ones have a product of -1/(n-1) on average (Wald and Wolfowitz 1943).
            *sum += *variance / (n as f64 - 1.0);
        }
        sums[0] = 0.0;
        Sums { sums, variances, third: scores.iter().map(|s| f64::from(*s).powi(3)).sum() }
    }
}
