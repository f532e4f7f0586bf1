//! Random numbers by counter. Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011
//! (Philox4x32-10).

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// What random numbers are for: each purpose has numbers of its own under one seed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Rows drawn with replacement.
    Draw = 1,
    /// Keys of a permutation of rows.
    Rows = 2,
    /// Keys of a permutation of chunks.
    Chunks = 3,
    /// The rows of a block.
    Block = 4,
}

/// Four words, each a function of all of counter and key.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let low = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
        let high = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Random numbers of one seed, purpose and epoch; any of them at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    key: [u32; 2],
    epoch: u32,
    purpose: Purpose,
}

impl Numbers {
    /// Epochs beyond 2³² repeat.
    pub(super) fn new(seed: u64, purpose: Purpose, epoch: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], epoch: epoch as u32, purpose }
    }

    /// Two words of 64 bits, of `index` below 2⁶¹.
    pub(super) fn at(&self, index: u64) -> [u64; 2] {
        let tag = (index >> 32) as u32 | (self.purpose as u32) << 29;
        let [a, b, c, d] = philox([index as u32, tag, self.epoch, 0], self.key);
        [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32]
    }
}

/// `0..n` for a random word. The bias is below n / 2⁶⁴.
pub(super) fn below(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kat_vectors` of Random123 1.14.
    #[test]
    fn known_answers() {
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (pi, [0xa409_3822, 0x299f_31d0], [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ] {
            assert_eq!(philox(counter, key), expected);
        }
    }

    #[test]
    fn seeds_purposes_and_epochs_have_their_own_numbers() {
        let at = |seed, purpose, epoch, index| Numbers::new(seed, purpose, epoch).at(index)[0];
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
