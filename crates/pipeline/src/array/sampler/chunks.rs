use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::philox::{Numbers, Purpose, below};
use super::plan::Cuts;
use super::row_sampler::Share;
use super::{Permutation, Plan};

/// Which block: chunks whose rows are shuffled among each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockKey {
    /// Epoch.
    pub epoch: u64,
    /// Number within the epoch.
    pub block: u64,
}

/// The rows of a block, in the order in which they are handed out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BlockOrder {
    /// Place of the block's first row among the rank's rows of the epoch.
    pub start: u64,
    /// Rows of each chunk.
    pub chunks: Vec<Range<u64>>,
    /// Chunk, and row within it, of each row.
    pub places: Vec<(u32, u32)>,
}

impl BlockOrder {
    /// Row of the collection at one of the block's places.
    pub(crate) fn row(&self, place: usize) -> u64 {
        let (chunk, row) = self.places[place];
        self.chunks[chunk as usize].start + u64::from(row)
    }
}

/// Chunks in random order, so many of them a block, the rows of a block in random order; or all as they are.
#[derive(Debug)]
pub(crate) struct ChunkSampler {
    cuts: Cuts,
    per_block: usize,
    shuffle: bool,
    share: Share,
    // A poisoned lock still holds whole values.
    plans: Mutex<VecDeque<(u64, Arc<Plan>)>>,
    orders: Mutex<VecDeque<(BlockKey, Arc<BlockOrder>)>>,
}

impl ChunkSampler {
    pub(super) fn new(cuts: Cuts, per_block: usize, shuffle: bool, share: Share) -> Self {
        Self { cuts, per_block, shuffle, share, plans: Mutex::default(), orders: Mutex::default() }
    }

    /// What this rank reads in an epoch.
    pub(crate) fn plan(&self, epoch: u64) -> Arc<Plan> {
        recent(&self.plans, epoch, || {
            let order = Permutation::new(self.cuts.len(), Numbers::new(self.share.seed(), Purpose::Chunks, epoch));
            let order = self.shuffle.then_some(&order);
            Plan::new(
                &self.cuts,
                order,
                self.share.first_of_rank() % self.share.rows(),
                self.share.used(),
                self.per_block,
            )
        })
    }

    /// The order of a block.
    pub(crate) fn order(&self, key: BlockKey) -> Arc<BlockOrder> {
        let plan = self.plan(key.epoch);
        recent(&self.orders, key, || {
            let (chunks, places) = (plan.chunks(key.block).to_vec(), plan.places(key.block));
            let rows = |chunk: usize| {
                (0..(chunks[chunk].end - chunks[chunk].start) as u32).map(move |row| (chunk as u32, row))
            };
            let mut order: Vec<(u32, u32)> = (0..chunks.len()).flat_map(rows).collect();
            if self.shuffle {
                let numbers = Numbers::new(self.share.seed(), Purpose::Block, key.epoch);
                // No other rank and block has these numbers.
                let first = self.share.first_of_rank() + places.start;
                for last in (1..order.len()).rev() {
                    let [word, _] = numbers.at(first + last as u64);
                    order.swap(last, below(word, last as u64 + 1) as usize);
                }
            }
            BlockOrder { start: places.start, chunks, places: order }
        })
    }

    /// Places, among this rank's rows of the epoch, of the rows of a step, and the epoch.
    pub(crate) fn places(&self, step: u64) -> (u64, Range<u64>) {
        self.share.places(step)
    }

    /// Steps with rows of a block.
    pub(crate) fn steps_of(&self, key: BlockKey) -> Range<u64> {
        let places = self.plan(key.epoch).places(key.block);
        let first = key.epoch * self.share.batches_per_epoch();
        first + places.start / self.share.batch_size()..first + (places.end - 1) / self.share.batch_size() + 1
    }

    /// The block that comes next.
    pub(crate) fn next(&self, key: BlockKey) -> BlockKey {
        if key.block + 1 < self.plan(key.epoch).blocks() {
            BlockKey { block: key.block + 1, ..key }
        } else {
            BlockKey { epoch: key.epoch + 1, block: 0 }
        }
    }

    /// Append the rows of a step to `out`; returns the epoch.
    pub(super) fn batch(&self, step: u64, out: &mut Vec<u64>) -> u64 {
        let (epoch, places) = self.places(step);
        for block in self.plan(epoch).blocks_of(&places) {
            let order = self.order(BlockKey { epoch, block });
            let end = order.start + order.places.len() as u64;
            let own = places.start.max(order.start)..places.end.min(end);
            out.extend(own.map(|place| order.row((place - order.start) as usize)));
        }
        epoch
    }
}

/// One of the last few values, or a new one.
fn recent<K: PartialEq + Copy, V>(kept: &Mutex<VecDeque<(K, Arc<V>)>>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    // Held while the value is made: the other threads need the same one.
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, value)) = kept.iter().find(|(k, _)| *k == key) {
        return Arc::clone(value);
    }
    let value = Arc::new(make());
    if kept.len() == 4 {
        kept.pop_front();
    }
    kept.push_back((key, Arc::clone(&value)));
    value
}
