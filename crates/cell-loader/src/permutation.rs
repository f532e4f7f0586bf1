//! `Permutation` and `RandomStream`: random orders and numbers that are computed from an index, without a table and without a state.
//! Invariant: a number depends on seed, purpose, epoch and index alone, so ranks and threads agree on it without communication.

use rand_philox::{Philox, philox4x32_10};

/// An even number; 10 is what NIST's FF1 takes.
const ROUNDS: usize = 12;

/// A random order of `0..n` that takes no memory: each position is computed by itself.
///
/// A Feistel network over the next power of two, walked on until the value is below n. Source: Black and Rogaway, "Ciphers with
/// arbitrary finite domains", CT-RSA 2002. A table of `0..n` would be read faster, but costs 4 to 8 bytes a row and, at the
/// start of each epoch, a pass over all of it for which every loader thread waits.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    left_bits: u32,
    right_bits: u32,
    keys: [u64; ROUNDS],
    /// 1 if the first two positions are swapped.
    swap: u64,
}

impl Permutation {
    /// The order of `0..n` that `numbers` determine.
    pub(crate) fn new(n: u64, numbers: RandomStream) -> Self {
        // With fewer than 4 bits the halves are too small to mix.
        let bits = (u64::BITS - n.saturating_sub(1).leading_zeros()).max(4);
        let mut keys = [0; ROUNDS];
        for (i, pair) in keys.chunks_exact_mut(2).enumerate() {
            pair.copy_from_slice(&numbers.at(i as u64));
        }
        // Each round is an even permutation, so all of them are; with this, odd ones are as likely, which small n notice.
        let swap = if n < 2 { 0 } else { numbers.at(ROUNDS as u64)[0] & 1 };
        Self { n, left_bits: bits / 2, right_bits: bits - bits / 2, keys, swap }
    }

    /// The element at `position`, which is below n.
    pub fn at(&self, position: u64) -> u64 {
        debug_assert!(position < self.n);
        let mut value = self.mix(if position < 2 { position ^ self.swap } else { position });
        // The walk ends: it is a cycle that contains `position`, which is below n.
        while value >= self.n {
            value = self.mix(value);
        }
        value
    }

    /// A bijection of the numbers of all bits.
    fn mix(&self, value: u64) -> u64 {
        let (left_mask, right_mask) = ((1u64 << self.left_bits) - 1, (1u64 << self.right_bits) - 1);
        let (mut left, mut right) = (value >> self.right_bits, value & right_mask);
        for keys in self.keys.chunks_exact(2) {
            left ^= scatter(right, keys[0]) & left_mask;
            right ^= scatter(left, keys[1]) & right_mask;
        }
        left << self.right_bits | right
    }
}

/// A function of half a value that differs with the key: multiplied, folded and multiplied again, so that each bit of the
/// result depends on all bits of both.
fn scatter(half: u64, key: u64) -> u64 {
    let product = half.wrapping_add(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (product ^ product >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32
}

/// Use of random numbers: each has a stream of its own under one seed.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Rows drawn with replacement.
    Draw = 1,
    /// Keys of a permutation of rows.
    Rows = 2,
    /// Keys of a permutation of chunks.
    Chunks = 3,
    /// The rows of a block.
    Block = 4,
}

/// Random numbers of one seed, purpose and epoch; any of them at once, because each is a function of its index (Philox4x32-10:
/// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#[derive(Clone, Copy, Debug)]
pub struct RandomStream {
    key: [u32; 2],
    epoch: u32,
    purpose: Purpose,
}

impl RandomStream {
    /// Epochs beyond 2³² repeat.
    pub fn new(seed: u64, purpose: Purpose, epoch: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], epoch: epoch as u32, purpose }
    }

    /// Two words of 64 bits, of `index` below 2⁶¹.
    pub fn at(&self, index: u64) -> [u64; 2] {
        let tag = (index >> 32) as u32 | (self.purpose as u32) << 29;
        joined(philox4x32_10([index as u32, tag, self.epoch, 0], self.key))
    }

    /// The words of the indices `first..first + out.len()`: those of [`RandomStream::at`], three times as fast.
    pub fn fill(&self, first: u64, out: &mut [[u64; 2]]) {
        let counter = u128::from(first) | (self.purpose as u128) << 61 | u128::from(self.epoch) << 64;
        let mut stream = Philox::new(self.key, counter);
        let mut words = [0; 4 * FILLED];
        for out in out.chunks_mut(FILLED) {
            let words = &mut words[..4 * out.len()];
            stream.fill_u32(words);
            out.iter_mut().zip(words.as_chunks::<4>().0).for_each(|(out, words)| *out = joined(*words));
        }
    }
}

/// Numbers that [`RandomStream::fill`] makes at once.
const FILLED: usize = 128;

fn joined([a, b, c, d]: [u32; 4]) -> [u64; 2] {
    [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32]
}

/// `0..n` for a random word. The bias is below n / 2⁶⁴.
pub fn below(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::HashMap;

    use super::*;

    fn order(n: u64, seed: u64) -> Vec<u64> {
        let permutation = Permutation::new(n, RandomStream::new(seed, Purpose::Rows, 0));
        (0..n).map(|position| permutation.at(position)).collect()
    }

    proptest! {
        #[test]
        fn each_number_comes_once(n in 0u64..3000, seed: u64) {
            let mut order = order(n, seed);
            order.sort_unstable();
            prop_assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }

    /// All orders of 5 are alike likely. With 119 degrees of freedom the statistic is above 185 with p = 1e-4; the seeds are
    /// fixed, so it is one draw and not a flaky test.
    #[test]
    fn all_orders_are_alike_likely() {
        let (trials, orders) = (60_000u64, 120.0);
        let mut met: HashMap<Vec<u64>, f64> = HashMap::new();
        for seed in 0..trials {
            *met.entry(order(5, seed)).or_default() += 1.0;
        }
        let expected = trials as f64 / orders;
        let statistic: f64 = met.values().map(|count| (count - expected).powi(2) / expected).sum();
        assert_eq!(met.len(), 120);
        assert!(statistic < 185.0, "{statistic}");
    }

    /// Where each number comes is uniform: chi-square over a grid of 20 × 20 parts of position and value, (20 − 1)² degrees of
    /// freedom, above 465 with p = 1e-4.
    #[test]
    fn places_do_not_tell_values() {
        let (n, seeds, parts) = (1000u64, 60, 20u64);
        let mut grid = vec![0.0f64; (parts * parts) as usize];
        for seed in 0..seeds {
            for (position, value) in order(n, seed).into_iter().enumerate() {
                grid[(position as u64 * parts / n * parts + value * parts / n) as usize] += 1.0;
            }
        }
        let expected = (n * seeds) as f64 / (parts * parts) as f64;
        let statistic: f64 = grid.iter().map(|count| (count - expected).powi(2) / expected).sum();
        assert!(statistic < 465.0, "{statistic}");
    }

    /// `kat_vectors` of Random123 1.14, so that no version of the crate changes the orders of old records unseen.
    #[test]
    fn known_answers() {
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (pi, [0xa409_3822, 0x299f_31d0], [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ] {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    #[test]
    fn numbers_at_once_are_those_of_each_index() {
        for (first, count) in [(0, 1), (5, 127), (77, 300), ((1 << 32) - 100, 200), ((1 << 61) - 10, 10)] {
            let stream = RandomStream::new(0x1234_5678_9abc_def0, Purpose::Block, 3);
            let mut filled = vec![[0; 2]; count];
            stream.fill(first, &mut filled);
            assert_eq!(filled, (first..).take(count).map(|index| stream.at(index)).collect::<Vec<_>>(), "{first}");
        }
    }

    #[test]
    fn seeds_purposes_and_epochs_have_their_own_numbers() {
        let at = |seed, purpose, epoch, index| RandomStream::new(seed, purpose, epoch).at(index)[0];
        let mut all = vec![
            at(0, Purpose::Draw, 0, 0),
            at(1, Purpose::Draw, 0, 0),
            at(1 << 32, Purpose::Draw, 0, 0),
            at(0, Purpose::Rows, 0, 0),
            at(0, Purpose::Chunks, 0, 0),
            at(0, Purpose::Block, 0, 0),
            at(0, Purpose::Draw, 1, 0),
            at(0, Purpose::Draw, 0, 1),
            at(0, Purpose::Draw, 0, 1 << 32),
        ];
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 9);
        assert_eq!((below(u64::MAX, 7), below(0, 7)), (6, 0));
    }
}
