//! `CellBatcher` builds the batches that a `loader_core::Loader` delivers: from rows in memory, from rows read for one batch, or from blocks.
//! Invariant: other threads see rows of a block only after its files were checked for changes; all work counts to one of the stages sample, read,
//! decode and collate.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use anndata_io::{ArrayStore, CsrRows, DenseRows, Form, Labels, ReadRows, RowSelection, RowView, Rows};
use loader_core::{Batcher, Dataset, Loaded, LoaderError, LoaderOptions, Reader, Stage, StageClock};

use crate::CellError;
use crate::block::{BatchRows, Block};
use crate::blocks::{Blocks, Claim, ReadAhead};
use crate::collator::{CellBatch, Collator};
use crate::sampler::RowSampler;
use crate::transform::{GeneMap, Transform};

/// How many rows ahead of the copy a row is prefetched into the caches, and, before that, its start.
const ROWS_AHEAD: usize = 1;
const STARTS_AHEAD: usize = 8;

/// A store of rows, as the loader's threads read it.
pub struct CellDataset {
    store: Arc<dyn ArrayStore>,
}

impl Dataset for CellDataset {
    /// `None` if all rows are in memory.
    type Reader<'a> = Option<Box<dyn ReadRows + 'a>>;
    type Error = CellError;

    fn reader(&self) -> Result<Option<Box<dyn ReadRows + '_>>, CellError> {
        if self.store.resident().is_some() { Ok(None) } else { Ok(Some(self.store.reader()?)) }
    }
}

/// How the rows of a batch are read if they are drawn singly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetch {
    /// All rows of a batch together.
    #[default]
    Batch,
    /// Row after row, each read and decoded by itself, as a map-style data set behind a `DataLoader` of torch does.
    Row,
}

/// What batches hold, and how their rows are read.
#[derive(Clone, Debug, PartialEq)]
pub struct CellBatchOptions {
    /// Genes of a batch, by name, in this order; empty is all.
    pub genes: Vec<String>,
    /// Form of the values: dense, or CSR.
    pub output: Form,
    /// How rows that are drawn singly are read.
    pub fetch: Fetch,
    /// Scale each row to this sum, over all genes of the store; 0 leaves it.
    pub normalize: f64,
    /// Then take ln(1 + x) of every value.
    pub log1p: bool,
}

impl Default for CellBatchOptions {
    /// Dense values of all genes as they are stored, the rows of a batch read together.
    fn default() -> Self {
        Self { genes: Vec::new(), output: Form::Dense, fetch: Fetch::default(), normalize: 0.0, log1p: false }
    }
}

/// Builds batches of rows, for a [`loader_core::Loader`].
///
/// Rows of a store in memory are collated from there. Rows that are drawn singly are read from the files for their batch,
/// together or one by one. Rows that are drawn by chunks are read in blocks ([`crate::LoadRequest`]), which all threads read
/// together: each batch reads a part of the next block.
#[derive(Clone)]
pub struct CellBatcher {
    store: Arc<dyn ArrayStore>,
    sampler: Arc<RowSampler>,
    collator: Collator,
    clock: Instant,
    /// Shared by the threads of one loader.
    blocks: Arc<Blocks>,
    workers: u64,
    fetch: Fetch,
    /// Indices of the rows of the batch.
    indices: Vec<u64>,
    /// Rows as they were read.
    rows: Rows,
}

impl CellBatcher {
    /// A batcher of the rows that `sampler` draws from `store`. `labels` are the label columns of a batch, as [`Labels::from_store`]
    /// reads them.
    ///
    /// # Errors
    /// A gene of `options` is not in the store, in it twice, or asked for twice; [`CellError::ScaleTarget`];
    /// [`CellError::LabelRows`].
    pub fn new(
        store: Arc<dyn ArrayStore>,
        sampler: Arc<RowSampler>,
        options: &CellBatchOptions,
        labels: Arc<Vec<Labels>>,
    ) -> Result<Self, CellError> {
        let columns = store.genes().len();
        let genes = GeneMap::new(store.genes(), &options.genes)?;
        let transform = Transform::new(options.normalize, options.log1p)?;
        if labels.iter().any(|column| column.codes.len() as u64 != store.len()) {
            let found = labels.iter().map(|column| column.codes.len()).collect();
            return Err(CellError::LabelRows { rows: store.len(), found });
        }
        let form = store.form();
        let rows = match form {
            Form::Sparse => Rows::Sparse(CsrRows::default()),
            Form::Dense => Rows::Dense(DenseRows { columns, data: Vec::new() }),
        };
        Ok(Self {
            store,
            sampler,
            collator: Collator::new(columns, genes, transform, options.output, labels),
            clock: Instant::now(),
            blocks: Arc::new(Blocks::new(0..u64::MAX, 1, form)),
            workers: 0,
            fetch: options.fetch,
            indices: Vec::new(),
            rows,
        })
    }

    /// The sampler.
    pub fn sampler(&self) -> &RowSampler {
        &self.sampler
    }

    /// Collate the batch from a store in memory.
    fn build_from_memory(&mut self, step: u64, batch: &mut CellBatch, cost: &mut BuildCost) -> Result<u64, CellError> {
        let epoch = self.sampler.batch(step, &mut self.indices);
        cost.clock.worked(Stage::Sample);
        let Some(rows) = self.store.resident() else { return Ok(epoch) };
        let indices = &self.indices;
        check_rows(indices, self.store.len())?;
        let row = |i| {
            // Rows are in random order: the next ones are prefetched while this one is copied.
            if let Some(next) = indices.get(i + STARTS_AHEAD) {
                rows.prefetch_start(*next);
            }
            if let Some(next) = indices.get(i + ROWS_AHEAD) {
                rows.row(*next).prefetch();
            }
            rows.row(indices[i])
        };
        self.collator.collate(indices, row, batch)?;
        Ok(epoch)
    }

    /// Read the rows of the batch from the files, together or one by one.
    fn build_from_files(
        &mut self,
        reader: &mut dyn ReadRows,
        step: u64,
        batch: &mut CellBatch,
        cost: &mut BuildCost,
    ) -> Result<u64, CellError> {
        let epoch = self.sampler.batch(step, &mut self.indices);
        cost.clock.worked(Stage::Sample);
        self.rows.clear();
        let together = match self.fetch {
            Fetch::Batch => self.indices.len().max(1),
            Fetch::Row => 1,
        };
        let mut groups = self.indices.chunks(together).peekable();
        while let Some(rows) = groups.next() {
            cost.bytes += reader.fetch(&RowSelection::Rows(rows), &mut self.rows)?;
            // Once a batch, before its last rows are decoded: for a rewritten file this is the error to report.
            if groups.peek().is_none() {
                reader.unchanged()?;
            }
            cost.clock.worked(Stage::Read);
            reader.decode(&mut self.rows)?;
            cost.clock.worked(Stage::Decode);
        }
        if !self.collator.take(&self.indices, &mut self.rows, batch)? {
            let rows = self.rows.view();
            self.collator.collate(&self.indices, |i| rows.row(i), batch)?;
        }
        Ok(epoch)
    }

    /// Read the rest of the batch's blocks and a part of the next one, then collate.
    fn build_from_blocks(
        &mut self,
        reader: &mut dyn ReadRows,
        step: u64,
        batch: &mut CellBatch,
        cost: &mut BuildCost,
    ) -> Result<u64, CellError> {
        let sampler = Arc::clone(&self.sampler);
        let Some(chunks) = sampler.chunks() else { return Err(CellError::Loader(LoaderError::Stopped)) };
        let shared = Arc::clone(&self.blocks);
        let held = shared.enter(chunks, step, &mut cost.clock)?;
        let mut read = Vec::new();
        for (key, block) in &held.blocks {
            block.request_ahead(reader)?;
            loop {
                while let Some(claim) = shared.claim(*key, usize::MAX) {
                    read.push(self.read(reader, claim, cost)?);
                }
                publish(reader, &mut read, cost)?;
                cost.clock.skip();
                let complete = shared.wait_for(*key, step)?;
                // Other threads read and decoded meanwhile: their work, and the wait of this batch.
                cost.clock.waited(Stage::Read);
                if complete {
                    break;
                }
            }
        }
        let last = held.blocks.last().map(|(key, _)| *key);
        let ahead = last.and_then(|key| shared.ahead(chunks, key, step, self.workers));
        cost.clock.worked(Stage::Sample);
        if let Some(ReadAhead { key, block, parts }) = ahead {
            block.request_ahead(reader)?;
            // The batch must be the last to hold its blocks.
            drop(block);
            while let Some(claim) = shared.claim(key, parts) {
                read.push(self.read(reader, claim, cost)?);
            }
        }
        publish(reader, &mut read, cost)?;
        let blocks: Vec<&Block> = held.blocks.iter().map(|(_, block)| block.as_ref()).collect();
        self.gather(&blocks, &held.positions, batch)?;
        Ok(held.epoch)
    }

    /// Read a part of a block. Other threads do not see it yet.
    fn read<'b>(
        &mut self,
        reader: &mut dyn ReadRows,
        mut claim: Claim<'b>,
        cost: &mut BuildCost,
    ) -> Result<Claim<'b>, CellError> {
        cost.clock.skip();
        let range = claim.rows();
        self.rows.clear();
        // Dense rows stay in the buffer that they are read into; sparse ones are copied to where their batches find them together.
        if let (Rows::Dense(rows), Some(buffer)) = (&mut self.rows, claim.buffer()) {
            *rows = buffer;
            rows.data.clear();
        }
        cost.bytes += reader.fetch(&RowSelection::Range(range.clone()), &mut self.rows)?;
        cost.clock.worked(Stage::Read);
        reader.decode(&mut self.rows)?;
        let (found, asked) = (self.rows.view().len() as u64, range.end - range.start);
        if found != asked {
            return Err(CellError::RangeLength { rows: range, found });
        }
        claim.take(&mut self.rows)?;
        cost.clock.worked(Stage::Decode);
        Ok(claim)
    }

    /// Collate the rows at positions `positions` of the epoch, which lie in these blocks.
    fn gather(&mut self, blocks: &[&Block], positions: &Range<u64>, batch: &mut CellBatch) -> Result<(), CellError> {
        let held: Vec<(BatchRows<'_>, Range<usize>)> = blocks
            .iter()
            .map(|block| {
                let own = block.request.within(positions);
                (block.rows(&own), own)
            })
            .collect();
        let mut found: Vec<RowView<'_>> = Vec::with_capacity((positions.end - positions.start) as usize);
        for (block, (rows, own)) in blocks.iter().zip(&held) {
            for index in own.clone() {
                self.indices.push(block.request.row(index));
                found.push(rows.row(index).ok_or(CellError::Loader(LoaderError::Stopped))?);
            }
        }
        let row = |i: usize| {
            if let Some(next) = found.get(i + ROWS_AHEAD) {
                next.prefetch();
            }
            found[i]
        };
        self.collator.collate(&self.indices, row, batch)
    }

    /// Bytes that this thread keeps between batches.
    fn work_bytes(&self, reader: Option<&dyn ReadRows>) -> u64 {
        let reader = reader.map_or(0, |reader| reader.work_bytes());
        let own = self.rows.capacity_bytes() + self.indices.capacity() as u64 * 8 + self.collator.work_bytes();
        reader + own + self.blocks.bytes() / self.workers.max(1)
    }
}

/// Hand parts of blocks to all threads, now that their files are known to be those that were opened.
fn publish(reader: &dyn ReadRows, read: &mut Vec<Claim<'_>>, cost: &mut BuildCost) -> Result<(), CellError> {
    reader.unchanged()?;
    cost.clock.worked(Stage::Read);
    read.drain(..).for_each(Claim::finish);
    Ok(())
}

/// Cost of a batch so far.
struct BuildCost {
    clock: StageClock,
    bytes: u64,
}

/// Check that rows are below the number of rows.
fn check_rows(indices: &[u64], rows: u64) -> Result<(), CellError> {
    match indices.iter().find(|row| **row >= rows) {
        None => Ok(()),
        Some(row) => Err(CellError::RowBeyondEnd { row: *row, rows }),
    }
}

impl Batcher for CellBatcher {
    type Dataset = CellDataset;
    type Batch = CellBatch;
    type Error = CellError;

    fn dataset(&self) -> Arc<CellDataset> {
        Arc::new(CellDataset { store: Arc::clone(&self.store) })
    }

    fn empty(&self) -> CellBatch {
        self.collator.empty()
    }

    fn clock(&self) -> Instant {
        self.clock
    }

    fn bytes(batch: &CellBatch) -> u64 {
        batch.bytes()
    }

    fn starting(&mut self, options: &LoaderOptions) {
        // If a run of rows is decompressed together, two parts that meet within it both decompress it: at most an eighth more.
        let run = self.store.run_rows();
        let min_rows = if run > 1 { run.saturating_mul(8) } else { 1 };
        self.blocks = Arc::new(Blocks::new(options.first..options.steps, min_rows, self.store.form()));
        self.workers = u64::from(options.workers);
    }

    fn stop(&self, from: u64) {
        self.blocks.stop(from);
    }

    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        mut batch: CellBatch,
    ) -> Result<Loaded<CellBatch>, CellError> {
        let mut cost = BuildCost { clock: StageClock::start(self.clock), bytes: 0 };
        self.indices.clear();
        let epoch = match reader {
            None => self.build_from_memory(step, &mut batch, &mut cost)?,
            Some(reader) if self.sampler.chunks().is_some() => {
                self.build_from_blocks(reader.as_mut(), step, &mut batch, &mut cost)?
            }
            Some(reader) => self.build_from_files(reader.as_mut(), step, &mut batch, &mut cost)?,
        };
        cost.clock.worked(Stage::Collate);
        Ok(Loaded {
            bytes_read: cost.bytes,
            work_bytes: self.work_bytes(reader.as_deref()),
            intervals: cost.clock.intervals(),
            ..Loaded::new(batch, step, epoch)
        })
    }
}
