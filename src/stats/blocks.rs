//! The circular block bootstrap of a mean, without drawing: its variance has a closed form.

use super::ALPHA;
use super::correlogram::{block_length, centred, period};
use super::student::critical;

/// Halvings of the bracket of the degrees of freedom.
const HALVINGS: u32 = 30;

/// How well the mean of a series of dependent values is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Blocks {
    /// Standard error of the mean.
    pub error: f64,
    /// How many standard errors a 95 % interval reaches to each side.
    pub reach: f64,
    /// Values in a block; a multiple of the period where there is one.
    pub length: usize,
}

impl Blocks {
    /// Half the width of the 95 % interval of the mean.
    pub fn half_width(&self) -> f64 {
        self.reach * self.error
    }

    /// Degrees of freedom at which Student's t reaches as far: for levels that Kiefer & Vogelsang have no value for.
    pub fn freedom(&self) -> f64 {
        // From a block in each third of the series, which are 3, to so many that it no longer matters.
        let (mut low, mut high) = (1.0_f64, 1000.0_f64);
        for _ in 0..HALVINGS {
            let middle = (low * high).sqrt();
            if critical(middle, ALPHA) > self.reach { low = middle } else { high = middle }
        }
        high
    }

    /// Of a series with a known period; none below two values, or two periods.
    ///
    /// A series with a period is first summed over periods, so that no block has more of its slow steps than another.
    ///
    /// The variance is that of the mean under the circular block bootstrap of Politis & Romano (1992) with infinitely many draws,
    /// which is the mean square of all block sums, and so Bartlett's estimate of the long-run variance. Its critical value is not that
    /// of the normal distribution but Kiefer & Vogelsang's for a block that is a fixed share of the series, because few blocks tell a
    /// variance badly: with 10 values and no dependence it is 2.26, as Student's t has it.
    ///
    /// Sources: D. N. Politis, J. P. Romano, *A circular block-resampling procedure for stationary data*, in: Exploring the Limits of
    /// Bootstrap (1992) 263–270; N. M. Kiefer, T. J. Vogelsang, *A new asymptotic theory for heteroskedasticity-autocorrelation robust
    /// tests*, Econometric Theory 21 (2005) 1130–1164, table 1 (Bartlett, 97.5 %).
    pub fn of(series: &[f64], period: Option<usize>) -> Option<Self> {
        let period = period.unwrap_or(1).max(1);
        let sums: Vec<f64> = series.chunks_exact(period).map(|one| one.iter().sum::<f64>() / period as f64).collect();
        if sums.len() < 2 {
            return None;
        }
        let centred = centred(&sums);
        let block = block_length(&centred);
        let share = block as f64 / sums.len() as f64;
        Some(Self {
            error: (bootstrap_variance(&centred, block) / sums.len() as f64).sqrt(),
            reach: 1.9600 + share * (2.9694 + share * (0.4160 - share * 0.5324)),
            length: block * period,
        })
    }
}

/// Period of a series, and how well its mean is known.
pub(super) fn blocks(series: &[f64]) -> (Option<usize>, Option<Blocks>) {
    let period = period(series);
    (period, Blocks::of(series, period))
}

/// n × the variance of the mean of centred values under the circular block bootstrap.
fn bootstrap_variance(centred: &[f64], block: usize) -> f64 {
    let n = centred.len();
    let mut sum: f64 = centred[..block].iter().sum();
    let mut squares = 0.0;
    for start in 0..n {
        squares += sum * sum;
        sum += centred[(start + block) % n] - centred[start];
    }
    squares / (n * block) as f64
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn the_closed_form_is_what_drawing_comes_to() {
        let series: Vec<f64> = (0..120u64).map(|i| (i * i * 7919 % 1009) as f64 / 100.0).collect();
        let centred = centred(&series);
        let mut random = rand_pcg::Pcg64::seed_from_u64(1);
        let (block, draws) = (8, 40_000);
        let squares: f64 = (0..draws)
            .map(|_| {
                let sum: f64 = (0..series.len() / block)
                    .map(|_| {
                        let start = random.random_range(0..series.len());
                        (start..start + block).map(|i| centred[i % series.len()]).sum::<f64>()
                    })
                    .sum();
                (sum / series.len() as f64).powi(2)
            })
            .sum();
        let (drawn, closed) = (squares / f64::from(draws), bootstrap_variance(&centred, block) / series.len() as f64);
        assert!((drawn / closed - 1.0).abs() < 0.03, "{drawn} {closed}");
    }

    #[test]
    fn equal_values_have_no_error() {
        let (period, found) = blocks(&[2.0; 50]);
        assert_eq!((period, found.map(|b| b.error)), (None, Some(0.0)));
        assert_eq!(blocks(&[2.0]), (None, None));
    }
}
