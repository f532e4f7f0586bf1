use rand::SeedableRng;
use rand::rand_core::Rng;
use rand_pcg::Pcg64;

/// A stream of random numbers for one purpose.
///
/// Invariant: the same seed and words give the same numbers on every machine and with every version of `rand`; therefore
/// only the generator's raw words are used, and only arithmetic that IEEE 754 defines exactly.
pub(crate) struct Stream(Pcg64);

impl Stream {
    /// The stream of `purpose` (for example the name of a network) under the data set's seed.
    pub(crate) fn new(seed: u64, scale: f64, purpose: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&scale.to_le_bytes()).update(purpose.as_bytes());
        Self(Pcg64::from_seed(*hasher.finalize().as_bytes()))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..n`. The bias is below `n / 2^64`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in (0, 1), never 0 and never 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// `0..n` in random order (Fisher–Yates).
    pub(crate) fn permutation(&mut self, n: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last as usize, self.below(last + 1) as usize);
        }
        order
    }

    /// A random bijection of `0..n`, in constant memory.
    pub(crate) fn bijection(&mut self, n: u64) -> Bijection {
        let n = n.max(1);
        let mut factor = 1 + self.below(n);
        while gcd(factor, n) != 1 {
            factor = 1 + factor % n;
        }
        Bijection { factor, offset: self.below(n), n }
    }
}

/// `x ↦ x · factor + offset (mod n)` with a factor that has no divisor in common with n.
pub(crate) struct Bijection {
    factor: u64,
    offset: u64,
    n: u64,
}

impl Bijection {
    pub(crate) fn at(&self, x: u64) -> u64 {
        ((u128::from(x) * u128::from(self.factor) + u128::from(self.offset)) % u128::from(self.n)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bijection_meets_each_number_once() {
        for n in [1, 2, 7, 360, 1000] {
            let bijection = Stream::new(3, 1.0, "test").bijection(n);
            let mut met: Vec<u64> = (0..n).map(|x| bijection.at(x)).collect();
            met.sort_unstable();
            assert_eq!(met, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn streams_depend_on_seed_scale_and_purpose() {
        let first = |seed, scale, purpose| Stream::new(seed, scale, purpose).next();
        assert_eq!(first(1, 1.0, "a"), first(1, 1.0, "a"));
        assert_ne!(first(1, 1.0, "a"), first(2, 1.0, "a"));
        assert_ne!(first(1, 1.0, "a"), first(1, 0.5, "a"));
        assert_ne!(first(1, 1.0, "a"), first(1, 1.0, "b"));
        // The value itself: other machines must find the same.
        assert_eq!(Stream::new(1, 1.0, "a").permutation(6), PERMUTATION);
    }

    const PERMUTATION: [u64; 6] = [5, 4, 0, 3, 2, 1];
}
