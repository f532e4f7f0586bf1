//! `ChunkSampler` draws chunks of rows in random order and shuffles the rows of several chunks together. A `LoadRequest` tells the loader what
//! to read, and in which order batches get the rows.
//! Invariant: every rank has a run of the same order of chunks, so no row is on two ranks, except those that fill up the last rank.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::permutation::{Permutation, Purpose, RandomStream, below};
use crate::sampler::RankShare;

/// A block: chunks whose rows are shuffled among each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockKey {
    /// Epoch.
    pub epoch: u64,
    /// Index within the epoch.
    pub block: u64,
}

/// The link between a sampler and a loader: rows that are read together, and the order in which batches get them.
///
/// The loader reads all `ranges` into memory. Each of the batches that the request serves is a run of `order`.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadRequest {
    /// Position of the first row of `order` among the rank's rows of the epoch.
    pub start: u64,
    /// Ranges of rows of the store, each read at once.
    pub ranges: Vec<Range<u64>>,
    /// Index of the range, and row within it, of each row, in the order of batches.
    pub order: Vec<(u32, u32)>,
}

impl LoadRequest {
    /// Index in the store of the row at `index` of `order`.
    pub fn row(&self, index: usize) -> u64 {
        let (range, row) = self.order[index];
        self.ranges[range as usize].start + u64::from(row)
    }

    /// Indices in `order` of the rows at these positions of the epoch, as far as they are of this request.
    pub(crate) fn within(&self, positions: &Range<u64>) -> Range<usize> {
        let index = |position: u64| position.saturating_sub(self.start).min(self.order.len() as u64) as usize;
        index(positions.start)..index(positions.end)
    }
}

/// Two listed rows with at most this many rows between them are read at once, because a seek costs more than to read and drop those rows.
const MAX_GAP: u64 = 3;

/// Draws chunks in random order, `per_block` of them a block, and the rows of a block in random order; or all in file order.
#[derive(Debug)]
pub struct ChunkSampler {
    /// Chunks of all rows, or of the positions in `listed`.
    grid: ChunkGrid,
    /// The rows that are drawn, ascending; `None` is all.
    listed: Option<Arc<[u64]>>,
    per_block: usize,
    shuffle: bool,
    share: RankShare,
    plans: Recent<u64, EpochPlan>,
    requests: Recent<BlockKey, LoadRequest>,
}

impl ChunkSampler {
    pub fn new(grid: ChunkGrid, listed: Option<Arc<[u64]>>, per_block: usize, shuffle: bool, share: RankShare) -> Self {
        Self { grid, listed, per_block, shuffle, share, plans: Recent::default(), requests: Recent::default() }
    }

    /// The chunks that this rank reads in an epoch.
    pub fn plan(&self, epoch: u64) -> Arc<EpochPlan> {
        self.plans.get(epoch, || {
            let order = Permutation::new(self.grid.len(), RandomStream::new(self.share.seed(), Purpose::Chunks, epoch));
            let order = self.shuffle.then_some(&order);
            EpochPlan::new(
                &self.grid,
                order,
                self.share.first_of_rank() % self.share.rows(),
                self.share.used(),
                self.per_block,
            )
        })
    }

    /// The load request of a block.
    pub fn load_request(&self, key: BlockKey) -> Arc<LoadRequest> {
        let plan = self.plan(key.epoch);
        self.requests.get(key, || {
            let (chunks, positions) = (plan.chunks(key.block), plan.positions(key.block));
            let (ranges, mut order) = match &self.listed {
                None => (chunks.to_vec(), rows_of(chunks)),
                Some(listed) => ranges_of(listed, chunks),
            };
            if self.shuffle {
                let random = RandomStream::new(self.share.seed(), Purpose::Block, key.epoch);
                // No other rank and block draws from these indices.
                let first = self.share.first_of_rank() + positions.start;
                let mut numbers = vec![[0; 2]; order.len()];
                random.fill(first, &mut numbers);
                for last in (1..order.len()).rev() {
                    order.swap(last, below(numbers[last][0], last as u64 + 1) as usize);
                }
            }
            LoadRequest { start: positions.start, ranges, order }
        })
    }

    /// The epoch of a step, and the positions of its rows among this rank's rows of that epoch.
    pub fn positions(&self, step: u64) -> (u64, Range<u64>) {
        self.share.positions(step)
    }

    /// Steps with rows of a block.
    pub fn steps_of(&self, key: BlockKey) -> Range<u64> {
        self.steps_at(key.epoch, &self.plan(key.epoch).positions(key.block))
    }

    /// Steps with rows at these positions of an epoch; there is at least one position.
    pub fn steps_at(&self, epoch: u64, positions: &Range<u64>) -> Range<u64> {
        let first = epoch * self.share.batches_per_epoch();
        first + positions.start / self.share.batch_size()..first + (positions.end - 1) / self.share.batch_size() + 1
    }

    /// The block that comes next.
    pub fn next(&self, key: BlockKey) -> BlockKey {
        if key.block + 1 < self.plan(key.epoch).blocks() {
            BlockKey { block: key.block + 1, ..key }
        } else {
            BlockKey { epoch: key.epoch + 1, block: 0 }
        }
    }

    /// Append the rows of a step to `out`; returns the epoch.
    pub fn batch(&self, step: u64, out: &mut Vec<u64>) -> u64 {
        let (epoch, positions) = self.positions(step);
        for block in self.plan(epoch).blocks_of(&positions) {
            let request = self.load_request(BlockKey { epoch, block });
            out.extend(request.within(&positions).map(|index| request.row(index)));
        }
        epoch
    }
}

/// All rows of ranges: the index of the range, and the row within it.
fn rows_of(ranges: &[Range<u64>]) -> Vec<(u32, u32)> {
    let rows = |(index, range): (usize, &Range<u64>)| {
        (0..(range.end - range.start) as u32).map(move |row| (index as u32, row))
    };
    ranges.iter().enumerate().flat_map(rows).collect()
}

/// Ranges of the store that hold the rows of these positions of a list, and each row as index of its range and row within it.
fn ranges_of(listed: &[u64], positions: &[Range<u64>]) -> (Vec<Range<u64>>, Vec<(u32, u32)>) {
    let (mut ranges, mut order) = (Vec::<Range<u64>>::new(), Vec::new());
    for positions in positions {
        // A chunk is of one file, and the next one may be of another.
        let first = ranges.len();
        for &row in &listed[positions.start as usize..positions.end as usize] {
            match ranges[first..].last_mut() {
                Some(range) if (range.end..=range.end + MAX_GAP).contains(&row) => range.end = row + 1,
                _ => ranges.push(row..row + 1),
            }
            let last = ranges.len() - 1;
            order.push((last as u32, (row - ranges[last].start) as u32));
        }
    }
    (ranges, order)
}

/// Values in a [`Recent`].
const RECENT: usize = 4;

/// A cache of the last few values.
#[derive(Debug)]
struct Recent<K, V> {
    // A poisoned lock still holds whole values.
    #[expect(clippy::type_complexity, reason = "a list of cells")]
    recent: Mutex<VecDeque<(K, Arc<OnceLock<Arc<V>>>)>>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { recent: Mutex::default() }
    }
}

impl<K: PartialEq + Copy, V> Recent<K, V> {
    /// The value of `key`, made if it is not there. Callers wait for a value that is being made only if it is their own.
    fn get(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = match recent.iter().find(|(k, _)| *k == key) {
            Some((_, cell)) => Arc::clone(cell),
            None => {
                if recent.len() == RECENT {
                    recent.pop_front();
                }
                let cell = Arc::default();
                recent.push_back((key, Arc::clone(&cell)));
                cell
            }
        };
        drop(recent);
        Arc::clone(cell.get_or_init(|| Arc::new(make())))
    }
}

/// Rows cut into chunks of one size. Each file begins a new chunk.
#[derive(Clone, Debug)]
pub struct ChunkGrid {
    /// First row of each file, and the end.
    files: Vec<u64>,
    /// Chunks before each file, and all.
    before: Vec<u64>,
    chunk_rows: u64,
}

impl ChunkGrid {
    /// Chunks of `chunk_rows` of `rows` rows in files that start at `starts`.
    pub fn new(rows: u64, starts: &[u64], chunk_rows: u64) -> Self {
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

    /// Rows of a chunk, but of the last one of a file.
    pub fn chunk_rows(&self) -> u64 {
        self.chunk_rows
    }

    /// Number of chunks.
    pub fn len(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    /// Rows of a chunk.
    fn chunk(&self, chunk: u64) -> Range<u64> {
        let file = self.before.partition_point(|before| *before <= chunk) - 1;
        let first = self.files[file] + (chunk - self.before[file]) * self.chunk_rows;
        first..(first + self.chunk_rows).min(self.files[file + 1])
    }
}

/// The chunks that one rank reads in one epoch, in order, `per_block` of them a block.
///
/// The chunks of all files, in the epoch's order, make a line of rows. Each rank has a run of that line, all equally long, so
/// that a chunk at a border is split between two ranks and no row is in both. The last rank is filled up from the start of
/// the line.
#[derive(Debug)]
pub struct EpochPlan {
    chunks: Vec<Range<u64>>,
    /// Position of the rank's first row of each block, and the end.
    starts: Vec<u64>,
    per_block: usize,
}

impl EpochPlan {
    /// The `rows` rows of the line from position `first` on. `order` is the order of the chunks; `None` is file order.
    pub fn new(grid: &ChunkGrid, order: Option<&Permutation>, first: u64, rows: u64, per_block: usize) -> Self {
        let mut chunks = Vec::new();
        let (mut skip, mut left) = (first, rows);
        let mut next = 0;
        while left > 0 && grid.len() > 0 {
            let mut chunk = grid.chunk(order.map_or(next, |order| order.at(next)));
            next = (next + 1) % grid.len();
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
    pub fn blocks(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Positions of the rows of a block.
    pub fn positions(&self, block: u64) -> Range<u64> {
        self.starts[block as usize]..self.starts[block as usize + 1]
    }

    /// Chunks of a block.
    pub fn chunks(&self, block: u64) -> &[Range<u64>] {
        let first = block as usize * self.per_block;
        &self.chunks[first..(first + self.per_block).min(self.chunks.len())]
    }

    /// The blocks that these positions lie in; there is at least one position.
    pub fn blocks_of(&self, positions: &Range<u64>) -> Range<u64> {
        let block = |position: u64| self.starts.partition_point(|start| *start <= position) as u64 - 1;
        block(positions.start)..block(positions.end - 1) + 1
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
    fn listed_rows_are_read_in_ranges_over_small_gaps() {
        let listed = [2, 3, 5, 9, 13, 20, 21];
        let (ranges, order) = ranges_of(&listed, &[4..7, 0..3]);
        assert_eq!(ranges, [13..14, 20..22, 2..6]);
        assert_eq!(order, [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 3)]);
        // Also of chunks that follow each other.
        assert_eq!(ranges_of(&listed, &[0..3, 3..5]).0, [2..6, 9..14]);
        assert_eq!(ranges_of(&listed, &[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn chunks_do_not_reach_over_files() {
        let grid = ChunkGrid::new(23, &[0, 10, 20, 20, 99], 4);
        let chunks: Vec<Range<u64>> = (0..grid.len()).map(|chunk| grid.chunk(chunk)).collect();
        assert_eq!(chunks, [0..4, 4..8, 8..10, 10..14, 14..18, 18..20, 20..23]);
        assert_eq!(ChunkGrid::new(0, &[0], 4).len(), 0);
    }

    #[test]
    fn ranks_have_runs_of_the_line_and_the_last_goes_on_at_its_start() {
        let grid = ChunkGrid::new(10, &[0], 4);
        let plan = |first| EpochPlan::new(&grid, None, first, 4, 2);
        let pairs = |chunks: &[Range<u64>]| chunks.iter().map(|chunk| (chunk.start, chunk.end)).collect::<Vec<_>>();
        assert_eq!(pairs(&plan(0).chunks), [(0, 4)]);
        assert_eq!(pairs(&plan(4).chunks), [(4, 8)]);
        assert_eq!(pairs(&plan(8).chunks), [(8, 10), (0, 2)]);
        let parted = EpochPlan::new(&grid, None, 3, 7, 2);
        assert_eq!((pairs(parted.chunks(0)), pairs(parted.chunks(1))), (vec![(3, 4), (4, 8)], vec![(8, 10)]));
        assert_eq!((parted.blocks(), parted.positions(1)), (2, 5..7));
        assert_eq!((parted.blocks_of(&(4..5)), parted.blocks_of(&(4..6))), (0..1, 0..2));
        // A rank may have more rows than there are.
        let twice = EpochPlan::new(&grid, None, 9, 12, 9);
        assert_eq!(pairs(&twice.chunks), [(9, 10), (0, 4), (4, 8), (8, 10), (0, 1)]);
    }
}
