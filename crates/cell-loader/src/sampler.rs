//! `RowSampler` draws the indices of the rows of each batch, for one rank. `Draw` is the rule, `Sharding` says which rank and batch size.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use anndata_io::{ArrayStore, Labels};
use loader_core::{Sampler, samples_per_rank};

use crate::CellError;
use crate::chunks::{BlockKey, ChunkGrid, ChunkSampler, LoadRequest};
use crate::permutation::{Permutation, Purpose, RandomStream};
use crate::weighted::{AliasTable, ClassTable};

/// How the rows of an epoch are divided among ranks and batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// Seed of all orders; the same on all ranks.
    pub seed: u64,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// Rows of a batch, on each rank.
    pub batch_size: u64,
    /// Leave out the rows that do not fill all ranks, and the batch that is not full, instead of filling up from the start.
    pub drop_last: bool,
}

/// The rows of an epoch that one rank has, in batches. Every rank has the same number of both.
#[derive(Clone, Copy, Debug)]
pub struct RankShare {
    sharding: Sharding,
    /// Rows of an epoch, of all ranks together.
    rows: u64,
    per_rank: u64,
    /// Batches of an epoch, on each rank.
    batches: u64,
}

impl RankShare {
    /// The share of `rows` rows of an epoch. Padding and dropping are those of [`samples_per_rank`].
    fn new(rows: u64, sharding: Sharding) -> Result<Self, CellError> {
        let Sharding { rank, world_size, batch_size, drop_last, .. } = sharding;
        let per_rank = if rows == 0 { 0 } else { samples_per_rank(rows, world_size.max(1), drop_last) };
        let size = batch_size.max(1);
        let batches = if drop_last { per_rank / size } else { per_rank.div_ceil(size) };
        if batches == 0 || batch_size == 0 || rank >= world_size {
            return Err(CellError::NoBatch { rank, world_size, rows, batch_size, drop_last });
        }
        Ok(Self { sharding, rows, per_rank, batches })
    }

    pub fn seed(&self) -> u64 {
        self.sharding.seed
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Rows of all batches: all rows of the rank, or those of full batches.
    pub fn used(&self) -> u64 {
        self.batches.saturating_mul(self.sharding.batch_size).min(self.per_rank)
    }

    pub fn batch_size(&self) -> u64 {
        self.sharding.batch_size
    }

    pub fn batches_per_epoch(&self) -> u64 {
        self.batches
    }

    /// Rows of the ranks before this one.
    pub fn first_of_rank(&self) -> u64 {
        u64::from(self.sharding.rank) * self.per_rank
    }

    /// The epoch of a step, and the positions of its rows among the rank's rows of that epoch.
    pub fn positions(&self, step: u64) -> (u64, Range<u64>) {
        let start = step % self.batches * self.sharding.batch_size;
        (step / self.batches, start..(start + self.sharding.batch_size).min(self.per_rank))
    }

    /// Position among the rows of all ranks of a position of this rank: the ranks take turns.
    fn global_position(&self, position: u64) -> u64 {
        position * u64::from(self.sharding.world_size) + u64::from(self.sharding.rank)
    }
}

/// Rows of a chunk if neither options nor the store say how many.
pub const DEFAULT_CHUNK_ROWS: u64 = 512;

/// How rows are drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// All rows in file order.
    Sequential {
        /// Rows that are read at once; 0 is a run of the store (a row group, the rows of an HDF5 chunk).
        chunk_rows: u64,
    },
    /// All rows in random order, without replacement.
    #[default]
    Uniform,
    /// Rows with replacement, by weight.
    Weighted {
        /// Column of obs with the weights.
        column: String,
        /// Rows of an epoch, of all ranks together; 0 is as many as there are.
        rows: u64,
    },
    /// Rows with replacement, each class with the same probability.
    Balanced {
        /// Column of obs with the classes.
        column: String,
        /// Rows of an epoch, of all ranks together; 0 is as many as there are.
        rows: u64,
    },
    /// Chunks of rows in random order; several are held together and their rows shuffled.
    Chunked {
        /// Rows of a chunk, which is read at once; 0 is a run of the store.
        chunk_rows: u64,
        /// Chunks that are held together.
        chunks: u64,
    },
    /// The rows of a list in chunks: chunks of consecutive rows of the list in random order; several are held together and their rows shuffled.
    ListedChunks {
        /// Rows of the store, ascending, each once.
        rows: Arc<[u64]>,
        /// Listed rows of a chunk, which is read at once; 0 is a run of the store.
        chunk_rows: u64,
        /// Chunks that are held together.
        chunks: u64,
    },
    /// The rows of a list, which is an epoch of all ranks together. A row may be in it several times.
    Listed {
        /// Rows of the store.
        rows: Arc<[u64]>,
        /// In random order, another one each epoch; else in the order of the list.
        shuffle: bool,
    },
    /// A list of batches, which are distributed to the ranks in rotation. [`Sharding::batch_size`] has no effect.
    Batches {
        /// Rows of the store, batch after batch.
        rows: Arc<[u64]>,
        /// End of each batch in `rows`, ascending.
        ends: Arc<[u64]>,
    },
}

#[derive(Debug)]
enum DrawOrder {
    Uniform,
    Weighted(AliasTable),
    Balanced(ClassTable),
    /// Chunked, and sequential: chunks in file order.
    Chunked(ChunkSampler),
    Listed {
        rows: Arc<[u64]>,
        shuffle: bool,
    },
    /// The share is one of batches.
    Batches {
        rows: Arc<[u64]>,
        ends: Arc<[u64]>,
    },
}

/// Draws the rows of each batch. Shared by all loader threads.
///
/// Invariant: every batch is a function of the options, the data, the seed, epoch, rank and world size alone, and can be drawn
/// without those before it.
#[derive(Debug)]
pub struct RowSampler {
    order: DrawOrder,
    share: RankShare,
}

impl RowSampler {
    /// A sampler of the rows of `store`. `classes` are those of a balanced draw, if they have been read already.
    ///
    /// # Errors
    /// [`CellError::NoBatch`]; a column is missing, or its values cannot be drawn by; [`CellError::BlockSize`].
    pub fn new(
        draw: &Draw,
        store: &dyn ArrayStore,
        sharding: Sharding,
        classes: Option<&Labels>,
    ) -> Result<Self, CellError> {
        let rows = match draw {
            Draw::Weighted { rows, .. } | Draw::Balanced { rows, .. } if *rows > 0 => *rows,
            Draw::Listed { rows, .. } | Draw::ListedChunks { rows, .. } => rows.len() as u64,
            Draw::Batches { ends, .. } => ends.len() as u64,
            _ => store.len(),
        };
        let sharding = match draw {
            Draw::Batches { .. } => Sharding { batch_size: 1, ..sharding },
            _ => sharding,
        };
        let share = RankShare::new(rows, sharding)?;
        let order = match draw {
            Draw::Uniform => DrawOrder::Uniform,
            Draw::Weighted { column, .. } => {
                let weights = store.numbers(column).map_err(|problem| match store.labels(column) {
                    Ok(_) => CellError::WeightsAreClasses { problem },
                    Err(_) => problem.into(),
                })?;
                check_length(weights.len(), store, column)?;
                DrawOrder::Weighted(AliasTable::new(weights, column)?)
            }
            Draw::Balanced { column, .. } => {
                let labels = match classes {
                    Some(labels) => Cow::Borrowed(labels),
                    None => Cow::Owned(store.labels(column)?),
                };
                check_length(labels.codes.len(), store, column)?;
                DrawOrder::Balanced(ClassTable::new(&labels, column)?)
            }
            Draw::Sequential { chunk_rows } => {
                // A block only bounds the memory: that of a few batches. It is not smaller than a run, which would be read twice.
                let held = sharding.batch_size.saturating_mul(8);
                let max_rows = held.max(store.run_rows()).max(DEFAULT_CHUNK_ROWS);
                let chunk_rows = rows_per_chunk(*chunk_rows, store).min(max_rows);
                let grid = ChunkGrid::new(store.len(), &store.starts(), chunk_rows);
                DrawOrder::Chunked(chunk_sampler(grid, None, held.div_ceil(chunk_rows), false, share)?)
            }
            Draw::Listed { rows, shuffle } => {
                check_listed(rows, store)?;
                DrawOrder::Listed { rows: Arc::clone(rows), shuffle: *shuffle }
            }
            Draw::Batches { rows, ends } => {
                check_listed(rows, store)?;
                if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != rows.len() as u64 {
                    return Err(CellError::ListedBatches { rows: rows.len() });
                }
                DrawOrder::Batches { rows: Arc::clone(rows), ends: Arc::clone(ends) }
            }
            Draw::Chunked { chunk_rows, chunks } => {
                let grid = ChunkGrid::new(store.len(), &store.starts(), rows_per_chunk(*chunk_rows, store));
                DrawOrder::Chunked(chunk_sampler(grid, None, *chunks, true, share)?)
            }
            Draw::ListedChunks { rows, chunk_rows, chunks } => {
                check_listed(rows, store)?;
                if let Some(pair) = rows.windows(2).find(|pair| pair[0] >= pair[1]) {
                    return Err(CellError::ListedOrder { row: pair[1] });
                }
                let starts: Vec<u64> =
                    store.starts().iter().map(|start| rows.partition_point(|row| row < start) as u64).collect();
                let grid = ChunkGrid::new(rows.len() as u64, &starts, rows_per_chunk(*chunk_rows, store));
                DrawOrder::Chunked(chunk_sampler(grid, Some(Arc::clone(rows)), *chunks, true, share)?)
            }
        };
        Ok(Self { order, share })
    }

    /// Batches of an epoch, on each rank.
    pub fn batches_per_epoch(&self) -> u64 {
        self.share.batches
    }

    /// Rows of an epoch, on each rank; of listed batches their number.
    pub fn rows_per_epoch(&self) -> u64 {
        self.share.used()
    }

    /// Rows of a full batch; 1 for listed batches.
    pub fn batch_size(&self) -> u64 {
        self.share.sharding.batch_size
    }

    /// Whether rows are drawn with replacement.
    pub fn replaces(&self) -> bool {
        matches!(self.order, DrawOrder::Weighted(_) | DrawOrder::Balanced(_))
    }

    /// Fraction of the epoch of all ranks that comes before the rank's row at `position`: where in the files the row would lie
    /// if rows were not shuffled.
    pub(crate) fn epoch_fraction(&self, position: u64) -> f64 {
        let position = match &self.order {
            DrawOrder::Chunked(_) => self.share.first_of_rank() + position,
            _ => self.share.global_position(position),
        };
        // Padding is the start of the epoch again.
        (position % self.share.rows) as f64 / self.share.rows as f64
    }

    /// Number of rows that are never drawn because they have no class.
    pub fn left_out(&self) -> u64 {
        match &self.order {
            DrawOrder::Balanced(classes) => classes.left_out(),
            _ => 0,
        }
    }

    /// Append the rows of the batch of `step`, counted from 0 over all epochs, to `out`; returns its epoch.
    pub fn batch(&self, step: u64, out: &mut Vec<u64>) -> u64 {
        let (epoch, positions) = self.share.positions(step);
        let (rows, seed) = (self.share.rows, self.share.sharding.seed);
        let positions = positions.map(|position| self.share.global_position(position));
        let draw = RandomStream::new(seed, Purpose::Draw, epoch);
        match &self.order {
            DrawOrder::Uniform => {
                let order = Permutation::new(rows, RandomStream::new(seed, Purpose::Rows, epoch));
                // Padding is the start of the order again.
                out.extend(positions.map(|position| order.at(position % rows)));
            }
            DrawOrder::Weighted(table) => out.extend(positions.map(|position| table.draw(draw.at(position)))),
            DrawOrder::Balanced(table) => out.extend(positions.map(|position| table.draw(draw.at(position)))),
            DrawOrder::Chunked(chunks) => return chunks.batch(step, out),
            DrawOrder::Listed { rows: listed, shuffle: false } => {
                out.extend(positions.map(|position| listed[(position % rows) as usize]));
            }
            DrawOrder::Listed { rows: listed, shuffle: true } => {
                let order = Permutation::new(rows, RandomStream::new(seed, Purpose::Rows, epoch));
                out.extend(positions.map(|position| listed[order.at(position % rows) as usize]));
            }
            DrawOrder::Batches { rows: listed, ends } => {
                for position in positions {
                    let batch = (position % rows) as usize;
                    let start = if batch == 0 { 0 } else { ends[batch - 1] };
                    out.extend_from_slice(&listed[start as usize..ends[batch] as usize]);
                }
            }
        }
        epoch
    }

    /// The load requests that the batch of `step` takes its rows from; empty if rows are drawn and read singly.
    pub fn load_requests(&self, step: u64) -> Vec<Arc<LoadRequest>> {
        let Some(chunks) = self.chunks() else { return Vec::new() };
        let (epoch, positions) = chunks.positions(step);
        let blocks = chunks.plan(epoch).blocks_of(&positions);
        blocks.map(|block| chunks.load_request(BlockKey { epoch, block })).collect()
    }

    /// The sampler of chunks, if rows are drawn by chunks.
    pub(crate) fn chunks(&self) -> Option<&ChunkSampler> {
        match &self.order {
            DrawOrder::Chunked(chunks) => Some(chunks),
            _ => None,
        }
    }
}

impl Sampler for RowSampler {
    fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch()
    }

    fn batch(&self, step: u64, items: &mut Vec<u64>) -> u64 {
        self.batch(step, items)
    }
}

/// Rows of a chunk, `asked` or, if that is 0, a run of the store or [`DEFAULT_CHUNK_ROWS`].
fn rows_per_chunk(asked: u64, store: &dyn ArrayStore) -> u64 {
    match (asked, store.run_rows()) {
        (0, 0 | 1) => DEFAULT_CHUNK_ROWS,
        (0, run) => run,
        (rows, _) => rows,
    }
}

/// A sampler of the chunks of a grid, `per_block` of them held together.
fn chunk_sampler(
    grid: ChunkGrid,
    listed: Option<Arc<[u64]>>,
    per_block: u64,
    shuffle: bool,
    share: RankShare,
) -> Result<ChunkSampler, CellError> {
    let block = u128::from(grid.chunk_rows()) * u128::from(per_block);
    if per_block == 0 || block.min(share.rows().into()) > u32::MAX.into() {
        let batch_size = (!shuffle).then(|| share.batch_size());
        return Err(CellError::BlockSize { batch_size, chunks: per_block, chunk_rows: grid.chunk_rows() });
    }
    Ok(ChunkSampler::new(grid, listed, usize::try_from(per_block).unwrap_or(usize::MAX), shuffle, share))
}

/// Check that all listed rows are rows of the store.
fn check_listed(listed: &[u64], store: &dyn ArrayStore) -> Result<(), CellError> {
    let rows = store.len();
    match listed.iter().find(|row| **row >= rows) {
        None => Ok(()),
        Some(row) => Err(CellError::ListedRow { row: *row, rows }),
    }
}

/// Check that a column has a value for each row.
fn check_length(values: usize, store: &dyn ArrayStore, column: &str) -> Result<(), CellError> {
    if values as u64 == store.len() {
        return Ok(());
    }
    Err(CellError::ColumnLength { column: column.to_owned(), values, rows: store.len() })
}
