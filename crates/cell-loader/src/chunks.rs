use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::permutation::{Numbers, Permutation, Purpose, below};
use crate::sampler::Share;

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

/// Rows cut into chunks of one size, anew in each file.
#[derive(Clone, Debug)]
pub(crate) struct Cuts {
    /// First row of each file, and the end.
    files: Vec<u64>,
    /// Chunks before each file, and all.
    before: Vec<u64>,
    chunk_rows: u64,
}

impl Cuts {
    /// Chunks of `chunk_rows` of `rows` rows in files that start at `starts`.
    pub(crate) fn new(rows: u64, starts: &[u64], chunk_rows: u64) -> Self {
        let mut files: Vec<u64> = starts.iter().copied().filter(|start| *start < rows).chain([0, rows]).collect();
        files.sort_unstable();
        files.dedup();
        let chunk_rows = chunk_rows.max(1);
        let counts = files.windows(2).map(|file| (file[1] - file[0]).div_ceil(chunk_rows));
        let before = std::iter::once(0).chain(counts.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }));
        Self { before: before.collect(), files, chunk_rows }
    }

    /// Number of chunks.
    pub(crate) fn len(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// Rows of a chunk.
    fn chunk(&self, chunk: u64) -> Range<u64> {
        let file = self.before.partition_point(|before| *before <= chunk) - 1;
        let first = self.files[file] + (chunk - self.before[file]) * self.chunk_rows;
        first..(first + self.chunk_rows).min(self.files[file + 1])
    }
}

/// What one rank reads in one epoch: chunks in order, so many of them a block.
///
/// The chunks of all files stand in the epoch's order, one behind the other; each rank has a run of that line of rows, all of
/// them equally long, so that the chunk at a border may be parted between two ranks and no row is with both. What fills up
/// the last rank is the start of the line again.
#[derive(Debug)]
pub(crate) struct Plan {
    chunks: Vec<Range<u64>>,
    /// Place of the rank's first row of each block, and the end.
    starts: Vec<u64>,
    per_block: usize,
}

impl Plan {
    /// The `rows` rows of the line from place `first` on. `order` is that of the chunks; none is as they are.
    pub(crate) fn new(cuts: &Cuts, order: Option<&Permutation>, first: u64, rows: u64, per_block: usize) -> Self {
        let mut chunks = Vec::new();
        let (mut skip, mut left) = (first, rows);
        let mut place = 0;
        while left > 0 && cuts.len() > 0 {
            let mut chunk = cuts.chunk(order.map_or(place, |order| order.at(place)));
            place = (place + 1) % cuts.len();
            let len = chunk.end - chunk.start;
            if skip >= len {
                skip -= len;
                continue;
            }
            chunk.start += std::mem::take(&mut skip);
            chunk.end = chunk.end.min(chunk.start + left);
            left -= chunk.end - chunk.start;
            chunks.push(chunk);
        }
        let starts = std::iter::once(0).chain(chunks.chunks(per_block).scan(0, |sum, block| {
            *sum += block.iter().map(|chunk| chunk.end - chunk.start).sum::<u64>();
            Some(*sum)
        }));
        Self { starts: starts.collect(), chunks, per_block }
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Places of the rows of a block.
    pub(crate) fn places(&self, block: u64) -> Range<u64> {
        self.starts[block as usize]..self.starts[block as usize + 1]
    }

    /// Chunks of a block.
    pub(crate) fn chunks(&self, block: u64) -> &[Range<u64>] {
        let first = block as usize * self.per_block;
        &self.chunks[first..(first + self.per_block).min(self.chunks.len())]
    }

    /// The blocks that these places, of which there is at least one, lie in.
    pub(crate) fn blocks_of(&self, places: &Range<u64>) -> Range<u64> {
        let block = |place: u64| self.starts.partition_point(|start| *start <= place) as u64 - 1;
        block(places.start)..block(places.end - 1) + 1
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

    #[test]
    fn chunks_do_not_reach_over_files() {
        let cuts = Cuts::new(23, &[0, 10, 20, 20, 99], 4);
        let chunks: Vec<Range<u64>> = (0..cuts.len()).map(|chunk| cuts.chunk(chunk)).collect();
        assert_eq!(chunks, [0..4, 4..8, 8..10, 10..14, 14..18, 18..20, 20..23]);
        assert_eq!(Cuts::new(0, &[0], 4).len(), 0);
    }

    #[test]
    fn ranks_have_runs_of_the_line_and_the_last_goes_on_at_its_start() {
        let cuts = Cuts::new(10, &[0], 4);
        let plan = |first| Plan::new(&cuts, None, first, 4, 2);
        let pairs = |chunks: &[Range<u64>]| chunks.iter().map(|chunk| (chunk.start, chunk.end)).collect::<Vec<_>>();
        assert_eq!(pairs(&plan(0).chunks), [(0, 4)]);
        assert_eq!(pairs(&plan(4).chunks), [(4, 8)]);
        assert_eq!(pairs(&plan(8).chunks), [(8, 10), (0, 2)]);
        let parted = Plan::new(&cuts, None, 3, 7, 2);
        assert_eq!((pairs(parted.chunks(0)), pairs(parted.chunks(1))), (vec![(3, 4), (4, 8)], vec![(8, 10)]));
        assert_eq!((parted.blocks(), parted.places(1)), (2, 5..7));
        assert_eq!((parted.blocks_of(&(4..5)), parted.blocks_of(&(4..6))), (0..1, 0..2));
        // A rank's share may be more than there is.
        let twice = Plan::new(&cuts, None, 9, 12, 9);
        assert_eq!(pairs(&twice.chunks), [(9, 10), (0, 4), (4, 8), (8, 10), (0, 1)]);
    }
}
