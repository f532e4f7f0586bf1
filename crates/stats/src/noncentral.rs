use statrs::function::erf::erfc;
use statrs::function::gamma::ln_gamma;

/// Intervals of Simpson's rule; an even number.
const PARTS: usize = 2000;
/// How many standard deviations of the spread the integral reaches.
const REACH: f64 = 9.0;

/// Probability that a noncentral t with `freedom` degrees of freedom, at least 1, and noncentrality `delta` is at most `t`.
///
/// (Z + δ)/S ≤ t where Z ≤ t·S − δ: the normal distribution function, integrated over the density of S = √(χ²/ν) by Simpson's rule, to
/// about 10⁻⁸. It runs over the cube root of S, in which the density is smooth at 0 for every number of degrees of freedom.
pub fn noncentral_t(t: f64, freedom: f64, delta: f64) -> f64 {
    let sd = (0.5 / freedom).sqrt();
    let (low, high) = ((1.0 - REACH * sd).max(0.0).cbrt(), (1.0 + REACH * sd).cbrt());
    let log_scale = std::f64::consts::LN_2 + 0.5 * freedom * (0.5 * freedom).ln() - ln_gamma(0.5 * freedom);
    let density = |s: f64| {
        // With one degree of freedom this has a value at 0, where 0 × ln 0 has none; its weight is 0 there.
        if s == 0.0 { 0.0 } else { (log_scale + (freedom - 1.0) * s.ln() - 0.5 * freedom * s * s).exp() }
    };
    let normal = |z: f64| 0.5 * erfc(-z / std::f64::consts::SQRT_2);
    let step = (high - low) / PARTS as f64;
    let sum: f64 = (0..=PARTS)
        .map(|i| {
            let root = low + step * i as f64;
            let s = root.powi(3);
            let weight = match i {
                0 | PARTS => 1.0,
                _ if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            weight * 3.0 * root * root * density(s) * normal(t * s - delta)
        })
        .sum();
    (sum * step / 3.0).clamp(0.0, 1.0)
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
}
