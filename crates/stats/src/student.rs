//! Student's t of a mean or of a difference of means, its interval, and the noncentral t for power.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::erf::erfc;
use statrs::function::gamma::ln_gamma;
use statrs::statistics::Statistics;

/// Level of all tests, two-sided; intervals are of 1 − ALPHA = 95 %.
pub const ALPHA: f64 = 0.05;

/// Standard error of a mean logarithm below which values count as equal. The clock counts nanoseconds, so it does not tell times of
/// a second apart below a billionth, and no two runs are that much alike: the figures were rounded, or copied from elsewhere.
pub const NO_SPREAD: f64 = 1e-9;

/// A 95 % confidence interval, in the unit of its estimate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// `value` ± `half_width`.
    pub fn symmetric(value: f64, half_width: f64) -> Self {
        Self { low: value - half_width, high: value + half_width }
    }

    /// exp(`log` ± `half_width`): the interval of a figure, from that of its logarithm.
    pub fn from_log(log: f64, half_width: f64) -> Self {
        Self { low: (log - half_width).exp(), high: (log + half_width).exp() }
    }

    /// The same interval in another unit.
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, high: self.high * factor }
    }
}

/// An estimate with its standard error and the degrees of freedom of that error.
#[derive(Clone, Copy, Debug)]
pub struct Student {
    /// The estimate.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom; at least 1.
    pub freedom: f64,
}

impl Student {
    /// Mean of values; `None` below two.
    pub fn from_values(values: &[f64]) -> Option<Self> {
        if values.len() < 2 {
            return None;
        }
        let n = values.len() as f64;
        Some(Self { value: values.mean(), error: (values.variance() / n).sqrt(), freedom: n - 1.0 })
    }

    /// Mean of `a` minus that of `b`, by Welch (1947) with Satterthwaite's degrees of freedom; `None` below two values on a side.
    pub fn welch(a: &[f64], b: &[f64]) -> Option<Self> {
        if a.len() < 2 || b.len() < 2 {
            return None;
        }
        let (na, nb) = (a.len() as f64, b.len() as f64);
        let (va, vb) = (a.variance() / na, b.variance() / nb);
        Some(Self::difference(a.mean() - b.mean(), (va, na - 1.0), (vb, nb - 1.0)))
    }

    /// A difference of two means, given the squared standard error of each and the degrees of freedom of that.
    pub fn difference(value: f64, (va, freedom_a): (f64, f64), (vb, freedom_b): (f64, f64)) -> Self {
        let sum = va + vb;
        // The variances as shares of their sum, because the squares of small variances underflow.
        let freedom = match sum > 0.0 {
            true => 1.0 / ((va / sum).powi(2) / freedom_a + (vb / sum).powi(2) / freedom_b),
            false => freedom_a + freedom_b,
        };
        Self { value, error: sum.sqrt(), freedom }
    }

    /// Half the width of the interval with two-sided level `alpha`.
    pub fn half_width(&self, alpha: f64) -> f64 {
        if self.error == 0.0 { 0.0 } else { critical(self.freedom, alpha) * self.error }
    }

    /// The estimate of a logarithm; `None` if its values do not differ from each other. Without spread nobody can tell how much of
    /// the estimate is chance, and the t of any difference would be infinite.
    pub fn with_spread(self) -> Option<Self> {
        (self.error >= NO_SPREAD).then_some(self)
    }

    /// Two-sided p value of the estimate being 0.
    pub fn p(&self) -> f64 {
        if self.error == 0.0 { 1.0 } else { two_sided(self.value / self.error, self.freedom) }
    }
}

/// The value that |t| exceeds with probability `alpha`.
pub fn critical(freedom: f64, alpha: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - alpha / 2.0))
}

/// Probability that |t| is at least as large as |`t`|.
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |dist| (2.0 * dist.cdf(-t.abs())).min(1.0))
}

/// Intervals of Simpson's rule; an even number.
const SIMPSON_INTERVALS: usize = 2000;
/// Standard deviations of S on each side of 1 that the integral covers.
const REACH: f64 = 9.0;

/// Probability that a noncentral t with `freedom` degrees of freedom, at least 1, and noncentrality `delta` is at most `t`.
///
/// With Z standard normal and S = √(χ²/ν), t = (Z + δ)/S is at most `t` where Z ≤ t·S − δ. So this is ∫ Φ(t·s − δ) f(s) ds over the
/// density f of S, by Simpson's rule to about 10⁻⁸. The integral runs over the cube root of s, in which the integrand is smooth at 0
/// for every number of degrees of freedom.
///
/// Source of the definition: N. L. Johnson, S. Kotz, N. Balakrishnan, *Continuous univariate distributions*, vol. 2 (1995), ch. 31.
pub fn noncentral_t(t: f64, freedom: f64, delta: f64) -> f64 {
    NoncentralT::with_intervals(freedom, SIMPSON_INTERVALS).cdf(t, delta)
}

/// The nodes of the integral of [`noncentral_t`], which depend on the degrees of freedom alone: for many probabilities they are computed once.
pub struct NoncentralT {
    /// s, and the weight of Simpson's rule there times the density.
    nodes: Vec<(f64, f64)>,
    /// Distance of the cube roots of two nodes.
    step: f64,
}

impl NoncentralT {
    /// Integrate over an even number of `intervals`.
    pub fn with_intervals(freedom: f64, intervals: usize) -> Self {
        let sd = (0.5 / freedom).sqrt();
        let (low, high) = ((1.0 - REACH * sd).max(0.0).cbrt(), (1.0 + REACH * sd).cbrt());
        let log_scale = std::f64::consts::LN_2 + 0.5 * freedom * (0.5 * freedom).ln() - ln_gamma(0.5 * freedom);
        let density = |s: f64| {
            // With one degree of freedom the density is finite at 0, where 0 × ln 0 is not a number; its weight is 0 there.
            if s == 0.0 { 0.0 } else { (log_scale + (freedom - 1.0) * s.ln() - 0.5 * freedom * s * s).exp() }
        };
        let step = (high - low) / intervals as f64;
        let node = |i: usize| {
            let root = low + step * i as f64;
            let s = root.powi(3);
            let weight = match i {
                _ if i == 0 || i == intervals => 1.0,
                _ if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            (s, weight * 3.0 * root * root * density(s))
        };
        Self { nodes: (0..=intervals).map(node).collect(), step }
    }

    /// [`noncentral_t`] with these degrees of freedom.
    pub fn cdf(&self, t: f64, delta: f64) -> f64 {
        let normal = |z: f64| 0.5 * erfc(-z / std::f64::consts::SQRT_2);
        let sum: f64 = self.nodes.iter().map(|(s, weight)| weight * normal(t * s - delta)).sum();
        (sum * self.step / 3.0).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_noncentrality_it_is_student() {
        use statrs::distribution::{ContinuousCDF, StudentsT};
        for freedom in [1.0, 1.7, 2.0, 4.0, 30.0, 400.0] {
            let student = StudentsT::new(0.0, 1.0, freedom).unwrap();
            for t in [-3.0, 0.0, 0.7, 2.1] {
                let (got, want) = (noncentral_t(t, freedom, 0.0), student.cdf(t));
                assert!((got - want).abs() < 1e-6, "{t} {freedom}: {got} is not {want}");
            }
        }
    }

    #[test]
    fn with_the_t_of_a_verdict_few_intervals_are_enough() {
        for freedom in [1.0, 1.2, 1.7, 2.0, 3.4, 6.0, 12.5, 40.0, 41.0, 400.0] {
            let (few, t) = (NoncentralT::with_intervals(freedom, 400), critical(freedom, ALPHA));
            for delta in [0.0, 1.5, 0.9 * t, t + 1.0, 2.0 * t + 2.0] {
                for t in [t, -t] {
                    let (got, want) = (few.cdf(t, delta), noncentral_t(t, freedom, delta));
                    assert!((got - want).abs() < 1e-9, "{t} {freedom} {delta}: {got} is not {want}");
                }
            }
        }
    }
}
