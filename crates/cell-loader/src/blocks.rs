use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use anndata_io::{Ahead, DenseRows, NarrowRows, ReadRows, Row};
use expctl_record::Stage;
use loader_core::Laps;

use crate::CellError;
use crate::chunks::{BlockKey, BlockOrder, ChunkSampler};

/// Blocks that usually are in memory at most: that of the batches at work, and the next.
const HELD: usize = 2;

/// A block whose rows are read, or being read.
///
/// Every chunk has as many parts, one behind the other, each of which is read at once: about as many parts in all as the block
/// has batches, so that each batch reads as much as the others.
#[derive(Debug)]
pub(super) struct Block {
    /// Which rows it has, in which order.
    pub order: Arc<BlockOrder>,
    /// Of a chunk; not 0.
    parts: usize,
    /// Rows of each part that was read: those of the first chunk, then those of the second.
    rows: Vec<OnceLock<Held>>,
    /// What was asked for ahead; kept until the block is done.
    ahead: OnceLock<Ahead>,
    /// Somebody asks for it.
    asked: AtomicBool,
}

impl Block {
    fn new(order: Arc<BlockOrder>, parts: usize) -> Self {
        let rows = (0..order.chunks.len() * parts).map(|_| OnceLock::new()).collect();
        Self { order, parts, rows, ahead: OnceLock::new(), asked: AtomicBool::new(false) }
    }

    /// Have its rows asked for, if nobody did.
    pub fn ask(&self, reader: &mut dyn ReadRows) -> Result<(), CellError> {
        if !self.asked.swap(true, Ordering::Relaxed) {
            let parts: Vec<Range<u64>> = (0..self.rows.len()).map(|part| self.range(part)).collect();
            // Asked once, so it is empty.
            let _ = self.ahead.set(reader.will_need(&parts)?);
        }
        Ok(())
    }

    /// Rows of each part of a chunk but the last ones; not 0.
    fn part_rows(&self, chunk: usize) -> u64 {
        let chunk = &self.order.chunks[chunk];
        (chunk.end - chunk.start).div_ceil(self.parts as u64).max(1)
    }

    /// Rows of a part; none where a chunk is shorter than it has parts.
    fn range(&self, part: usize) -> Range<u64> {
        let (number, part) = (part / self.parts, (part % self.parts) as u64);
        let (chunk, rows) = (&self.order.chunks[number], self.part_rows(number));
        let start = |part: u64| (chunk.start + part * rows).min(chunk.end);
        start(part)..start(part + 1)
    }

    /// A row of a chunk; none if it was not read.
    pub fn row(&self, chunk: u32, row: u32) -> Option<Row<'_>> {
        let (chunk, row) = (chunk as usize, u64::from(row));
        let rows = self.part_rows(chunk);
        let held = self.rows[chunk * self.parts + (row / rows) as usize].get()?;
        Some(held.row((row % rows) as usize))
    }
}

/// The blocks of one loader, shared by its threads.
///
/// Blocks are made in order, and let go when the last of their batches is made. A part is read by whoever claims it; a claim
/// that comes to nothing, by an error or a panic, frees the part again, so that the next one meets the error itself. A
/// thread waits only for parts that another is reading, and for room, which earlier steps make.
#[derive(Debug)]
pub(super) struct Blocks {
    state: Mutex<State>,
    changed: Condvar,
    /// Steps that the loader makes.
    steps: Range<u64>,
    /// Rows that a part of a chunk has at least.
    least_rows: u64,
    /// Of all buffers of parts, but for those that are being filled.
    bytes: AtomicU64,
}

#[derive(Debug)]
struct State {
    live: VecDeque<Live>,
    /// The next block to be made; none before the first.
    next: Option<BlockKey>,
    /// Parts of blocks that are done.
    spare: Vec<Held>,
    /// From this step on nothing is waited for any more.
    stopped_from: u64,
}

#[derive(Debug)]
struct Live {
    key: BlockKey,
    block: Arc<Block>,
    /// Parts that nobody has claimed are those from here on, and those that were freed.
    claimed: usize,
    freed: Vec<usize>,
    ready: usize,
    /// Batches that are not made yet.
    left: u64,
}

/// A block that may be made.
struct Planned {
    key: BlockKey,
    /// The block behind it.
    next: BlockKey,
    block: Block,
    /// Batches that have rows of it.
    left: u64,
}

impl Planned {
    /// Make it, if it is still the next one and there is room for it: another thread may have been faster while it was planned.
    fn make(self, state: &mut State, most: usize) {
        let Self { key, next, block, left } = self;
        if state.next.is_some_and(|next| next != key) || state.live.len() >= most {
            return;
        }
        state.next = Some(next);
        state.live.push_back(Live { key, block: Arc::new(block), claimed: 0, freed: Vec::new(), ready: 0, left });
    }
}

impl State {
    fn live(&mut self, key: BlockKey) -> Option<&mut Live> {
        self.live.iter_mut().find(|live| live.key == key)
    }
}

impl Blocks {
    /// For a loader that makes the batches of these steps, and reads no fewer than `least_rows` at once, unless a chunk is
    /// shorter.
    pub fn new(steps: Range<u64>, least_rows: u64) -> Self {
        let state = State { live: VecDeque::new(), next: None, spare: Vec::new(), stopped_from: u64::MAX };
        Self { state: Mutex::new(state), changed: Condvar::new(), steps, least_rows, bytes: AtomicU64::new(0) }
    }

    /// Nothing below panics between changes that belong together.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Batches of this step and later ones wait for nothing any more.
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

    /// The blocks that a step needs, `keys` of its epoch; waits for room. Let go of when the batch is made. Time for orders is
    /// *sample*, that for waiting of no stage.
    pub fn enter(
        &self,
        sampler: &ChunkSampler,
        step: u64,
        epoch: u64,
        keys: Range<u64>,
        laps: &mut Laps,
    ) -> Result<Entered<'_>, CellError> {
        let most = HELD.max((keys.end - keys.start) as usize);
        let last = BlockKey { epoch, block: keys.end - 1 };
        let next = self.lock().next;
        // Where none is made yet, it is that of the first step.
        let first = next.unwrap_or_else(|| {
            let (epoch, places) = sampler.places(self.steps.start);
            BlockKey { epoch, block: sampler.plan(epoch).blocks_of(&places).start }
        });
        let mut state = self.lock();
        loop {
            let next = state.next.unwrap_or(first);
            if next > last {
                break;
            }
            if state.live.len() < most {
                drop(state);
                let planned = self.planned(sampler, next);
                laps.lap(Stage::Sample);
                state = self.lock();
                planned.make(&mut state, most);
            } else if step >= state.stopped_from {
                return Err(CellError::Stopped);
            } else {
                state = self.wait(state);
                laps.skip();
            }
        }
        let mut blocks = Vec::with_capacity(1);
        for block in keys {
            let key = BlockKey { epoch, block };
            let live = state.live(key).ok_or(CellError::Stopped)?;
            blocks.push((key, Arc::clone(&live.block)));
        }
        Ok(Entered { shared: self, blocks })
    }

    /// What a block is made from. Takes a while, so not under the lock.
    fn planned(&self, sampler: &ChunkSampler, key: BlockKey) -> Planned {
        let steps = self.steps_of(sampler, key);
        let left = steps.end.saturating_sub(steps.start);
        let order = sampler.order(key);
        // A batch more where the block begins within one makes no other parts: buffers fit from block to block.
        let all = sampler.steps_of(key);
        let batches = (all.end - all.start).saturating_sub(1).max(1);
        let most = order.chunks.first().map_or(1, |chunk| (chunk.end - chunk.start) / self.least_rows.max(1)).max(1);
        let parts = batches.div_ceil(order.chunks.len().max(1) as u64).min(most);
        Planned { key, next: sampler.next(key), block: Block::new(order, parts as usize), left }
    }

    /// A part of a block that nobody reads, if fewer than `share` were claimed.
    pub fn claim(&self, key: BlockKey, share: usize) -> Option<Claim<'_>> {
        let mut state = self.lock();
        let live = state.live(key)?;
        let part = match live.freed.pop() {
            Some(part) => part,
            None if live.claimed < share.min(live.block.rows.len()) => {
                live.claimed += 1;
                live.claimed - 1
            }
            None => return None,
        };
        let block = Arc::clone(&live.block);
        let spare = state.spare.pop();
        Some(Claim { shared: self, key, block: Some(block), part, spare, done: false })
    }

    /// Wait until there is something to claim, or all of a block is there (true).
    pub fn wait_for(&self, key: BlockKey, step: u64) -> Result<bool, CellError> {
        let mut state = self.lock();
        loop {
            let stopped = step >= state.stopped_from;
            let live = state.live(key).ok_or(CellError::Stopped)?;
            let parts = live.block.rows.len();
            if live.ready == parts {
                return Ok(true);
            }
            if live.claimed < parts || !live.freed.is_empty() {
                return Ok(false);
            }
            if stopped {
                return Err(CellError::Stopped);
            }
            state = self.wait(state);
        }
    }

    /// The block behind `key`, and how many of its parts are to have been claimed when the batch of `step` has read its share,
    /// so that all are there when its own batches begin. None where there is no room for it yet. A loader that ends before
    /// that reads its share all the same: a batch costs at the end what it costs in the middle.
    pub fn ahead(&self, sampler: &ChunkSampler, key: BlockKey, step: u64, workers: u64) -> Option<Share> {
        let next = sampler.next(key);
        let first = self.steps_of(sampler, next).start;
        let mut state = self.lock();
        if state.live(next).is_none() {
            if state.next != Some(next) || state.live.len() >= HELD {
                return None;
            }
            drop(state);
            let planned = self.planned(sampler, next);
            state = self.lock();
            planned.make(&mut state, HELD);
        }
        let block = Arc::clone(&state.live(next)?.block);
        drop(state);
        let parts = block.rows.len();
        // The last batches, which other threads make beside each other, read nothing: nobody waits for them then.
        let begin = self.steps_of(sampler, key).start;
        let batches = first.saturating_sub(begin).max(1);
        let reading = batches - workers.min(batches / 2);
        let share =
            ((step + 1).saturating_sub(begin).min(reading) as u128 * parts as u128).div_ceil(u128::from(reading));
        Some(Share { key: next, block, parts: share as usize })
    }

    /// Bytes of all rows in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What a batch reads of the block behind its own.
pub(super) struct Share {
    pub key: BlockKey,
    pub block: Arc<Block>,
    /// Parts that are to have been claimed.
    pub parts: usize,
}

/// The blocks of a batch that is being made.
#[derive(Debug)]
pub(super) struct Entered<'b> {
    shared: &'b Blocks,
    /// In order.
    pub blocks: Vec<(BlockKey, Arc<Block>)>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let mut done = Vec::new();
        for (key, block) in self.blocks.drain(..) {
            drop(block);
            let Some(place) = state.live.iter().position(|live| live.key == key) else { continue };
            state.live[place].left = state.live[place].left.saturating_sub(1);
            if state.live[place].left == 0 {
                done.extend(state.live.remove(place));
            }
        }
        let spare = done.into_iter().filter_map(|live| Arc::into_inner(live.block)).flat_map(|block| block.rows);
        state.spare.extend(spare.filter_map(OnceLock::into_inner));
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// A part that a thread reads.
#[derive(Debug)]
pub(super) struct Claim<'b> {
    shared: &'b Blocks,
    key: BlockKey,
    /// None once it is done.
    block: Option<Arc<Block>>,
    part: usize,
    spare: Option<Held>,
    done: bool,
}

impl Claim<'_> {
    /// Rows to be read.
    pub fn rows(&self) -> Range<u64> {
        self.block.as_ref().map_or(0..0, |block| block.range(self.part))
    }

    /// A buffer with any rows, if one is left of earlier blocks.
    pub fn buffer(&mut self) -> Option<Held> {
        let rows = self.spare.take();
        let bytes = rows.as_ref().map_or(0, Held::bytes);
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
        rows
    }

    /// The rows were read.
    pub fn finish(mut self, rows: Held) {
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

/// Rows that batches are taken from.
#[derive(Debug)]
pub(super) enum Held {
    /// In as few bytes as they fit into: several blocks of them are in memory.
    Sparse(NarrowRows),
    /// As they are.
    Dense(DenseRows),
}

impl Held {
    /// One of the rows, which is there.
    pub fn row(&self, row: usize) -> Row<'_> {
        match self {
            Self::Sparse(rows) => Row::Narrow(rows.row(row)),
            Self::Dense(rows) => Row::Dense(&rows.data[row * rows.columns..(row + 1) * rows.columns]),
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
