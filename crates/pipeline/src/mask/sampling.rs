//! Approximate masks: of the edges that a sample removes, some.

/// Masks each removed edge of a sample with a fixed probability.
///
/// Whether an edge is masked follows from the seed, the sample's genes, the edge type and the edge alone: it is the same in every epoch, on
/// every rank and for every store, and an edge between two perturbed genes is drawn once. The draws are those of SplitMix64, a
/// generator whose n-th number is a function of n, so each edge has its own.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; constants of its reference
/// implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeSampling {
    seed: u64,
    /// Of 2⁶⁴ draws those below this mask their edge.
    below: u64,
}

impl EdgeSampling {
    /// Mask an edge with probability `fraction`, above 0; `None` from 1 on, where every edge is masked.
    pub fn new(fraction: f64, seed: u64) -> Option<Self> {
        // 2⁶⁴ as a float; below it the product fits, and `as` rounds towards zero.
        (fraction < 1.0).then_some(Self { seed, below: (fraction * 18_446_744_073_709_551_616.0) as u64 })
    }

    /// The draws of the sample that perturbs `genes`, in the edge type with index `edge_type` in the graph.
    pub fn draws(self, genes: &[i64], edge_type: usize) -> Draws {
        let words = [edge_type as u64].into_iter().chain(genes.iter().map(|gene| *gene as u64));
        let key = words.fold(mixed(self.seed), |key, word| mixed(key ^ mixed(word.wrapping_add(STEP))));
        Draws { key, below: self.below }
    }
}

/// The draws for the edges of one type in one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    key: u64,
    below: u64,
}

impl Draws {
    /// Whether the edge at `position` is masked, if the sample removes it.
    pub const fn masks(self, position: u32) -> bool {
        mixed(self.key.wrapping_add((position as u64 + 1).wrapping_mul(STEP))) < self.below
    }
}

/// By how much the state of SplitMix64 grows from one number to the next: 2⁶⁴ over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that SplitMix64 makes of a state.
const fn mixed(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first numbers of the reference implementation for the seed 1234567.
        let first: Vec<u64> = (1..=3).map(|n| mixed(1_234_567u64.wrapping_add(STEP.wrapping_mul(n)))).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    /// Hoeffding: of n independent draws with probability p, the count lies further than t from n·p with a probability of at most
    /// 2·exp(-2·t² / n). With the t of a probability of 1e-9 a correct generator fails none of these few hundred counts.
    fn is_binomial(count: usize, n: usize, p: f64) -> bool {
        let t = (n as f64 / 2.0 * (2.0 / 1e-9_f64).ln()).sqrt();
        (count as f64 - n as f64 * p).abs() <= t
    }

    #[test]
    fn the_share_of_masked_edges_is_that_of_a_binomial_count() {
        const N: u32 = 100_000;
        for fraction in [0.01, 0.1, 0.5, 0.9, 0.999] {
            let sampling = EdgeSampling::new(fraction, 42).unwrap();
            for (edge_type, gene) in [(0, 0), (0, 1), (1, 0), (8, 6606)] {
                let draws = sampling.draws(&[gene, gene + 1, gene + 2], edge_type);
                let masked = |position: &u32| draws.masks(*position);
                let count = (0..N).filter(masked).count();
                assert!(is_binomial(count, N as usize, fraction), "{fraction}: {count}");
                // No pattern of positions is preferred: neither every second edge nor those in front.
                let even = (0..N).step_by(2).filter(masked).count();
                let front = (0..N / 2).filter(masked).count();
                assert!(is_binomial(even, N as usize / 2, fraction), "{fraction}: {even} of the even ones");
                assert!(is_binomial(front, N as usize / 2, fraction), "{fraction}: {front} in front");
            }
        }
        assert_eq!(EdgeSampling::new(1.0, 42), None);
    }

    #[test]
    fn samples_edge_types_and_seeds_draw_by_themselves() {
        const N: u32 = 100_000;
        let of = |seed: u64, genes: &[i64], edge_type: usize| -> Vec<bool> {
            let draws = EdgeSampling::new(0.5, seed).unwrap().draws(genes, edge_type);
            (0..N).map(|position| draws.masks(position)).collect()
        };
        let first = of(1, &[3, 5, 8], 2);
        assert_eq!(first, of(1, &[3, 5, 8], 2));
        // Two independent draws of probability 1/2 agree with probability 1/2.
        for other in [of(2, &[3, 5, 8], 2), of(1, &[3, 5, 8], 1), of(1, &[3, 5], 2), of(1, &[3, 5, 9], 2)] {
            let agree = first.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(is_binomial(agree, N as usize, 0.5), "{agree}");
        }
    }
}
