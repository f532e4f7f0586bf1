//! `Blocks`: the load requests (blocks) of a chunked draw whose rows are in memory. All threads of a loader share them, and each batch reads a part
//! of the next block.
//! Invariant: a thread waits only for rows that another thread reads, or for room that an earlier step makes, so the threads never block each other.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use anndata_io::{DenseRows, NarrowRows, Prefetch, ReadRows, RowView};
use loader_core::{LoaderError, Stage, StageClock};

use crate::CellError;
use crate::chunks::{BlockKey, ChunkSampler, LoadRequest};

/// Blocks in memory, usually: that of the batches that are being built, and the next.
const MAX_BLOCKS: usize = 2;

/// A load request whose rows are in memory, or being read.
///
/// Every range of the request is cut into the same number of parts, each of which is one read. There are about as many parts
/// in all as the block has batches, so that each batch reads as much as the others.
#[derive(Debug)]
pub struct Block {
    /// The rows, and their order.
    pub request: Arc<LoadRequest>,
    /// Parts of a range; not 0.
    parts: usize,
    /// Rows of each part that was read: parts of the first range, then those of the second.
    rows: Vec<OnceLock<PartRows>>,
    /// Remote reads in flight; dropped with the block.
    ahead: OnceLock<Prefetch>,
    /// A thread has started the remote reads.
    requested: AtomicBool,
}

impl Block {
    fn new(request: Arc<LoadRequest>, parts: usize) -> Self {
        let rows = (0..request.ranges.len() * parts).map(|_| OnceLock::new()).collect();
        Self { request, parts, rows, ahead: OnceLock::new(), requested: AtomicBool::new(false) }
    }

    /// Start remote reads of all rows, unless another thread did.
    pub fn request_ahead(&self, reader: &mut dyn ReadRows) -> Result<(), CellError> {
        if !self.requested.swap(true, Ordering::Relaxed) {
            let parts: Vec<Range<u64>> = (0..self.rows.len()).map(|part| self.range(part)).collect();
            // Requested once, so it is empty.
            let _ = self.ahead.set(reader.will_need(&parts)?);
        }
        Ok(())
    }

    /// Rows of each part of a range but the last ones; not 0.
    fn part_rows(&self, range: usize) -> u64 {
        let range = &self.request.ranges[range];
        (range.end - range.start).div_ceil(self.parts as u64).max(1)
    }

    /// Rows of a part; empty if a range is shorter than it has parts.
    fn range(&self, part: usize) -> Range<u64> {
        let (number, part) = (part / self.parts, (part % self.parts) as u64);
        let (range, rows) = (&self.request.ranges[number], self.part_rows(number));
        let start = |part: u64| (range.start + part * rows).min(range.end);
        start(part)..start(part + 1)
    }

    /// A row of a range; `None` if it was not read.
    pub fn row(&self, range: u32, row: u32) -> Option<RowView<'_>> {
        let (range, row) = (range as usize, u64::from(row));
        let rows = self.part_rows(range);
        let part = self.rows[range * self.parts + (row / rows) as usize].get()?;
        Some(part.row((row % rows) as usize))
    }
}

/// The blocks of one loader, shared by its threads.
///
/// Blocks are created in order, and dropped when the last of their batches is built. A part is read by the thread that claims
/// it. A claim that fails, by an error or a panic, frees the part again, so that the next claim meets the error itself. A
/// thread waits only for parts that another is reading, and for room, which earlier steps make.
///
/// Invariant: no more than [`MAX_BLOCKS`] blocks are in memory, or as many as one batch reaches over.
#[derive(Debug)]
pub struct Blocks {
    state: Mutex<BlocksState>,
    changed: Condvar,
    /// Steps of the loader.
    steps: Range<u64>,
    /// Minimum rows of a part, unless its range is shorter.
    min_part_rows: u64,
    /// Bytes of all buffers of parts, except those that are being filled.
    bytes: AtomicU64,
}

#[derive(Debug)]
struct BlocksState {
    live: VecDeque<LiveBlock>,
    /// The next block to create; `None` before the first.
    next: Option<BlockKey>,
    /// Buffers of blocks that were dropped.
    spare: Vec<PartRows>,
    /// Steps from this one on do not wait any more.
    stopped_from: u64,
}

#[derive(Debug)]
struct LiveBlock {
    key: BlockKey,
    block: Arc<Block>,
    /// Parts below this one were claimed; some of them were freed again.
    claimed: usize,
    freed: Vec<usize>,
    ready: usize,
    /// Batches that are not built yet.
    remaining: u64,
}

/// A block to create.
struct Planned {
    key: BlockKey,
    /// The block after it.
    next: BlockKey,
    block: Block,
    /// Batches that have rows of it.
    remaining: u64,
}

impl Planned {
    /// Create the block if it is still the next one and there is room: another thread may have created it meanwhile.
    fn create(self, state: &mut BlocksState, max_blocks: usize) {
        let Self { key, next, block, remaining } = self;
        if state.next.is_some_and(|next| next != key) || state.live.len() >= max_blocks {
            return;
        }
        state.next = Some(next);
        state.live.push_back(LiveBlock {
            key,
            block: Arc::new(block),
            claimed: 0,
            freed: Vec::new(),
            ready: 0,
            remaining,
        });
    }
}

impl BlocksState {
    fn live(&mut self, key: BlockKey) -> Option<&mut LiveBlock> {
        self.live.iter_mut().find(|live| live.key == key)
    }
}

impl Blocks {
    /// Blocks of a loader of `steps` that reads at least `min_part_rows` at once, unless a range is shorter.
    pub fn new(steps: Range<u64>, min_part_rows: u64) -> Self {
        let state = BlocksState { live: VecDeque::new(), next: None, spare: Vec::new(), stopped_from: u64::MAX };
        Self { state: Mutex::new(state), changed: Condvar::new(), steps, min_part_rows, bytes: AtomicU64::new(0) }
    }

    /// Locks the state. A poisoned lock is used as well: no panic can occur between changes that belong together.
    fn lock(&self) -> MutexGuard<'_, BlocksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, BlocksState>) -> MutexGuard<'s, BlocksState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, batches of step `from` and later end with [`LoaderError::Stopped`] where they would wait.
    pub fn stop(&self, from: u64) {
        let mut state = self.lock();
        state.stopped_from = state.stopped_from.min(from);
        drop(state);
        self.changed.notify_all();
    }

    /// Steps of this loader that have rows of a block.
    fn steps_of(&self, sampler: &ChunkSampler, key: BlockKey) -> Range<u64> {
        let steps = sampler.steps_of(key);
        steps.start.max(self.steps.start)..steps.end.min(self.steps.end)
    }

    /// Hold the blocks `keys` of `epoch`, which the batch of `step` needs, until the returned value is dropped. Waits for room.
    /// Time for load requests belongs to the stage *sample*, time for waiting to none.
    ///
    /// # Errors
    /// [`LoaderError::Stopped`].
    pub fn enter(
        &self,
        sampler: &ChunkSampler,
        step: u64,
        epoch: u64,
        keys: Range<u64>,
        clock: &mut StageClock,
    ) -> Result<BatchBlocks<'_>, CellError> {
        let max_blocks = MAX_BLOCKS.max((keys.end - keys.start) as usize);
        let last = BlockKey { epoch, block: keys.end - 1 };
        let next = self.lock().next;
        // Before the first block was created, the next one is that of the first step.
        let first = next.unwrap_or_else(|| {
            let (epoch, positions) = sampler.positions(self.steps.start);
            BlockKey { epoch, block: sampler.plan(epoch).blocks_of(&positions).start }
        });
        let mut state = self.lock();
        loop {
            let next = state.next.unwrap_or(first);
            if next > last {
                break;
            }
            if state.live.len() < max_blocks {
                drop(state);
                let planned = self.planned(sampler, next);
                clock.worked(Stage::Sample);
                state = self.lock();
                planned.create(&mut state, max_blocks);
            } else if step >= state.stopped_from {
                return Err(CellError::Loader(LoaderError::Stopped));
            } else {
                state = self.wait(state);
                clock.skip();
            }
        }
        let mut blocks = Vec::with_capacity(1);
        for block in keys {
            let key = BlockKey { epoch, block };
            let live = state.live(key).ok_or(CellError::Loader(LoaderError::Stopped))?;
            blocks.push((key, Arc::clone(&live.block)));
        }
        Ok(BatchBlocks { shared: self, blocks })
    }

    /// Prepare a block. This takes a while, so it is done without the lock.
    fn planned(&self, sampler: &ChunkSampler, key: BlockKey) -> Planned {
        let steps = self.steps_of(sampler, key);
        let remaining = steps.end.saturating_sub(steps.start);
        let request = sampler.load_request(key);
        // A batch that the block shares with the one before it does not count: buffers then fit from block to block.
        let all = sampler.steps_of(key);
        let batches = (all.end - all.start).saturating_sub(1).max(1);
        let max_parts =
            request.ranges.first().map_or(1, |chunk| (chunk.end - chunk.start) / self.min_part_rows.max(1)).max(1);
        let parts = batches.div_ceil(request.ranges.len().max(1) as u64).min(max_parts);
        Planned { key, next: sampler.next(key), block: Block::new(request, parts as usize), remaining }
    }

    /// Claim a part that no thread reads, if fewer than `limit` parts were claimed.
    pub fn claim(&self, key: BlockKey, limit: usize) -> Option<Claim<'_>> {
        let mut state = self.lock();
        let live = state.live(key)?;
        let part = match live.freed.pop() {
            Some(part) => part,
            None if live.claimed < limit.min(live.block.rows.len()) => {
                live.claimed += 1;
                live.claimed - 1
            }
            None => return None,
        };
        let block = Arc::clone(&live.block);
        let spare = state.spare.pop();
        Some(Claim { shared: self, key, block: Some(block), part, spare, done: false })
    }

    /// Wait until a part can be claimed (false), or all of a block is in memory (true).
    ///
    /// # Errors
    /// [`LoaderError::Stopped`].
    pub fn wait_for(&self, key: BlockKey, step: u64) -> Result<bool, CellError> {
        let mut state = self.lock();
        loop {
            let stopped = step >= state.stopped_from;
            let live = state.live(key).ok_or(CellError::Loader(LoaderError::Stopped))?;
            let parts = live.block.rows.len();
            if live.ready == parts {
                return Ok(true);
            }
            if live.claimed < parts || !live.freed.is_empty() {
                return Ok(false);
            }
            if stopped {
                return Err(CellError::Loader(LoaderError::Stopped));
            }
            state = self.wait(state);
        }
    }

    /// The block after `key`, and how many of its parts must be claimed by the end of the batch of `step`, so that all are in
    /// memory when the block's own batches begin. `None` if there is no room for it yet. A loader that ends before that reads
    /// its part all the same: a batch costs at the end what it costs in the middle.
    pub fn ahead(&self, sampler: &ChunkSampler, key: BlockKey, step: u64, workers: u64) -> Option<ReadAhead> {
        let next = sampler.next(key);
        let first = self.steps_of(sampler, next).start;
        let mut state = self.lock();
        if state.live(next).is_none() {
            if state.next != Some(next) || state.live.len() >= MAX_BLOCKS {
                return None;
            }
            drop(state);
            let planned = self.planned(sampler, next);
            state = self.lock();
            planned.create(&mut state, MAX_BLOCKS);
        }
        let block = Arc::clone(&state.live(next)?.block);
        drop(state);
        let parts = block.rows.len();
        // The last batches, which threads build side by side, read nothing: no thread waits for them then.
        let begin = self.steps_of(sampler, key).start;
        let batches = first.saturating_sub(begin).max(1);
        let reading = batches - workers.min(batches / 2);
        let claimed =
            ((step + 1).saturating_sub(begin).min(reading) as u128 * parts as u128).div_ceil(u128::from(reading));
        Some(ReadAhead { key: next, block, parts: claimed as usize })
    }

    /// Bytes of all rows in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The part of the next block that a batch reads.
pub struct ReadAhead {
    pub key: BlockKey,
    pub block: Arc<Block>,
    /// Parts that must be claimed by the end of the batch.
    pub parts: usize,
}

/// The blocks that a batch being built holds.
#[derive(Debug)]
pub struct BatchBlocks<'b> {
    shared: &'b Blocks,
    /// The blocks, in order.
    pub blocks: Vec<(BlockKey, Arc<Block>)>,
}

impl Drop for BatchBlocks<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let mut done = Vec::new();
        for (key, block) in self.blocks.drain(..) {
            drop(block);
            let Some(index) = state.live.iter().position(|live| live.key == key) else { continue };
            state.live[index].remaining = state.live[index].remaining.saturating_sub(1);
            if state.live[index].remaining == 0 {
                done.extend(state.live.remove(index));
            }
        }
        let spare = done.into_iter().filter_map(|live| Arc::into_inner(live.block)).flat_map(|block| block.rows);
        state.spare.extend(spare.filter_map(OnceLock::into_inner));
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// A part that a thread reads. Dropping it unfinished frees the part.
#[derive(Debug)]
pub struct Claim<'b> {
    shared: &'b Blocks,
    key: BlockKey,
    /// `None` once the part is read.
    block: Option<Arc<Block>>,
    part: usize,
    spare: Option<PartRows>,
    done: bool,
}

impl Claim<'_> {
    /// Rows to read.
    pub fn rows(&self) -> Range<u64> {
        self.block.as_ref().map_or(0..0, |block| block.range(self.part))
    }

    /// A buffer of an earlier block, with any rows in it.
    pub fn buffer(&mut self) -> Option<PartRows> {
        let rows = self.spare.take();
        let bytes = rows.as_ref().map_or(0, PartRows::bytes);
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
        rows
    }

    /// Put the rows into the block.
    pub fn finish(mut self, rows: PartRows) {
        if let Some(block) = self.block.take() {
            self.shared.bytes.fetch_add(rows.bytes(), Ordering::Relaxed);
            // Claimed once, so it is empty.
            let _ = block.rows[self.part].set(rows);
            drop(block);
            self.done = true;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.block = None;
        let mut state = self.shared.lock();
        state.spare.extend(self.spare.take());
        if let Some(live) = state.live(self.key) {
            if self.done {
                live.ready += 1;
            } else {
                live.freed.push(self.part);
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// The rows of a part.
#[derive(Debug)]
pub enum PartRows {
    /// Packed into as few bytes as they fit into: several blocks of them are in memory.
    Sparse(NarrowRows),
    /// As they were read.
    Dense(DenseRows),
}

impl PartRows {
    /// One of the rows, below [`Self::len`].
    pub fn row(&self, row: usize) -> RowView<'_> {
        match self {
            Self::Sparse(rows) => RowView::Narrow(rows.row(row)),
            Self::Dense(rows) => RowView::Dense(&rows.data[row * rows.columns..(row + 1) * rows.columns]),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Sparse(rows) => rows.len(),
            Self::Dense(rows) => rows.data.len() / rows.columns.max(1),
        }
    }

    /// Bytes of memory held, used or not.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Sparse(rows) => rows.bytes(),
            Self::Dense(rows) => rows.data.capacity() as u64 * 4,
        }
    }
}
