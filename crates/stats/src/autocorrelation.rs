//! How the values of a series depend on those before them, and the length of blocks that are nearly independent.

use std::fmt;
use std::sync::Arc;

use realfft::{ComplexToReal, FftNum, RealFftPlanner, RealToComplex};

/// Lags in a row that must be insignificant before the dependence is taken to have ended (Politis & White: max(5, √log₁₀ n)).
const INSIGNIFICANT_LAGS: usize = 5;
/// Longest lag at which dependence is looked for.
const LONGEST_LAG: usize = 1000;

/// Computes sums of lagged products, Σᵢ xᵢ·xᵢ₊ₖ, by the fast Fourier transform; keeps its tables for series of about the same length.
pub struct LaggedProducts<T: FftNum> {
    planner: RealFftPlanner<T>,
    transforms: Option<Transforms<T>>,
}

/// The forward and inverse transform of one length.
struct Transforms<T> {
    length: usize,
    forward: Arc<dyn RealToComplex<T>>,
    inverse: Arc<dyn ComplexToReal<T>>,
}

impl<T: FftNum> Default for LaggedProducts<T> {
    fn default() -> Self {
        Self { planner: RealFftPlanner::new(), transforms: None }
    }
}

impl<T: FftNum + Into<f64>> LaggedProducts<T> {
    /// Σᵢ xᵢ·xᵢ₊ₖ for the lags k = 0 … `count` − 1, by the Wiener–Khinchin theorem; in the squared unit of `values`.
    pub fn compute(&mut self, values: &[T], count: usize) -> Vec<f64> {
        // Zeros behind the values, so that the end does not meet the start.
        let length = (values.len() + count).next_power_of_two();
        let Transforms { forward, inverse, .. } = match self.transforms.take() {
            Some(transforms) if transforms.length == length => transforms,
            _ => Transforms {
                length,
                forward: self.planner.plan_fft_forward(length),
                inverse: self.planner.plan_fft_inverse(length),
            },
        };
        let mut padded = forward.make_input_vec();
        padded[..values.len()].copy_from_slice(values);
        let mut spectrum = forward.make_output_vec();
        // Both transforms fail only for buffers of another length, and all buffers come from them.
        let transformed = forward.process(&mut padded, &mut spectrum);
        debug_assert!(transformed.is_ok());
        for value in &mut spectrum {
            (value.re, value.im) = (value.re * value.re + value.im * value.im, T::zero());
        }
        let transformed = inverse.process(&mut spectrum, &mut padded);
        debug_assert!(transformed.is_ok());
        self.transforms = Some(Transforms { length, forward, inverse });
        padded[..count].iter().map(|sum| (*sum).into() / length as f64).collect()
    }
}

impl<T: FftNum> fmt::Debug for LaggedProducts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaggedProducts").finish_non_exhaustive()
    }
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
pub fn block_length(centred: &[f64]) -> usize {
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

    #[test]
    fn blocks_are_long_where_values_hang_together() {
        let noise: Vec<f64> = (0..1000u64).map(|i| (i * i * 7919 % 1009) as f64).collect();
        let smooth: Vec<f64> = noise.windows(20).map(|w| w.iter().sum()).collect();
        let (short, long) = (block_length(&centred(&noise)), block_length(&centred(&smooth)));
        assert!(short <= 8 && long >= 20, "{short} {long}");
        assert_eq!((block_length(&[]), block_length(&[0.0; 9])), (1, 1));
    }

    #[test]
    fn they_are_those_of_the_definition() {
        let values: Vec<f64> = (0..97u32).map(|i| f64::from(i * i * 31 % 89) - 44.0).collect();
        let mut products = LaggedProducts::default();
        for count in [97, 12, 12] {
            let found = products.compute(&values, count);
            assert_eq!(found.len(), count);
            for (lag, found) in found.iter().enumerate() {
                let sum: f64 = values.iter().zip(&values[lag..]).map(|(a, b)| a * b).sum();
                assert!((found - sum).abs() < 1e-6, "lag {lag}: {found} is not {sum}");
            }
        }
    }
}
