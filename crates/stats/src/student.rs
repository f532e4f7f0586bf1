//! Student's t, for a mean or a difference of means.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

/// An estimate with its standard error and the degrees of freedom that this rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Student {
    /// The estimate.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom; at least 1.
    pub freedom: f64,
}

/// Standard error of a mean logarithm below which there is no spread. The clock counts nanoseconds, so times of a second are not told
/// apart below a billionth; no two runs are so much alike. Figures that are equal were rounded, or written off from elsewhere.
const NO_SPREAD: f64 = 1e-9;

impl Student {
    /// Mean of values; none below two.
    pub fn of_mean(values: &[f64]) -> Option<Self> {
        if values.len() < 2 {
            return None;
        }
        let n = values.len() as f64;
        Some(Self { value: values.mean(), error: (values.variance() / n).sqrt(), freedom: n - 1.0 })
    }

    /// Mean of `a` less that of `b`, by Welch with Satterthwaite's degrees of freedom; none below two values on a side.
    pub fn of_difference(a: &[f64], b: &[f64]) -> Option<Self> {
        if a.len() < 2 || b.len() < 2 {
            return None;
        }
        let (na, nb) = (a.len() as f64, b.len() as f64);
        let (va, vb) = (a.variance() / na, b.variance() / nb);
        let sum = va + vb;
        // As shares of their sum, because the squares of small variances are no longer numbers.
        let freedom = match sum > 0.0 {
            true => 1.0 / ((va / sum).powi(2) / (na - 1.0) + (vb / sum).powi(2) / (nb - 1.0)),
            false => na + nb - 2.0,
        };
        Some(Self { value: a.mean() - b.mean(), error: sum.sqrt(), freedom })
    }

    /// Half the width of the interval with two-sided level `alpha`.
    pub fn half_width(&self, alpha: f64) -> f64 {
        if self.error == 0.0 { 0.0 } else { critical(self.freedom, alpha) * self.error }
    }

    /// The estimate of a logarithm, if its values differ from each other: without spread nobody can tell how much of it is chance, and
    /// the t of any difference would be infinite.
    pub fn with_spread(self) -> Option<Self> {
        (self.error >= NO_SPREAD).then_some(self)
    }

    /// Two-sided p value of the estimate being 0.
    pub fn p(&self) -> f64 {
        if self.error == 0.0 { 1.0 } else { two_sided(self.value / self.error, self.freedom) }
    }
}

/// The value that |t| exceeds with probability `alpha`.
pub(super) fn critical(freedom: f64, alpha: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - alpha / 2.0))
}

/// Probability that |t| is at least as large as that of `t`.
pub(super) fn two_sided(t: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |dist| (2.0 * dist.cdf(-t.abs())).min(1.0))
}
