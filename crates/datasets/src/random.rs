//! `RandomStream` and the distributions from which builds draw: uniform, normal, Poisson, logarithmic, permutations and bijections.
//! Invariant: the same seed and purpose give the same numbers on every machine.

use std::f64::consts::TAU;

use rand::SeedableRng;
use rand::rand_core::Rng;
use rand_pcg::Pcg64;

/// A stream of random numbers for one purpose.
///
/// Invariant: the same seed and words give the same numbers on every machine and with every version of `rand`; therefore
/// only the generator's raw words are used, and only arithmetic that IEEE 754 defines exactly.
pub struct RandomStream(Pcg64);

impl RandomStream {
    /// The stream of `purpose` (for example the name of a network) under the data set's seed.
    pub fn new(seed: u64, scale: f64, purpose: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&scale.to_le_bytes()).update(purpose.as_bytes());
        Self(Pcg64::from_seed(*hasher.finalize().as_bytes()))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..n`. The bias is below `n / 2^64`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in (0, 1), never 0 and never 1.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// `0..n` in random order (Fisher–Yates).
    pub fn permutation(&mut self, n: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last as usize, self.below(last + 1) as usize);
        }
        order
    }

    /// A random bijection of `0..n`, in constant memory.
    pub fn bijection(&mut self, n: u64) -> Bijection {
        let n = n.max(1);
        let mut factor = 1 + self.below(n);
        while gcd(factor, n) != 1 {
            factor = 1 + factor % n;
        }
        Bijection { factor, offset: self.below(n), n }
    }
}

/// `x ↦ x · factor + offset (mod n)` with a factor that has no divisor in common with n.
pub struct Bijection {
    factor: u64,
    offset: u64,
    n: u64,
}

impl Bijection {
    pub fn at(&self, x: u64) -> u64 {
        ((u128::from(x) * u128::from(self.factor) + u128::from(self.offset)) % u128::from(self.n)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

// The functions of `libm` give the same bits on every machine, those of the C library need not.

/// A standard normal number (Box and Muller 1958).
pub fn normal(stream: &mut RandomStream) -> f64 {
    let radius = (-2.0 * libm::log(stream.unit())).sqrt();
    radius * libm::cos(TAU * stream.unit())
}

/// A number of events of which `mean` are expected (Hörmann 1993, "The transformed rejection method for generating Poisson
/// random variables", algorithm PTRS; below 10 by multiplication, Knuth).
pub fn poisson(stream: &mut RandomStream, mean: f64) -> u64 {
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
pub fn logarithmic_below(stream: &mut RandomStream, u: f64, log_q: f64) -> u32 {
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

    #[test]
    fn a_bijection_meets_each_number_once() {
        for n in [1, 2, 7, 360, 1000] {
            let bijection = RandomStream::new(3, 1.0, "test").bijection(n);
            let mut met: Vec<u64> = (0..n).map(|x| bijection.at(x)).collect();
            met.sort_unstable();
            assert_eq!(met, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn streams_depend_on_seed_scale_and_purpose() {
        let first = |seed, scale, purpose| RandomStream::new(seed, scale, purpose).next();
        assert_eq!(first(1, 1.0, "a"), first(1, 1.0, "a"));
        assert_ne!(first(1, 1.0, "a"), first(2, 1.0, "a"));
        assert_ne!(first(1, 1.0, "a"), first(1, 0.5, "a"));
        assert_ne!(first(1, 1.0, "a"), first(1, 1.0, "b"));
        // The value itself: other machines must find the same.
        assert_eq!(RandomStream::new(1, 1.0, "a").permutation(6), PERMUTATION);
    }

    const PERMUTATION: [u64; 6] = [5, 4, 0, 3, 2, 1];

    fn moments(n: usize, mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..n).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        (mean, values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64)
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut stream = RandomStream::new(1, 1.0, "normal");
        let (mean, variance) = moments(400_000, || normal(&mut stream));
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.01, "{mean} {variance}");
    }

    /// Chi-square over the counts that at least five draws are expected of.
    #[test]
    fn poisson_numbers_have_their_distribution() {
        for mean in [0.3, 4.0, 10.0, 37.5, 1600.0] {
            let mut stream = RandomStream::new(2, mean, "poisson");
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
            let mut stream = RandomStream::new(3, p, "logarithmic");
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
