use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::{DistributedSampler, Selection};

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
    /// None if there is not a single batch in an epoch.
    pub fn new(sampler: DistributedSampler, batch_size: u64) -> Option<Self> {
        Self::of(Selection::all(sampler.len), sampler, batch_size)
    }

    /// The same over the records of `selection`, whose length `sampler` takes over.
    pub fn of(selection: Selection, sampler: DistributedSampler, batch_size: u64) -> Option<Self> {
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
        // Held while the order is made: the other threads need the same one. A poisoned lock still holds whole orders.
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

#[cfg(test)]
mod tests {
    use super::*;

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
