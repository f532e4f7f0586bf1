use expctl_record::samples_per_rank;
use rand_mt::Mt;

/// PyTorch's `DistributedSampler`: the same indices, in the same order, for the same arguments.
///
/// Source: `torch/utils/data/distributed.py`; the shuffle is `torch.randperm` on the CPU, a Fisher–Yates pass over
/// MT19937 seeded with `seed + epoch` (`aten/src/ATen/native/TensorFactories.cpp`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistributedSampler {
    /// Samples in the data set.
    pub len: u64,
    /// Number of ranks.
    pub world_size: u32,
    /// This rank.
    pub rank: u32,
    /// A new order in each epoch.
    pub shuffle: bool,
    /// Seed of the order; the same on all ranks.
    pub seed: u64,
    /// Leave out the tail that does not fill all ranks, instead of padding it with the first samples.
    pub drop_last: bool,
}

impl DistributedSampler {
    /// Samples of each rank in an epoch.
    pub fn samples_per_rank(&self) -> u64 {
        samples_per_rank(self.len, self.world_size, self.drop_last)
    }

    /// This rank's indices in `epoch`, in order.
    pub fn epoch(&self, epoch: u64) -> Vec<u64> {
        if self.len == 0 {
            return Vec::new();
        }
        let order: Vec<u64> =
            if self.shuffle { randperm(self.len, self.seed.wrapping_add(epoch)) } else { (0..self.len).collect() };
        let world = u64::from(self.world_size);
        // Padding repeats the order from its start, as often as needed.
        (0..self.samples_per_rank()).map(|i| order[((i * world + u64::from(self.rank)) % self.len) as usize]).collect()
    }
}

/// `torch.randperm(n, generator=torch.Generator().manual_seed(seed))` for n < 2³²/20.
fn randperm(n: u64, seed: u64) -> Vec<u64> {
    // The generator keeps the low 32 bits of the seed.
    let mut random = Mt::new(seed as u32);
    let mut order: Vec<u64> = (0..n).collect();
    for i in 0..n.saturating_sub(1) {
        let z = u64::from(random.next_u32()) % (n - i);
        order.swap(i as usize, (z + i) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sampler(len: u64, world_size: u32, rank: u32, shuffle: bool, drop_last: bool) -> DistributedSampler {
        DistributedSampler { len, world_size, rank, shuffle, seed: 42, drop_last }
    }

    /// `torch.randperm(10, generator=g.manual_seed(s))` of PyTorch 2.11.
    #[test]
    fn the_permutation_is_pytorchs() {
        assert_eq!(randperm(10, 0), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
        assert_eq!(randperm(10, 42), [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
    }

    #[test]
    fn padding_and_dropping() {
        let all = |drop_last| -> Vec<Vec<u64>> {
            (0..4).map(|rank| sampler(10, 4, rank, false, drop_last).epoch(0)).collect()
        };
        assert_eq!(all(false), [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]);
        assert_eq!(all(true), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(sampler(2, 5, 4, false, false).epoch(0), [0]);
    }

    proptest! {
        /// Transcribed from the Python source, list operation by list operation.
        #[test]
        fn shards_are_pytorchs(len in 1u64..200, world in 1u32..9, shuffle: bool, drop_last: bool, epoch in 0u64..5) {
            let mut indices = if shuffle { randperm(len, 42 + epoch) } else { (0..len).collect::<Vec<_>>() };
            let w = u64::from(world);
            let per_rank = if drop_last && len % w != 0 {
                (len as i64 - w as i64).max(0).unsigned_abs().div_ceil(w)
            } else {
                len.div_ceil(w)
            };
            let total = (per_rank * w) as usize;
            if drop_last {
                indices.truncate(total);
            } else {
                let padding = total - indices.len();
                let repeated: Vec<u64> = indices.iter().copied().cycle().take(padding).collect();
                indices.extend(repeated);
            }
            for rank in 0..world {
                let expected: Vec<u64> = indices.iter().copied().skip(rank as usize).step_by(world as usize).collect();
                prop_assert_eq!(sampler(len, world, rank, shuffle, drop_last).epoch(epoch), expected);
            }
        }
    }
}
