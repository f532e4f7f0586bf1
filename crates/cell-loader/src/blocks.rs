//! `Blocks`: the load requests (blocks) of a chunked draw whose rows are in memory. All threads of a loader share them, and each batch reads a part
//! of the next block.
//! Invariant: a thread waits only for rows that another thread reads, or for room that an earlier step makes, so the threads never block each other.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anndata_io::{DenseRows, Form, PagePool, Rows};
use loader_core::{LoaderError, Stage, StageClock};

use crate::CellError;
use crate::block::Block;
use crate::chunks::{BlockKey, ChunkSampler};

/// Blocks in memory, usually: that of the batches that are being built, and the next. Of sparse rows the next one grows as the first one shrinks.
const MAX_BLOCKS: usize = 2;

/// The blocks of one loader, shared by its threads.
///
/// Blocks are created in order, and dropped when the last of their batches is built. Sparse rows lie in groups that follow each
/// other in the order of batches, and the memory of a group is free when the last of its own batches is built: the next block
/// fills it. A part is read by the thread that claims it. A claim that fails, by an error or a panic, frees the part again, so that the next claim meets the error itself. A
/// thread waits only for parts that another is reading, and for room, which earlier steps make.
///
/// Invariant: no more than [`MAX_BLOCKS`] blocks are in memory, or as many as one batch reaches over. A group's memory is given
/// back when no batch of this loader needs it any more, and not before.
#[derive(Debug)]
pub struct Blocks {
    state: Mutex<BlocksState>,
    changed: Condvar,
    /// Steps of the loader.
    steps: Range<u64>,
    /// Minimum rows of a part, unless its range is shorter.
    min_part_rows: u64,
    /// Form of the rows.
    form: Form,
    /// Memory of sparse rows.
    pages: PagePool,
    /// Bytes of all buffers of dense rows, except those that are being filled.
    dense_bytes: AtomicU64,
}

#[derive(Debug)]
struct BlocksState {
    live: VecDeque<LiveBlock>,
    /// The next block to create; `None` before the first.
    next: Option<BlockKey>,
    /// Buffers of blocks that were dropped.
    spare: Vec<DenseRows>,
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
    /// The same of each group of the block.
    remaining_of_groups: Vec<u64>,
}

/// A block to create.
struct Planned {
    key: BlockKey,
    /// The block after it.
    next: BlockKey,
    block: Block,
    /// Batches that have rows of it.
    remaining: u64,
    /// The same of each of its groups.
    remaining_of_groups: Vec<u64>,
}

impl Planned {
    /// Create the block if it is still the next one and there is room: another thread may have created it meanwhile.
    fn create(self, state: &mut BlocksState, max_blocks: usize) {
        let Self { key, next, block, remaining, remaining_of_groups } = self;
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
            remaining_of_groups,
        });
    }
}

impl BlocksState {
    fn live(&mut self, key: BlockKey) -> Option<&mut LiveBlock> {
        self.live.iter_mut().find(|live| live.key == key)
    }
}

impl Blocks {
    /// Blocks of a loader of `steps` that reads rows of a form, at least `min_part_rows` at once, unless a range is shorter.
    pub fn new(steps: Range<u64>, min_part_rows: u64, form: Form) -> Self {
        let state = BlocksState { live: VecDeque::new(), next: None, spare: Vec::new(), stopped_from: u64::MAX };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            steps,
            min_part_rows,
            form,
            pages: PagePool::default(),
            dense_bytes: AtomicU64::new(0),
        }
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

    /// Those of some steps that are steps of this loader.
    fn own_steps(&self, steps: &Range<u64>) -> Range<u64> {
        steps.start.max(self.steps.start)..steps.end.min(self.steps.end)
    }

    /// Steps of this loader that have rows of a block.
    fn steps_of(&self, sampler: &ChunkSampler, key: BlockKey) -> Range<u64> {
        self.own_steps(&sampler.steps_of(key))
    }

    /// Hold the blocks that the batch of `step` needs until the returned value is dropped. Waits for room. Time for load requests
    /// belongs to the stage *sample*, time for waiting to none.
    ///
    /// # Errors
    /// [`LoaderError::Stopped`].
    pub fn enter(
        &self,
        sampler: &ChunkSampler,
        step: u64,
        clock: &mut StageClock,
    ) -> Result<BatchBlocks<'_>, CellError> {
        let (epoch, positions) = sampler.positions(step);
        let keys = sampler.plan(epoch).blocks_of(&positions);
        clock.worked(Stage::Sample);
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
        Ok(BatchBlocks { shared: self, epoch, positions, blocks })
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
        // Rows of batches before the first step of this loader.
        let (first_epoch, first) = sampler.positions(self.steps.start);
        let skipped = if first_epoch == key.epoch { request.within(&first).start } else { 0 };
        let block = Block::new(request, self.form, parts as usize, batches, skipped);
        let of_group = |positions: Range<u64>| {
            let steps = self.own_steps(&sampler.steps_at(key.epoch, &positions));
            steps.end.saturating_sub(steps.start)
        };
        let remaining_of_groups = block.group_positions().map(of_group).collect();
        Planned { key, next: sampler.next(key), block, remaining, remaining_of_groups }
    }

    /// Claim a part that no thread reads, if fewer than `limit` parts were claimed.
    pub fn claim(&self, key: BlockKey, limit: usize) -> Option<Claim<'_>> {
        let mut state = self.lock();
        let live = state.live(key)?;
        let part = match live.freed.pop() {
            Some(part) => part,
            None if live.claimed < limit.min(live.block.parts()) => {
                live.claimed += 1;
                live.claimed - 1
            }
            None => return None,
        };
        let block = Arc::clone(&live.block);
        let spare = state.spare.pop();
        Some(Claim { shared: self, key, block: Some(block), part, spare, dense: None, done: false })
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
            let parts = live.block.parts();
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
        let parts = block.parts();
        // The last batches, which threads build side by side, read nothing: no thread waits for them then.
        let begin = self.steps_of(sampler, key).start;
        let batches = first.saturating_sub(begin).max(1);
        let reading = batches - workers.min(batches / 2);
        let claimed =
            ((step + 1).saturating_sub(begin).min(reading) as u128 * parts as u128).div_ceil(u128::from(reading));
        Some(ReadAhead { key: next, block, parts: claimed as usize })
    }

    /// Bytes of memory for rows, used or not.
    pub fn bytes(&self) -> u64 {
        self.pages.bytes() + self.dense_bytes.load(Ordering::Relaxed)
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
    /// The epoch of the batch.
    pub epoch: u64,
    /// Positions of its rows among the rank's rows of the epoch.
    pub positions: Range<u64>,
    /// The blocks, in order.
    pub blocks: Vec<(BlockKey, Arc<Block>)>,
}

impl Drop for BatchBlocks<'_> {
    fn drop(&mut self) {
        let pages = &self.shared.pages;
        let mut state = self.shared.lock();
        let mut done = Vec::new();
        for (key, block) in self.blocks.drain(..) {
            let Some(index) = state.live.iter().position(|live| live.key == key) else { continue };
            let live = &mut state.live[index];
            let groups = block.groups_of(&self.positions);
            for (group, remaining) in groups.clone().zip(&mut live.remaining_of_groups[groups]) {
                *remaining = remaining.saturating_sub(1);
                if *remaining == 0 {
                    block.give_back(group, pages);
                }
            }
            live.remaining = live.remaining.saturating_sub(1);
            if live.remaining == 0 {
                done.extend(state.live.remove(index));
            }
        }
        let spare = done.into_iter().filter_map(|live| Arc::into_inner(live.block)).flat_map(|block| block.end(pages));
        state.spare.extend(spare);
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
    spare: Option<DenseRows>,
    /// Dense rows that were read.
    dense: Option<DenseRows>,
    done: bool,
}

impl Claim<'_> {
    /// Rows to read.
    pub fn rows(&self) -> Range<u64> {
        self.block.as_ref().map_or(0..0, |block| block.range(self.part))
    }

    /// A buffer for dense rows from an earlier block, with any rows in it.
    pub fn buffer(&mut self) -> Option<DenseRows> {
        let rows = self.spare.take();
        self.shared.dense_bytes.fetch_sub(rows.as_ref().map_or(0, bytes_of), Ordering::Relaxed);
        rows
    }

    /// Take the rows that were read, all of [`Self::rows`]. No other thread sees them before [`Self::finish`]. Dense rows are
    /// moved.
    ///
    /// # Errors
    /// There is not enough memory; the rows have another form than the store said.
    pub fn take(&mut self, rows: &mut Rows) -> Result<(), CellError> {
        if let Some(block) = &self.block {
            self.dense = block.take(self.part, rows, &self.shared.pages)?;
        }
        Ok(())
    }

    /// Lets other threads see the rows that were taken.
    pub fn finish(mut self) {
        if let Some(block) = self.block.take() {
            if let Some(rows) = self.dense.take() {
                self.shared.dense_bytes.fetch_add(bytes_of(&rows), Ordering::Relaxed);
                block.set_part(self.part, rows);
            }
            drop(block);
            self.done = true;
        }
    }
}

/// Bytes of memory held, used or not.
fn bytes_of(rows: &DenseRows) -> u64 {
    rows.data.capacity() as u64 * 4
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
