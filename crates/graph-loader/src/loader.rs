//! `GraphBatcher` connects records to a `loader_core::Loader`: it samples, reads, decodes, masks and collates one batch, and times each of these
//! stages. `Records` is what it reads: a store with its decoder, or samples in memory.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use loader_core::{Batcher, Dataset, Loaded, Reader, Sampler, Stage, StageClock};

use crate::GraphError;
use crate::assembler::Assembler;
use crate::batch::Batch;
use crate::error::RecordError;
use crate::operations::Marks;
use crate::records::Sample;

/// A store of records and their decoder: what a [`GraphBatcher`] reads.
pub trait Records: Send + Sync + 'static {
    /// Open a reader for the calling thread.
    ///
    /// # Errors
    /// A file cannot be opened, or is not what it was.
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError>;

    /// Decode record `index`, which lies at `range` of the batch's `bytes`.
    ///
    /// # Errors
    /// The record does not have the documented content.
    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), GraphError>;
}

/// Reads raw records.
pub trait ReadRecord: Send {
    /// Append the bytes of record `index` to `out`; returns how many.
    ///
    /// # Errors
    /// There is no such record, or it cannot be read.
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, GraphError>;

    /// Check that the store is still the one that was opened. Called once for each batch, after its reads.
    ///
    /// # Errors
    /// The store was written to, replaced or removed.
    fn unchanged(&self) -> Result<(), GraphError> {
        Ok(())
    }
}

/// Samples in memory, each of which is a record.
impl Records for Vec<Sample> {
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
        Ok(Box::new(InMemory))
    }

    fn decode(&self, index: u64, _: &[u8], _: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
        let Some(found) = usize::try_from(index).ok().and_then(|index| self.get(index)) else {
            let problem = RecordError::Missing { records: self.len() as u64 };
            return Err(GraphError::Record { store: "samples in memory".into(), index, problem });
        };
        sample.clone_from(found);
        Ok(())
    }
}

/// Reads no bytes.
struct InMemory;

impl ReadRecord for InMemory {
    fn read(&mut self, _: u64, _: &mut Vec<u8>) -> Result<usize, GraphError> {
        Ok(0)
    }
}

impl Dataset for dyn Records {
    type Reader<'a> = Box<dyn ReadRecord + 'a>;
    type Error = GraphError;

    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
        Records::reader(self)
    }
}

/// Builds batches of graphs from records, for a [`loader_core::Loader`].
#[derive(Clone)]
pub struct GraphBatcher {
    records: Arc<dyn Records>,
    sampler: Arc<dyn Sampler>,
    assembler: Assembler,
    clock: Instant,
    indices: Vec<u64>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    samples: Vec<Sample>,
    /// `None` if operations are not timed.
    marks: Option<Marks>,
}

impl GraphBatcher {
    /// A batcher of the batches that `sampler` draws: a [`crate::Schedule`], or another one, whose items are records.
    pub fn new(records: Arc<dyn Records>, sampler: Arc<impl Sampler>, assembler: Assembler) -> Self {
        Self {
            records,
            sampler,
            assembler,
            clock: Instant::now(),
            indices: Vec::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
            samples: Vec::new(),
            marks: None,
        }
    }

    /// Time the operations inside the stages *mask* and *collate*, too.
    #[must_use]
    pub fn timing_operations(self) -> Self {
        let marks = Marks::new(self.clock, self.assembler.edge_types());
        Self { marks: Some(marks), ..self }
    }
}

impl Batcher for GraphBatcher {
    type Dataset = dyn Records;
    type Batch = Batch;
    type Error = GraphError;

    fn dataset(&self) -> Arc<dyn Records> {
        Arc::clone(&self.records)
    }

    fn empty(&self) -> Batch {
        self.assembler.empty()
    }

    fn clock(&self) -> Instant {
        self.clock
    }

    fn bytes(batch: &Batch) -> u64 {
        batch.bytes()
    }

    /// Each stage goes over the whole batch, so it is one interval, and timing costs six clock readings a batch; another one
    /// for each operation if these are timed.
    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        mut batch: Batch,
    ) -> Result<Loaded<Batch>, GraphError> {
        let mut clock = StageClock::start(self.clock);

        self.indices.clear();
        let epoch = self.sampler.batch(step, &mut self.indices);
        let indices = &self.indices;
        clock.worked(Stage::Sample);

        self.bytes.clear();
        self.ends.clear();
        for &index in indices {
            reader.read(index, &mut self.bytes)?;
            self.ends.push(self.bytes.len());
        }
        reader.unchanged()?;
        clock.worked(Stage::Read);

        self.samples.resize_with(indices.len(), Sample::default);
        let mut start = 0;
        for ((&index, &end), sample) in indices.iter().zip(&self.ends).zip(&mut self.samples) {
            self.records.decode(index, &self.bytes, start..end, sample)?;
            start = end;
        }
        clock.worked(Stage::Decode);

        match &mut self.marks {
            None => self.assembler.mask(&self.samples, &self.bytes, &mut batch),
            Some(marks) => {
                marks.begin(Stage::Mask);
                self.assembler.mask_marked(&self.samples, &self.bytes, &mut batch, marks);
            }
        }
        clock.worked(Stage::Mask);

        match &mut self.marks {
            None => self.assembler.collate(&self.samples, &mut batch),
            Some(marks) => {
                marks.begin(Stage::Collate);
                self.assembler.collate_marked(&self.samples, &mut batch, marks);
            }
        }
        clock.worked(Stage::Collate);

        Ok(Loaded {
            bytes_read: self.bytes.len() as u64,
            work_bytes: self.bytes.capacity() as u64 + self.assembler.work_bytes(),
            intervals: clock.intervals(),
            operations: self.marks.as_mut().map(Marks::finish),
            ..Loaded::new(batch, step, epoch)
        })
    }
}
