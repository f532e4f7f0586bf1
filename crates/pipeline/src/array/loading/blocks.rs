use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use expctl_record::Stage;

use crate::PipelineError;
use crate::array::Rows;
use crate::array::sampler::{BlockKey, BlockOrder, ChunkSampler};
use crate::loader::Laps;

/// Blocks that usually are in memory at most: that of the batches at work, and the next.
const HELD: usize = 2;

/// A block whose chunks are read, or being read.
#[derive(Debug)]
pub(super) struct Block {
    /// Which rows it has, in which order.
    pub order: Arc<BlockOrder>,
    /// Rows of each chunk that was read.
    rows: Vec<OnceLock<Rows>>,
}

impl Block {
    /// Rows of a chunk; none if it was not read.
    pub fn chunk(&self, chunk: usize) -> Option<&Rows> {
        self.rows[chunk].get()
    }
}

/// The blocks of one loader, shared by its threads.
///
/// Blocks are made in order, and let go when the last of their batches is made. A chunk is read by whoever claims it; a claim
/// that comes to nothing, by an error or a panic, frees the chunk again, so that the next one meets the error itself. A
/// thread waits only for chunks that another is reading, and for room, which earlier steps make.
#[derive(Debug)]
pub(super) struct Blocks {
    state: Mutex<State>,
    changed: Condvar,
    /// Steps that the loader makes.
    steps: Range<u64>,
    /// Of all buffers of chunks, but for those that are being filled.
    bytes: AtomicU64,
}

#[derive(Debug)]
struct State {
    live: VecDeque<Live>,
    /// The next block to be made; none before the first.
    next: Option<BlockKey>,
    /// Chunks of blocks that are done, empty.
    spare: Vec<Rows>,
    /// From this step on nothing is waited for any more.
    stopped_from: u64,
}

#[derive(Debug)]
struct Live {
    key: BlockKey,
    block: Arc<Block>,
    /// Chunks that nobody has claimed are those from here on, and those that were freed.
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
    order: Arc<BlockOrder>,
    /// Batches that have rows of it.
    left: u64,
}

impl Planned {
    /// Make it, if it is still the next one and there is room for it: another thread may have been faster while it was planned.
    fn make(self, state: &mut State, most: usize) {
        let Self { key, next, order, left } = self;
        if state.next.is_some_and(|next| next != key) || state.live.len() >= most {
            return;
        }
        let rows = (0..order.chunks.len()).map(|_| OnceLock::new()).collect();
        state.next = Some(next);
        let block = Arc::new(Block { order, rows });
        state.live.push_back(Live { key, block, claimed: 0, freed: Vec::new(), ready: 0, left });
    }
}

impl State {
    fn live(&mut self, key: BlockKey) -> Option<&mut Live> {
        self.live.iter_mut().find(|live| live.key == key)
    }
}

impl Blocks {
    /// For a loader that makes the batches of these steps.
    pub fn new(steps: Range<u64>) -> Self {
        let state = State { live: VecDeque::new(), next: None, spare: Vec::new(), stopped_from: u64::MAX };
        Self { state: Mutex::new(state), changed: Condvar::new(), steps, bytes: AtomicU64::new(0) }
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
    ) -> Result<Entered<'_>, PipelineError> {
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
                return Err(PipelineError::Stopped);
            } else {
                state = self.wait(state);
                laps.skip();
            }
        }
        let mut blocks = Vec::with_capacity(1);
        for block in keys {
            let key = BlockKey { epoch, block };
            let live = state.live(key).ok_or(PipelineError::Stopped)?;
            blocks.push((key, Arc::clone(&live.block)));
        }
        Ok(Entered { shared: self, blocks })
    }

    /// What a block is made from. Takes a while, so not under the lock.
    fn planned(&self, sampler: &ChunkSampler, key: BlockKey) -> Planned {
        let steps = self.steps_of(sampler, key);
        let left = steps.end.saturating_sub(steps.start);
        Planned { key, next: sampler.next(key), order: sampler.order(key), left }
    }

    /// A chunk of a block that nobody reads, if fewer than `share` were claimed. The buffer is empty.
    pub fn claim(&self, key: BlockKey, share: usize) -> Option<Claim<'_>> {
        let mut state = self.lock();
        let live = state.live(key)?;
        let chunk = match live.freed.pop() {
            Some(chunk) => chunk,
            None if live.claimed < share.min(live.block.order.chunks.len()) => {
                live.claimed += 1;
                live.claimed - 1
            }
            None => return None,
        };
        let block = Arc::clone(&live.block);
        let spare = state.spare.pop();
        Some(Claim { shared: self, key, block: Some(block), chunk, spare, done: false })
    }

    /// Wait until there is something to claim, or all of a block is there (true).
    pub fn wait_for(&self, key: BlockKey, step: u64) -> Result<bool, PipelineError> {
        let mut state = self.lock();
        loop {
            let stopped = step >= state.stopped_from;
            let live = state.live(key).ok_or(PipelineError::Stopped)?;
            let chunks = live.block.order.chunks.len();
            if live.ready == chunks {
                return Ok(true);
            }
            if live.claimed < chunks || !live.freed.is_empty() {
                return Ok(false);
            }
            if stopped {
                return Err(PipelineError::Stopped);
            }
            state = self.wait(state);
        }
    }

    /// The block behind `key`, and how many of its chunks are to have been claimed when the batch of `step` has read its share,
    /// so that all are there when its own batches begin. None where there is no room for it yet. A loader that ends before
    /// that reads its share all the same: a batch costs at the end what it costs in the middle.
    pub fn ahead(&self, sampler: &ChunkSampler, key: BlockKey, step: u64, workers: u64) -> Option<(BlockKey, usize)> {
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
        let chunks = state.live(next)?.block.order.chunks.len();
        drop(state);
        // The last batches, which other threads make beside each other, read nothing: nobody waits for them then.
        let begin = self.steps_of(sampler, key).start;
        let batches = first.saturating_sub(begin).max(1);
        let reading = batches - workers.min(batches / 2);
        let share =
            ((step + 1).saturating_sub(begin).min(reading) as u128 * chunks as u128).div_ceil(u128::from(reading));
        Some((next, share as usize))
    }

    /// Bytes of all rows in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
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
        state.spare.extend(spare.filter_map(OnceLock::into_inner).map(|mut rows| {
            rows.clear();
            rows
        }));
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// A chunk that a thread reads.
#[derive(Debug)]
pub(super) struct Claim<'b> {
    shared: &'b Blocks,
    key: BlockKey,
    /// None once it is done.
    block: Option<Arc<Block>>,
    chunk: usize,
    spare: Option<Rows>,
    done: bool,
}

impl Claim<'_> {
    /// Rows to be read.
    pub fn rows(&self) -> Range<u64> {
        self.block.as_ref().map_or(0..0, |block| block.order.chunks[self.chunk].clone())
    }

    /// A buffer without rows, if one is left of earlier blocks.
    pub fn buffer(&mut self) -> Option<Rows> {
        let rows = self.spare.take();
        let bytes = rows.as_ref().map_or(0, Rows::capacity_bytes);
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
        rows
    }

    /// The rows were read.
    pub fn finish(mut self, rows: Rows) {
        if let Some(block) = self.block.take() {
            self.shared.bytes.fetch_add(rows.capacity_bytes(), Ordering::Relaxed);
            // Claimed once, so it is empty.
            let _ = block.rows[self.chunk].set(rows);
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
                live.freed.push(self.chunk);
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}
