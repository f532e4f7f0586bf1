use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
    plans: Recent<u64, Plan>,
    orders: Recent<BlockKey, BlockOrder>,
}

impl ChunkSampler {
    pub(super) fn new(cuts: Cuts, per_block: usize, shuffle: bool, share: Share) -> Self {
        Self { cuts, per_block, shuffle, share, plans: Recent::default(), orders: Recent::default() }
    }

    /// What this rank reads in an epoch.
    pub(crate) fn plan(&self, epoch: u64) -> Arc<Plan> {
        self.plans.get(epoch, || {
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
        self.orders.get(key, || {
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

/// Values that are kept.
const KEPT: usize = 4;

/// The last few values.
#[derive(Debug)]
struct Recent<K, V> {
    // A poisoned lock still holds whole values.
    #[expect(clippy::type_complexity, reason = "a list of cells")]
    kept: Mutex<VecDeque<(K, Arc<OnceLock<Arc<V>>>)>>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { kept: Mutex::default() }
    }
}

impl<K: PartialEq + Copy, V> Recent<K, V> {
    /// One of the last few, or a new one. Who asks for one that is being made waits for it; nobody else does.
    fn get(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = match kept.iter().find(|(k, _)| *k == key) {
            Some((_, cell)) => Arc::clone(cell),
            None => {
                if kept.len() == KEPT {
                    kept.pop_front();
                }
                let cell = Arc::default();
                kept.push_back((key, Arc::clone(&cell)));
                cell
            }
        };
        drop(kept);
        Arc::clone(cell.get_or_init(|| Arc::new(make())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_value_is_made_once_and_others_can_be_had_meanwhile() {
        let recent = Recent::<u64, u64>::default();
        let ((begun, has_begun), (go, may_go)) = (channel(), channel());
        thread::scope(|scope| {
            let slow = scope.spawn(|| {
                recent.get(1, move || {
                    begun.send(()).unwrap();
                    may_go.recv().unwrap();
                    10
                })
            });
            has_begun.recv().unwrap();
            let same = scope.spawn(|| recent.get(1, || 99));
            assert_eq!(*recent.get(2, || 20), 20);
            go.send(()).unwrap();
            assert_eq!((*slow.join().unwrap(), *same.join().unwrap()), (10, 10));
        });
    }
}
