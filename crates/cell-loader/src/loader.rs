use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use anndata_io::{ArrayStore, CsrRows, DenseRows, Form, Labels, NarrowRows, ReadRows, Row, Rows, Wanted};
use expctl_record::{Array, Fetch, PerStage, Stage};
use loader_core::{Build, Laps, Loaded, LoaderOptions};

use crate::CellError;
use crate::batch::ArrayBatch;
use crate::blocks::{Block, Blocks, Claim, Held, Share};
use crate::collator::Collator;
use crate::sampler::RowSampler;
use crate::transform::{GeneMap, Transform};

/// How many rows before it is written a row is brought into the caches, and where it starts.
const ROWS_AHEAD: usize = 1;
const STARTS_AHEAD: usize = 8;

/// Builds batches of rows of an array.
///
/// Of a store in memory, batches are made from there. Of files, a batch's rows are read for it, together or one by one; rows that are drawn by chunks
/// are taken from blocks of chunks, which the loader's threads read together, each batch a share of the next block.
#[derive(Clone)]
pub struct ArrayBuilder {
    store: Arc<dyn ArrayStore>,
    sampler: Arc<RowSampler>,
    collator: Collator,
    clock: Instant,
    /// Of this loader alone.
    blocks: Arc<Blocks>,
    workers: u64,
    fetch: Fetch,
    /// Rows of the batch.
    wanted: Vec<u64>,
    /// What was read of them.
    rows: Rows,
}

/// What one thread reads with; none where all rows are in memory.
type Reader<'s> = Option<Box<dyn ReadRows + 's>>;

impl ArrayBuilder {
    /// A builder of the batches that `sampler` draws from `store`, as `settings` say. `labels` are those of its label columns,
    /// in their order, as [`Labels::of`] reads them.
    ///
    /// # Errors
    /// A gene is not there; `labels` are not of this store and these settings; the sum that rows are scaled to cannot be.
    pub fn new(
        store: Arc<dyn ArrayStore>,
        sampler: Arc<RowSampler>,
        settings: &Array,
        labels: Arc<Vec<Labels>>,
    ) -> Result<Self, CellError> {
        let columns = store.genes().len();
        let genes = GeneMap::new(store.genes(), &settings.genes)?;
        let transform = Transform::new(settings.normalize, settings.log1p)?;
        if labels.len() != settings.labels.len() || labels.iter().any(|column| column.codes.len() as u64 != store.len())
        {
            let (asked, rows) = (settings.labels.len(), store.len());
            let found: Vec<usize> = labels.iter().map(|column| column.codes.len()).collect();
            let reason = format!(
                "{asked} label columns of {rows} rows are asked for, and those that were read have {found:?} rows"
            );
            return Err(CellError::Invalid(reason));
        }
        let rows = match store.form() {
            Form::Sparse => Rows::Sparse(CsrRows::default()),
            Form::Dense => Rows::Dense(DenseRows { columns, data: Vec::new() }),
        };
        Ok(Self {
            store,
            sampler,
            collator: Collator::new(columns, genes, transform, settings.output, labels),
            clock: Instant::now(),
            blocks: Arc::new(Blocks::new(0..u64::MAX, 1)),
            workers: 0,
            fetch: settings.fetch,
            wanted: Vec::new(),
            rows,
        })
    }

    /// The sampler.
    pub fn sampler(&self) -> &RowSampler {
        &self.sampler
    }

    /// From memory.
    fn resident(&mut self, step: u64, batch: &mut ArrayBatch, work: &mut Work) -> Result<u64, CellError> {
        let epoch = self.sampler.batch(step, &mut self.wanted);
        work.laps.lap(Stage::Sample);
        let Some(rows) = self.store.resident() else { return Ok(epoch) };
        let wanted = &self.wanted;
        check(wanted, self.store.len())?;
        let row = |i| {
            // Rows lie anywhere: what comes next is on its way while this one is written.
            if let Some(next) = wanted.get(i + STARTS_AHEAD) {
                rows.prefetch_start(*next);
            }
            if let Some(next) = wanted.get(i + ROWS_AHEAD) {
                rows.row(*next).prefetch();
            }
            rows.row(wanted[i])
        };
        self.collator.collate(wanted, row, batch)?;
        Ok(epoch)
    }

    /// Single rows out of the files.
    fn single(
        &mut self,
        reader: &mut dyn ReadRows,
        step: u64,
        batch: &mut ArrayBatch,
        work: &mut Work,
    ) -> Result<u64, CellError> {
        let epoch = self.sampler.batch(step, &mut self.wanted);
        work.laps.lap(Stage::Sample);
        self.rows.clear();
        let together = match self.fetch {
            Fetch::Batch => self.wanted.len().max(1),
            Fetch::Row => 1,
        };
        let mut groups = self.wanted.chunks(together).peekable();
        while let Some(rows) = groups.next() {
            work.bytes += reader.fetch(&Wanted::Rows(rows), &mut self.rows)?;
            // Once for each batch, and before its last rows are decoded: of a file that was rewritten that is what is said.
            if groups.peek().is_none() {
                reader.unchanged()?;
            }
            work.laps.lap(Stage::Read);
            reader.decode(&mut self.rows)?;
            work.laps.lap(Stage::Decode);
        }
        if !self.collator.take(&self.wanted, &mut self.rows, batch)? {
            let rows = self.rows.view();
            self.collator.collate(&self.wanted, |i| rows.row(i), batch)?;
        }
        Ok(epoch)
    }

    /// Out of blocks of chunks.
    fn chunked(
        &mut self,
        reader: &mut dyn ReadRows,
        step: u64,
        batch: &mut ArrayBatch,
        work: &mut Work,
    ) -> Result<u64, CellError> {
        let sampler = Arc::clone(&self.sampler);
        let Some(chunks) = sampler.chunks() else { return Err(CellError::Stopped) };
        let shared = Arc::clone(&self.blocks);
        let (epoch, places) = chunks.places(step);
        let keys = chunks.plan(epoch).blocks_of(&places);
        work.laps.lap(Stage::Sample);
        let entered = shared.enter(chunks, step, epoch, keys, &mut work.laps)?;
        let mut made = Vec::new();
        for (key, block) in &entered.blocks {
            block.ask(reader)?;
            loop {
                while let Some(claim) = shared.claim(*key, usize::MAX) {
                    made.push(self.read(reader, claim, work)?);
                }
                share(reader, &mut made, work)?;
                work.laps.skip();
                let complete = shared.wait_for(*key, step)?;
                // Others have read (and decoded) meanwhile: their work, and what this batch waited for.
                work.laps.waited(Stage::Read);
                if complete {
                    break;
                }
            }
        }
        let last = entered.blocks.last().map(|(key, _)| *key);
        let ahead = last.and_then(|key| shared.ahead(chunks, key, step, self.workers));
        work.laps.lap(Stage::Sample);
        if let Some(Share { key, block, parts }) = ahead {
            block.ask(reader)?;
            // The batch must be the last to have its blocks.
            drop(block);
            while let Some(claim) = shared.claim(key, parts) {
                made.push(self.read(reader, claim, work)?);
            }
        }
        share(reader, &mut made, work)?;
        self.gather(&entered.blocks.iter().map(|(_, block)| block.as_ref()).collect::<Vec<_>>(), places, batch)?;
        drop(entered);
        Ok(epoch)
    }

    /// Read a part of a block, which is not others' yet.
    fn read<'b>(
        &mut self,
        reader: &mut dyn ReadRows,
        mut claim: Claim<'b>,
        work: &mut Work,
    ) -> Result<(Claim<'b>, Held), CellError> {
        work.laps.skip();
        let wanted = claim.rows();
        let mut buffer = claim.buffer();
        self.rows.clear();
        // Dense rows are held where they are read to, sparse ones in fewer bytes.
        if let (Rows::Dense(rows), Some(Held::Dense(buffer))) = (&mut self.rows, buffer.as_mut()) {
            std::mem::swap(rows, buffer);
            rows.data.clear();
        }
        work.bytes += reader.fetch(&Wanted::Range(wanted.clone()), &mut self.rows)?;
        work.laps.lap(Stage::Read);
        reader.decode(&mut self.rows)?;
        let held = match &mut self.rows {
            Rows::Dense(rows) => {
                let columns = rows.columns;
                Held::Dense(std::mem::replace(rows, DenseRows { columns, data: Vec::new() }))
            }
            Rows::Sparse(rows) => {
                let mut narrow = if let Some(Held::Sparse(narrow)) = buffer { narrow } else { NarrowRows::default() };
                narrow.set(rows.view())?;
                Held::Sparse(narrow)
            }
        };
        work.laps.lap(Stage::Decode);
        let (found, asked) = (held.len() as u64, wanted.end - wanted.start);
        if found != asked {
            let reason = format!("rows {wanted:?} were asked for, and {found} rows came");
            return Err(CellError::Invalid(reason));
        }
        Ok((claim, held))
    }

    /// The batch of the rows at `places` of the epoch, which lie in these blocks.
    fn gather(&mut self, blocks: &[&Block], places: Range<u64>, batch: &mut ArrayBatch) -> Result<(), CellError> {
        let mut found: Vec<Row<'_>> = Vec::with_capacity((places.end - places.start) as usize);
        for block in blocks {
            let order = &block.order;
            let end = order.start + order.places.len() as u64;
            for place in places.start.max(order.start)..places.end.min(end) {
                let place = (place - order.start) as usize;
                let (chunk, row) = order.places[place];
                self.wanted.push(order.row(place));
                found.push(block.row(chunk, row).ok_or(CellError::Stopped)?);
            }
        }
        let row = |i: usize| {
            if let Some(next) = found.get(i + ROWS_AHEAD) {
                next.prefetch();
            }
            found[i]
        };
        self.collator.collate(&self.wanted, row, batch)
    }

    fn work_bytes(&self, reader: &Reader<'_>) -> u64 {
        let reader = reader.as_ref().map_or(0, |reader| reader.work_bytes());
        let own = self.rows.capacity_bytes() + self.wanted.capacity() as u64 * 8 + self.collator.work_bytes();
        reader + own + self.blocks.bytes() / self.workers.max(1)
    }
}

/// Hand chunks to all threads, now that their files are known to be those that were opened.
fn share(reader: &dyn ReadRows, made: &mut Vec<(Claim<'_>, Held)>, work: &mut Work) -> Result<(), CellError> {
    reader.unchanged()?;
    work.laps.lap(Stage::Read);
    for (claim, rows) in made.drain(..) {
        claim.finish(rows);
    }
    Ok(())
}

/// What a batch has cost so far.
struct Work {
    laps: Laps,
    bytes: u64,
}

/// Rows of a batch are below the number of rows.
fn check(wanted: &[u64], rows: u64) -> Result<(), CellError> {
    match wanted.iter().find(|row| **row >= rows) {
        None => Ok(()),
        Some(row) => Err(CellError::Invalid(format!("row {row} was drawn, and there are {rows} rows in memory"))),
    }
}

impl Build for ArrayBuilder {
    type Batch = ArrayBatch;
    type Source = Arc<dyn ArrayStore>;
    type Reader<'s> = Reader<'s>;

    fn source(&self) -> Arc<dyn ArrayStore> {
        Arc::clone(&self.store)
    }

    fn reader(source: &Arc<dyn ArrayStore>) -> Result<Reader<'_>, CellError> {
        if source.resident().is_some() { Ok(None) } else { Ok(Some(source.reader()?)) }
    }

    fn empty(&self) -> ArrayBatch {
        self.collator.empty()
    }

    fn clock(&self) -> Instant {
        self.clock
    }

    fn bytes(batch: &ArrayBatch) -> u64 {
        batch.bytes()
    }

    fn starting(&mut self, options: &LoaderOptions) {
        // Where rows are decompressed together, two parts that meet within such a run both decompress it: an eighth more at most.
        let run = self.store.run_rows();
        let least = if run > 1 { run.saturating_mul(8) } else { 1 };
        self.blocks = Arc::new(Blocks::new(options.first..options.steps, least));
        self.workers = u64::from(options.workers);
    }

    fn stop(&self, from: u64) {
        self.blocks.stop(from);
    }

    fn build(
        &mut self,
        reader: &mut Reader<'_>,
        step: u64,
        mut batch: ArrayBatch,
    ) -> Result<Loaded<ArrayBatch>, CellError> {
        let mut work = Work { laps: Laps::start(self.clock), bytes: 0 };
        self.wanted.clear();
        let epoch = match reader {
            None => self.resident(step, &mut batch, &mut work)?,
            Some(reader) if self.sampler.chunks().is_some() => {
                self.chunked(reader.as_mut(), step, &mut batch, &mut work)?
            }
            Some(reader) => self.single(reader.as_mut(), step, &mut batch, &mut work)?,
        };
        work.laps.lap(Stage::Collate);
        Ok(Loaded {
            batch,
            step,
            epoch,
            thread: None,
            bytes_read: work.bytes,
            work_bytes: self.work_bytes(reader),
            intervals: work.laps.intervals(),
            operations: None,
            exposed: PerStage::default(),
        })
    }
}
