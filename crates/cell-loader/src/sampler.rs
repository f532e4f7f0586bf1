use std::borrow::Cow;
use std::ops::Range;

use anndata_io::{ArrayStore, Labels};
use expctl_record::{Draw, Sampler};
use graph_loader::DistributedSampler;

use crate::CellError;
use crate::chunks::{ChunkSampler, Cuts};
use crate::permutation::{Numbers, Permutation, Purpose};
use crate::weighted::{AliasTable, ClassTable};

/// How the rows of an epoch are parted among ranks and batches.
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
    /// Leave out what does not fill all ranks, and the batch that is not full, instead of going on at the start.
    pub drop_last: bool,
}

/// A rank's share of the rows of an epoch, in batches. Every rank has the same number of both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    sharding: Sharding,
    rows: u64,
    per_rank: u64,
    batches: u64,
}

impl Share {
    /// Of `rows` rows of an epoch, of all ranks together. Padding and dropping are those of [`DistributedSampler`].
    fn new(rows: u64, sharding: Sharding) -> Result<Self, CellError> {
        let Sharding { seed, rank, world_size, batch_size, drop_last } = sharding;
        let sampler =
            DistributedSampler { len: rows, world_size: world_size.max(1), rank, shuffle: true, seed, drop_last };
        let per_rank = if rows == 0 { 0 } else { sampler.samples_per_rank() };
        let size = batch_size.max(1);
        let batches = if drop_last { per_rank / size } else { per_rank.div_ceil(size) };
        if batches == 0 || batch_size == 0 || rank >= world_size {
            let dropped = if drop_last { ", the last that is not full left out" } else { "" };
            return Err(CellError::Invalid(format!(
                "rank {rank} of {world_size} has no batch: {rows} rows an epoch in batches of {batch_size}{dropped}"
            )));
        }
        Ok(Self { sharding, rows, per_rank, batches })
    }

    pub(super) fn seed(&self) -> u64 {
        self.sharding.seed
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Rows that batches are made of: all of them, or those of batches that are full.
    pub(super) fn used(&self) -> u64 {
        self.batches.saturating_mul(self.sharding.batch_size).min(self.per_rank)
    }

    pub(super) fn batch_size(&self) -> u64 {
        self.sharding.batch_size
    }

    pub(super) fn batches_per_epoch(&self) -> u64 {
        self.batches
    }

    /// Rows of the ranks before this one.
    pub(super) fn first_of_rank(&self) -> u64 {
        u64::from(self.sharding.rank) * self.per_rank
    }

    /// The epoch of a step, and the places of its rows among the rank's rows of that epoch.
    pub(super) fn places(&self, step: u64) -> (u64, Range<u64>) {
        let start = step % self.batches * self.sharding.batch_size;
        (step / self.batches, start..(start + self.sharding.batch_size).min(self.per_rank))
    }

    /// Place among the rows of all ranks: the ranks take turns.
    fn place(&self, place: u64) -> u64 {
        place * u64::from(self.sharding.world_size) + u64::from(self.sharding.rank)
    }
}

#[derive(Debug)]
enum Order {
    Uniform,
    Weighted(AliasTable),
    Balanced(ClassTable),
    /// Chunked, and sequential, which is chunks as they are.
    Chunked(ChunkSampler),
}

/// Which rows a step's batch has. Shared by all loader threads.
#[derive(Debug)]
pub struct RowSampler {
    order: Order,
    share: Share,
}

impl RowSampler {
    /// A sampler of the rows of `store`. `classes` are those of `sampler.by`, where they were read already.
    ///
    /// # Errors
    /// There is not a single batch in an epoch; a column is missing, or has what cannot be drawn by; `settings` are not
    /// possible.
    pub fn new(
        settings: &Sampler,
        store: &dyn ArrayStore,
        sharding: Sharding,
        classes: Option<&Labels>,
    ) -> Result<Self, CellError> {
        let by = || match settings.by.as_str() {
            "" => Err(CellError::Invalid(format!(
                "sampler.by is empty; with draw = \"{}\" it names a column of obs",
                settings.draw.name()
            ))),
            column => Ok(column),
        };
        let rows = match settings.draw {
            Draw::Weighted | Draw::Balanced if settings.rows > 0 => settings.rows,
            _ => store.len(),
        };
        let share = Share::new(rows, sharding)?;
        let order = match settings.draw {
            Draw::Uniform => Order::Uniform,
            Draw::Weighted => {
                let weights = store.numbers(by()?).map_err(|error| advised(error.into(), store, settings))?;
                of_all_rows(weights.len(), store, by()?)?;
                Order::Weighted(AliasTable::new(&weights, by()?)?)
            }
            Draw::Balanced => {
                let labels = match classes {
                    Some(labels) => Cow::Borrowed(labels),
                    None => Cow::Owned(store.labels(by()?)?),
                };
                of_all_rows(labels.codes.len(), store, by()?)?;
                Order::Balanced(ClassTable::new(&labels, by()?)?)
            }
            Draw::Sequential => {
                // A block only bounds what is held: that of a few batches. No smaller than a run, which would be read twice.
                let held = sharding.batch_size.saturating_mul(8);
                let most = held.max(store.run_rows()).max(Sampler::default().chunk_rows);
                let chunk_rows = chunk_rows(settings, store).min(most);
                Order::Chunked(chunked(store, chunk_rows, held.div_ceil(chunk_rows), false, share)?)
            }
            Draw::Chunked => Order::Chunked(chunked(store, chunk_rows(settings, store), settings.chunks, true, share)?),
        };
        Ok(Self { order, share })
    }

    /// Batches of an epoch, on each rank.
    pub fn batches_per_epoch(&self) -> u64 {
        self.share.batches
    }

    /// Rows of an epoch, on each rank.
    pub fn rows_per_epoch(&self) -> u64 {
        self.share.used()
    }

    /// Rows of a batch that is full.
    pub fn batch_size(&self) -> u64 {
        self.share.sharding.batch_size
    }

    /// Whether rows are drawn with replacement, which need not be alike likely.
    pub fn replaces(&self) -> bool {
        matches!(self.order, Order::Weighted(_) | Order::Balanced(_))
    }

    /// Share of the epoch of all ranks that lies before the rank's row at `place` of its own, at most 1: where the row would come
    /// from if rows were not shuffled.
    pub(super) fn position(&self, place: u64) -> f64 {
        let place = match &self.order {
            Order::Chunked(_) => self.share.first_of_rank() + place,
            _ => self.share.place(place),
        };
        // Padding is the start of the epoch again.
        (place % self.share.rows) as f64 / self.share.rows as f64
    }

    /// Rows that are never drawn because they have no class.
    pub fn left_out(&self) -> u64 {
        match &self.order {
            Order::Balanced(classes) => classes.left_out(),
            _ => 0,
        }
    }

    /// Append the rows of the batch of `step`, counted from 0 over all epochs, to `out`; returns its epoch.
    pub fn batch(&self, step: u64, out: &mut Vec<u64>) -> u64 {
        let (epoch, places) = self.share.places(step);
        let (rows, seed) = (self.share.rows, self.share.sharding.seed);
        let places = places.map(|place| self.share.place(place));
        let draw = Numbers::new(seed, Purpose::Draw, epoch);
        match &self.order {
            Order::Uniform => {
                let order = Permutation::new(rows, Numbers::new(seed, Purpose::Rows, epoch));
                // Padding is the start of the order again.
                out.extend(places.map(|place| order.at(place % rows)));
            }
            Order::Weighted(table) => out.extend(places.map(|place| table.draw(draw.at(place)))),
            Order::Balanced(table) => out.extend(places.map(|place| table.draw(draw.at(place)))),
            Order::Chunked(chunks) => return chunks.batch(step, out),
        }
        epoch
    }

    /// Where rows are drawn by chunks.
    pub(crate) fn chunks(&self) -> Option<&ChunkSampler> {
        match &self.order {
            Order::Chunked(chunks) => Some(chunks),
            _ => None,
        }
    }
}

/// Rows of a chunk; 0 is a run of the store, and the default where it has none.
fn chunk_rows(settings: &Sampler, store: &dyn ArrayStore) -> u64 {
    match (settings.chunk_rows, store.run_rows()) {
        (0, 0 | 1) => Sampler::default().chunk_rows,
        (0, run) => run,
        (rows, _) => rows,
    }
}

/// Chunks of `chunk_rows` rows, `per_block` of them held together.
fn chunked(
    store: &dyn ArrayStore,
    chunk_rows: u64,
    per_block: u64,
    shuffle: bool,
    share: Share,
) -> Result<ChunkSampler, CellError> {
    let block = u128::from(chunk_rows) * u128::from(per_block);
    if per_block == 0 || block.min(store.len().into()) > u32::MAX.into() {
        let drawn = match shuffle {
            true => format!("sampler.chunks = {per_block} of {chunk_rows} rows"),
            false => {
                format!("sampler.chunk_rows = {chunk_rows}, {per_block} of them for batches of {}", share.batch_size())
            }
        };
        return Err(CellError::Invalid(format!(
            "{drawn} cannot be held; take at least 1 chunk, and at most 4,294,967,295 rows"
        )));
    }
    let cuts = Cuts::new(store.len(), &store.starts(), chunk_rows);
    Ok(ChunkSampler::new(cuts, usize::try_from(per_block).unwrap_or(usize::MAX), shuffle, share))
}

/// Where the column has classes, there is another way.
fn advised(error: CellError, store: &dyn ArrayStore, settings: &Sampler) -> CellError {
    if store.labels(&settings.by).is_err() {
        return error;
    }
    let advice = "it has classes: with sampler.draw = \"balanced\" each of them comes alike often".into();
    CellError::Advised { problem: Box::new(error), advice }
}

/// A column has a value for each row.
fn of_all_rows(values: usize, store: &dyn ArrayStore, column: &str) -> Result<(), CellError> {
    if values as u64 == store.len() {
        return Ok(());
    }
    Err(CellError::Invalid(format!("column {column} of obs has {values} values for {} rows", store.len())))
}
