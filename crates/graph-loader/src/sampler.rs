//! The order of the samples: `DistributedSampler` draws the order of PyTorch, `Selection` limits it to some records, and `Schedule` cuts it into the
//! batches of steps.
//! Invariant: a batch is a function of the arguments and the step alone, so all threads and restarted runs see the same batches.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use loader_core::{Sampler, samples_per_rank};
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

/// The records that are sampled. A sampler deals positions `0..len`; the selection says which record lies at each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    len: u64,
    /// Ascending and without duplicates; `None` if every record is used.
    records: Option<Vec<u64>>,
}

impl Selection {
    /// Every record of `len`.
    pub const fn all(len: u64) -> Self {
        Self { len, records: None }
    }

    /// These records, which ascend and come once each.
    pub fn from_records(records: Vec<u64>) -> Self {
        Self { len: records.len() as u64, records: Some(records) }
    }

    /// Number of records.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// No records.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every `world_size`-th record, from the one at position `rank` on: all ranks together have each exactly once, and
    /// none is repeated to fill them up.
    #[must_use]
    pub fn share(&self, rank: u32, world_size: u32) -> Self {
        let mut share: Vec<u64> = (u64::from(rank)..self.len).step_by(world_size.max(1) as usize).collect();
        self.to_records(&mut share);
        Self::from_records(share)
    }

    /// Replace positions, each below [`Self::len`], by records.
    pub fn to_records(&self, positions: &mut [u64]) {
        if let Some(records) = &self.records {
            for position in positions {
                *position = records[*position as usize];
            }
        }
    }
}

/// Indices of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchIndices {
    /// Epoch that the batch belongs to.
    pub epoch: u64,
    order: Arc<Vec<u64>>,
    start: usize,
    end: usize,
}

impl BatchIndices {
    /// The indices of the records, in order.
    pub fn indices(&self) -> &[u64] {
        &self.order[self.start..self.end]
    }
}

/// Steps to batches, epoch after epoch. Shared by all loader threads; an epoch's order is made once.
#[derive(Debug)]
pub struct Schedule {
    sampler: DistributedSampler,
    selection: Selection,
    batch_size: u64,
    batches_per_epoch: u64,
    recent: Mutex<VecDeque<(u64, Arc<Vec<u64>>)>>,
}

impl Schedule {
    /// Batches of `batch_size` from `sampler`, over all records. With `drop_last`, a batch that is not full is left out.
    ///
    /// `None` if there is not a single batch in an epoch.
    pub fn new(sampler: DistributedSampler, batch_size: u64) -> Option<Self> {
        Self::of_selection(Selection::all(sampler.len), sampler, batch_size)
    }

    /// As [`Schedule::new`], over the records of `selection`, whose length replaces that of `sampler`.
    pub fn of_selection(selection: Selection, sampler: DistributedSampler, batch_size: u64) -> Option<Self> {
        let sampler = DistributedSampler { len: selection.len(), ..sampler };
        let samples = sampler.samples_per_rank();
        let batches_per_epoch =
            if sampler.drop_last { samples.checked_div(batch_size)? } else { samples.div_ceil(batch_size.max(1)) };
        (batches_per_epoch > 0 && batch_size > 0).then(|| Self {
            sampler,
            selection,
            batch_size,
            batches_per_epoch,
            recent: Mutex::new(VecDeque::new()),
        })
    }

    /// Batches of an epoch, on each rank.
    pub fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch
    }

    /// The batch of `step`, counted from 0 over all epochs.
    pub fn batch(&self, step: u64) -> BatchIndices {
        let epoch = step / self.batches_per_epoch;
        let order = self.order(epoch);
        let start = (step % self.batches_per_epoch * self.batch_size) as usize;
        let end = (start + self.batch_size as usize).min(order.len());
        BatchIndices { epoch, order, start, end }
    }

    fn order(&self, epoch: u64) -> Arc<Vec<u64>> {
        // Locked while the order is made: the other threads need the same one. A poisoned lock still holds whole orders.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, order)) = recent.iter().find(|(e, _)| *e == epoch) {
            return Arc::clone(order);
        }
        let mut order = self.sampler.epoch(epoch);
        self.selection.to_records(&mut order);
        let order = Arc::new(order);
        // Threads are at most one epoch apart, but for tiny epochs.
        if recent.len() == 4 {
            recent.pop_front();
        }
        recent.push_back((epoch, Arc::clone(&order)));
        order
    }
}

impl Sampler for Schedule {
    fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch
    }

    fn batch(&self, step: u64, items: &mut Vec<u64>) -> u64 {
        let batch = self.batch(step);
        items.extend_from_slice(batch.indices());
        batch.epoch
    }
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

    fn schedule(len: u64, batch_size: u64, drop_last: bool) -> Option<Schedule> {
        let sampler = DistributedSampler { len, world_size: 1, rank: 0, shuffle: true, seed: 1, drop_last };
        Schedule::new(sampler, batch_size)
    }

    #[test]
    fn an_epoch_holds_every_sample_once() {
        let schedule = schedule(10, 4, false).unwrap();
        let sizes: Vec<usize> = (0..3).map(|s| schedule.batch(s).indices().len()).collect();
        assert_eq!(sizes, [4, 4, 2]);
        let mut seen: Vec<u64> = (3..6).flat_map(|s| schedule.batch(s).indices().to_vec()).collect();
        assert!((3..6).all(|s| schedule.batch(s).epoch == 1));
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn no_batch_is_no_schedule() {
        assert!(schedule(3, 4, true).is_none());
        assert!(schedule(0, 4, false).is_none());
        assert_eq!(schedule(9, 4, true).unwrap().batches_per_epoch(), 2);
    }
}
