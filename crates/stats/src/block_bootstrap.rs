//! The circular block bootstrap of a mean, without drawing: its variance has a closed form.

use crate::Periods;
use crate::student::{ALPHA, critical};

/// Whole periods below which a mean has no interval: fewer do not tell their spread.
pub const MIN_PERIODS_FOR_INTERVAL: usize = 5;
/// Lags in a row that must be insignificant before the dependence is taken to have ended (Politis & White: max(5, √log₁₀ n)).
const INSIGNIFICANT_LAGS: usize = 5;
/// Longest lag at which dependence is looked for.
const LONGEST_LAG: usize = 1000;
/// Bisections of the bracket of the degrees of freedom.
const BISECTIONS: u32 = 30;

/// Standard error of the mean of a series of dependent values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockBootstrap {
    /// Standard error of the mean, in the unit of the values.
    pub error: f64,
    /// Half-width of the 95 % interval, in standard errors.
    pub reach: f64,
    /// Values in a block; a multiple of the period where there is one.
    pub length: usize,
}

impl BlockBootstrap {
    /// For a series without a period; `None` below two values.
    ///
    /// error² = 1/(n²·b) · Σ (sum of block i)² over all n circular blocks of b centred values. That is the variance of the mean under the
    /// circular block bootstrap of Politis & Romano (1992) with infinitely many draws, and so Bartlett's estimate of the long-run variance.
    /// reach is not 1.96 but the critical value of Kiefer & Vogelsang for blocks that are a fixed share β = b/n of the series, 1.9600 +
    /// 2.9694 β + 0.4160 β² − 0.5324 β³, because few blocks tell a variance badly: for 10 values without dependence it is 2.26, as
    /// Student's t has it.
    ///
    /// Sources: D. N. Politis, J. P. Romano, *A circular block-resampling procedure for stationary data*, in: Exploring the Limits of
    /// Bootstrap (1992) 263–270; N. M. Kiefer, T. J. Vogelsang, *A new asymptotic theory for heteroskedasticity-autocorrelation robust
    /// tests*, Econometric Theory 21 (2005) 1130–1164, table 1 (Bartlett, 97.5 %).
    pub fn from_series(series: &[f64]) -> Option<Self> {
        if series.len() < 2 {
            return None;
        }
        let centred = centred(series);
        let block = block_length(&centred);
        let share = block as f64 / series.len() as f64;
        Some(Self {
            error: (scaled_variance(&centred, block) / series.len() as f64).sqrt(),
            reach: 1.9600 + share * (2.9694 + share * (0.4160 - share * 0.5324)),
            length: block,
        })
    }

    /// For a series with periods, with its mean over whole ones; `None` below [`MIN_PERIODS_FOR_INTERVAL`] of them.
    ///
    /// The series is first summed over periods, so that no block has more of its slow steps than another. The mean is a ratio of sums,
    /// because periods differ in their number of steps. Where Student's t reaches farther than Kiefer & Vogelsang's value, as for few
    /// periods, it takes its place.
    pub fn from_periods(series: &[f64], periods: &Periods) -> Option<(Self, f64)> {
        let sums = periods.sums(series);
        if sums.len() < MIN_PERIODS_FOR_INTERVAL {
            return None;
        }
        let (steps, time) = sums.iter().fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        let (n, mean) = (sums.len() as f64, time / steps);
        let length = steps / n;
        let means: Vec<f64> = sums.iter().map(|(steps, time)| (time - steps * mean) / length).collect();
        let blocks = Self::from_series(&means)?;
        let student = critical(n - 1.0, ALPHA) * (n / (n - 1.0)).sqrt();
        let length = (blocks.length as f64 * length).round() as usize;
        Some((Self { reach: blocks.reach.max(student), length, ..blocks }, mean))
    }

    /// Half the width of the 95 % interval of the mean.
    pub fn half_width(&self) -> f64 {
        self.reach * self.error
    }

    /// Degrees of freedom at which Student's t reaches as far, for levels that Kiefer & Vogelsang do not tabulate.
    pub fn freedom(&self) -> f64 {
        // 1 reaches farther than three blocks do; above 1,000 the t distribution hardly changes.
        let (mut low, mut high) = (1.0_f64, 1000.0_f64);
        for _ in 0..BISECTIONS {
            let middle = (low * high).sqrt();
            if critical(middle, ALPHA) > self.reach { low = middle } else { high = middle }
        }
        high
    }
}

/// n × the variance of the mean of n centred values under the circular block bootstrap.
fn scaled_variance(centred: &[f64], block: usize) -> f64 {
    let n = centred.len();
    let mut sum: f64 = centred[..block].iter().sum();
    let mut squares = 0.0;
    for start in 0..n {
        squares += sum * sum;
        sum += centred[(start + block) % n] - centred[start];
    }
    squares / (n * block) as f64
}

/// Differences from the mean.
pub fn centred(series: &[f64]) -> Vec<f64> {
    let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
    series.iter().map(|value| value - mean).collect()
}

/// Autocovariance of centred values at a lag.
fn covariance(centred: &[f64], lag: usize) -> f64 {
    let later = centred.get(lag..).unwrap_or_default();
    centred.iter().zip(later).map(|(a, b)| a * b).sum::<f64>() / centred.len().max(1) as f64
}

/// Length of the blocks into which a series is cut so that different blocks are nearly independent, in values: twice the length of
/// Politis & White for the circular block bootstrap, between 1 and a third of the series.
///
/// 2 · (2Ĝ²/D̂ · n)^⅓ with Ĝ = Σ λ(k/m)·|k|·γ(k), D̂ = 4/3 · ĝ(0)², ĝ(0) = Σ λ(k/m)·γ(k), γ the autocovariance, λ the flat-top window and m
/// twice the last significant lag. The factor 2: their length makes the mean squared error of the variance smallest, and intervals cover
/// better with longer blocks (Sun, Phillips & Jin 2008); in simulations twice their length is what covers.
///
/// Sources: D. N. Politis, H. White, *Automatic block-length selection for the dependent bootstrap*, Econometric Reviews 23 (2004)
/// 53–70; A. Patton, D. N. Politis, H. White, *Correction*, Econometric Reviews 28 (2009) 372–375; Y. Sun, P. C. B. Phillips, S. Jin,
/// *Optimal bandwidth selection in heteroskedasticity–autocorrelation robust testing*, Econometrica 76 (2008) 175–194.
fn block_length(centred: &[f64]) -> usize {
    let n = centred.len() as f64;
    let longest = (centred.len() / 3).max(1);
    let variance = covariance(centred, 0);
    if centred.len() < 2 || variance <= 0.0 {
        return 1;
    }
    let significant = 2.0 * (n.log10() / n).sqrt() * variance;
    let limit = ((n.sqrt().ceil() as usize + INSIGNIFICANT_LAGS).min(centred.len() - 1)).min(LONGEST_LAG);
    // The last significant lag before an insignificant stretch, or of all, computing no more lags than that takes.
    let mut covariances = vec![variance];
    let mut last = 0;
    while covariances.len() <= limit && covariances.len() - 1 - last < INSIGNIFICANT_LAGS {
        let lag = covariances.len();
        covariances.push(covariance(centred, lag));
        if covariances[lag].abs() >= significant {
            last = lag;
        }
    }
    let width = (2 * last.max(1)).min(limit.max(1));
    while covariances.len() <= width {
        covariances.push(covariance(centred, covariances.len()));
    }
    // Sums over both signs of the lag, under the flat-top window.
    let (mut slope, mut spectrum) = (0.0, variance);
    for (lag, covariance) in covariances.iter().enumerate().take(width + 1).skip(1) {
        let window = (2.0 * (1.0 - lag as f64 / width as f64)).min(1.0);
        slope += 2.0 * window * lag as f64 * covariance;
        spectrum += 2.0 * window * covariance;
    }
    let best = (1.5 * slope * slope / (spectrum * spectrum) * n).cbrt();
    // Where the spectrum is 0 the quotient is not finite: take the longest.
    if best.is_finite() { ((2.0 * best).round() as usize).clamp(1, longest) } else { longest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

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
        let (drawn, closed) = (squares / f64::from(draws), scaled_variance(&centred, block) / series.len() as f64);
        assert!((drawn / closed - 1.0).abs() < 0.03, "{drawn} {closed}");
    }

    #[test]
    fn equal_values_have_no_error() {
        assert_eq!(BlockBootstrap::from_series(&[2.0; 50]).map(|b| b.error), Some(0.0));
        assert_eq!(BlockBootstrap::from_series(&[2.0]), None);
    }

    #[test]
    fn of_periods_only_what_differs_between_them_counts() {
        let times: Vec<f64> = (0..1000).map(|i| if i % 100 == 7 { 50.0 } else { 1.0 }).collect();
        let periods = Periods::new(100.0, &[0.0], 1000).unwrap();
        let (blocks, mean) = BlockBootstrap::from_periods(&times, &periods).unwrap();
        assert!(blocks.error < 1e-12 && (mean - 1.49).abs() < 1e-12, "{blocks:?} {mean}");
        assert!(BlockBootstrap::from_series(&times).unwrap().error > 0.05);
        let four = Periods::new(240.0, &[0.0], 1000).unwrap();
        assert_eq!(BlockBootstrap::from_periods(&times, &four), None);
    }

    #[test]
    fn blocks_are_long_where_values_hang_together() {
        let noise: Vec<f64> = (0..1000u64).map(|i| (i * i * 7919 % 1009) as f64).collect();
        let smooth: Vec<f64> = noise.windows(20).map(|w| w.iter().sum()).collect();
        let (short, long) = (block_length(&centred(&noise)), block_length(&centred(&smooth)));
        assert!(short <= 8 && long >= 20, "{short} {long}");
        assert_eq!((block_length(&[]), block_length(&[0.0; 9])), (1, 1));
    }
}
