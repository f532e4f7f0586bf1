//! Sums of the products of values that lie some lags apart, by the fast Fourier transform.

use std::fmt;
use std::sync::Arc;

use realfft::{ComplexToReal, FftNum, RealFftPlanner, RealToComplex};

/// Works out lagged products; keeps its tables for series of about the same length.
pub struct LaggedProducts<T: FftNum> {
    planner: RealFftPlanner<T>,
    plan: Option<Plan<T>>,
}

/// Transforms of one length.
struct Plan<T> {
    length: usize,
    forward: Arc<dyn RealToComplex<T>>,
    back: Arc<dyn ComplexToReal<T>>,
}

impl<T: FftNum> Default for LaggedProducts<T> {
    fn default() -> Self {
        Self { planner: RealFftPlanner::new(), plan: None }
    }
}

impl<T: FftNum + Into<f64>> LaggedProducts<T> {
    /// Sums of the products of values 0, 1, 2… apart, `count` of them, by the Wiener–Khinchin theorem.
    pub fn of(&mut self, values: &[T], count: usize) -> Vec<f64> {
        // Zeros behind the values, so that the end does not meet the start.
        let length = (values.len() + count).next_power_of_two();
        let Plan { forward, back, .. } = match self.plan.take() {
            Some(plan) if plan.length == length => plan,
            _ => Plan {
                length,
                forward: self.planner.plan_fft_forward(length),
                back: self.planner.plan_fft_inverse(length),
            },
        };
        let mut padded = forward.make_input_vec();
        padded[..values.len()].copy_from_slice(values);
        let mut spectrum = forward.make_output_vec();
        // These fail for buffers of another length only, and all come from the plan.
        let transformed = forward.process(&mut padded, &mut spectrum);
        debug_assert!(transformed.is_ok());
        for value in &mut spectrum {
            (value.re, value.im) = (value.re * value.re + value.im * value.im, T::zero());
        }
        let transformed = back.process(&mut spectrum, &mut padded);
        debug_assert!(transformed.is_ok());
        self.plan = Some(Plan { length, forward, back });
        padded[..count].iter().map(|sum| (*sum).into() / length as f64).collect()
    }
}

impl<T: FftNum> fmt::Debug for LaggedProducts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaggedProducts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_definition() {
        let values: Vec<f64> = (0..97u32).map(|i| f64::from(i * i * 31 % 89) - 44.0).collect();
        let mut products = LaggedProducts::default();
        for count in [97, 12, 12] {
            let found = products.of(&values, count);
            assert_eq!(found.len(), count);
            for (lag, found) in found.iter().enumerate() {
                let sum: f64 = values.iter().zip(&values[lag..]).map(|(a, b)| a * b).sum();
                assert!((found - sum).abs() < 1e-6, "lag {lag}: {found} is not {sum}");
            }
        }
    }
}
