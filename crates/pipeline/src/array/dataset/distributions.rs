use std::f64::consts::TAU;

use crate::dataset::rng::Stream;

// The functions of `libm` give the same bits on every machine, those of the C library need not.

/// A standard normal number (Box and Muller 1958).
pub(super) fn normal(stream: &mut Stream) -> f64 {
    let radius = (-2.0 * libm::log(stream.unit())).sqrt();
    radius * libm::cos(TAU * stream.unit())
}

/// A number of events of which `mean` are expected (Hörmann 1993, "The transformed rejection method for generating Poisson
/// random variables", algorithm PTRS; below 10 by multiplication, Knuth).
pub(super) fn poisson(stream: &mut Stream, mean: f64) -> u64 {
    if mean < 10.0 {
        let (limit, mut product, mut events) = (libm::exp(-mean), stream.unit(), 0);
        while product > limit {
            product *= stream.unit();
            events += 1;
        }
        return events;
    }
    let log_mean = libm::log(mean);
    let b = 0.931 + 2.53 * mean.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let accept = 0.9277 - 3.6224 / (b - 2.0);
    loop {
        let (u, v) = (stream.unit() - 0.5, stream.unit());
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + mean + 0.43).floor();
        if us >= 0.07 && v <= accept {
            return k as u64;
        }
        if k < 0.0 || (us < 0.013 && v > us) {
            continue;
        }
        let left = libm::log(v) + libm::log(inverse_alpha) - libm::log(a / (us * us) + b);
        if left <= k * log_mean - mean - libm::lgamma(k + 1.0) {
            return k as u64;
        }
    }
}

/// The logarithmic distribution, P(k) = -p^k / (k ln(1 - p)), where a first uniform number `u` has come out below p; above
/// it is 1 (Kemp 1981, "Efficient generation of logarithmically distributed pseudo-random variables", algorithm LK).
/// `log_q` is ln(1 - p).
pub(super) fn logarithmic_below(stream: &mut Stream, u: f64, log_q: f64) -> u32 {
    let q = -libm::expm1(log_q * stream.unit());
    if u <= q * q {
        (1.0 + libm::log(u) / libm::log(q)).min(f64::from(u32::MAX)) as u32
    } else if u >= q {
        1
    } else {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(n: usize, mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..n).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        (mean, values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64)
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut stream = Stream::new(1, 1.0, "normal");
        let (mean, variance) = moments(400_000, || normal(&mut stream));
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.01, "{mean} {variance}");
    }

    /// Chi-square over the counts that at least five draws are expected of.
    #[test]
    fn poisson_numbers_have_their_distribution() {
        for mean in [0.3, 4.0, 10.0, 37.5, 1600.0] {
            let mut stream = Stream::new(2, mean, "poisson");
            let n = 100_000;
            let mut counts = std::collections::BTreeMap::new();
            for _ in 0..n {
                *counts.entry(poisson(&mut stream, mean)).or_insert(0u64) += 1;
            }
            let expected = |k: f64| f64::from(n) * libm::exp(k * libm::log(mean) - mean - libm::lgamma(k + 1.0));
            let (mut chi, mut cells) = (0.0, 0.0);
            for k in 0..(mean + 12.0 * mean.sqrt() + 20.0) as u64 {
                let e = expected(k as f64);
                if e >= 5.0 {
                    let o = counts.get(&k).copied().unwrap_or(0) as f64;
                    (chi, cells) = (chi + (o - e) * (o - e) / e, cells + 1.0);
                }
            }
            // Five standard deviations of the chi-square distribution; the draws are the same in every run.
            assert!(chi < cells + 5.0 * (2.0f64 * cells).sqrt(), "mean {mean}: chi-square {chi} of {cells}");
        }
    }

    #[test]
    fn logarithmic_numbers_have_their_distribution() {
        for p in [0.05, 0.5, 0.9, 0.99] {
            let mut stream = Stream::new(3, p, "logarithmic");
            let (n, log_q) = (200_000, libm::log1p(-p));
            let mut counts = [0u64; 6];
            for _ in 0..n {
                let u = stream.unit();
                let k = if u >= p { 1 } else { logarithmic_below(&mut stream, u, log_q) };
                counts[(k as usize).min(6) - 1] += 1;
            }
            let mut rest = 1.0;
            for (index, count) in counts.iter().enumerate() {
                let k = (index + 1) as i32;
                let share = if k < 6 { -f64::powi(p, k) / (f64::from(k) * log_q) } else { rest };
                rest -= share;
                let (e, o) = (share * f64::from(n), *count as f64);
                assert!((o - e).abs() < 5.0 * e.sqrt() + 1.0, "p {p}: {o} times {k}, {e} expected");
            }
        }
    }
}
