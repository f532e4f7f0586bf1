use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use expctl_datasets::graph::dataset::Dataset;
use expctl_record::{PerStage, Pipeline, Stage};
use loader_core::{Build, Laps, Loaded};

use crate::GraphError;
use crate::assembler::Assembler;
use crate::batch::Batch;
use crate::lmdb::{LmdbReader, LmdbStore};
use crate::operations::Marks;
use crate::records::{Sample, StoreDecoder};
use crate::sampler::Schedule;

/// Builds batches of graphs from records.
#[derive(Clone)]
pub struct BatchBuilder {
    records: Arc<dyn Records>,
    schedule: Arc<Schedule>,
    assembler: Assembler,
    clock: Instant,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    samples: Vec<Sample>,
    /// `None` if operations are not timed.
    marks: Option<Marks>,
}

impl BatchBuilder {
    /// A builder of the batches of `schedule`.
    pub fn new(records: Arc<dyn Records>, schedule: Arc<Schedule>, assembler: Assembler) -> Self {
        Self {
            records,
            schedule,
            assembler,
            clock: Instant::now(),
            bytes: Vec::new(),
            ends: Vec::new(),
            samples: Vec::new(),
            marks: None,
        }
    }

    /// The same, which also times the operations inside the stages *mask* and *collate*.
    #[must_use]
    pub fn timing_operations(self) -> Self {
        let marks = Marks::new(self.clock, self.assembler.edge_types());
        Self { marks: Some(marks), ..self }
    }
}

impl Build for BatchBuilder {
    type Batch = Batch;
    type Source = Arc<dyn Records>;
    type Reader<'s> = Box<dyn ReadRecord + 's>;

    fn source(&self) -> Arc<dyn Records> {
        Arc::clone(&self.records)
    }

    fn reader(source: &Arc<dyn Records>) -> Result<Self::Reader<'_>, GraphError> {
        source.reader()
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

    /// Stage by stage over the whole batch, so each stage is one interval and timing costs six clock reads a batch; where operations are
    /// timed, another one for each of them.
    fn build(&mut self, reader: &mut Self::Reader<'_>, step: u64, mut batch: Batch) -> Result<Loaded, GraphError> {
        let mut laps = Laps::start(self.clock);

        let chosen = self.schedule.batch(step);
        let indices = chosen.indices();
        laps.lap(Stage::Sample);

        self.bytes.clear();
        self.ends.clear();
        for &index in indices {
            reader.read(index, &mut self.bytes)?;
            self.ends.push(self.bytes.len());
        }
        reader.unchanged()?;
        laps.lap(Stage::Read);

        self.samples.resize_with(indices.len(), Sample::default);
        let mut start = 0;
        for ((&index, &end), sample) in indices.iter().zip(&self.ends).zip(&mut self.samples) {
            self.records.decode(index, &self.bytes, start..end, sample)?;
            start = end;
        }
        laps.lap(Stage::Decode);

        match &mut self.marks {
            None => self.assembler.mask(&self.samples, &self.bytes, &mut batch),
            Some(marks) => {
                marks.begin(Stage::Mask);
                self.assembler.mask_marked(&self.samples, &self.bytes, &mut batch, marks);
            }
        }
        laps.lap(Stage::Mask);

        match &mut self.marks {
            None => self.assembler.collate(&self.samples, &mut batch),
            Some(marks) => {
                marks.begin(Stage::Collate);
                self.assembler.collate_marked(&self.samples, &mut batch, marks);
            }
        }
        laps.lap(Stage::Collate);

        Ok(Loaded {
            batch,
            step,
            epoch: chosen.epoch,
            thread: None,
            bytes_read: self.bytes.len() as u64,
            work_bytes: self.bytes.capacity() as u64 + self.assembler.work_bytes(),
            intervals: laps.intervals(),
            operations: self.marks.as_mut().map(Marks::finish),
            exposed: PerStage::default(),
        })
    }
}

/// Where a loader gets its records: a store and what decodes it.
pub trait Records: Send + Sync + 'static {
    /// A reader of one thread.
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError>;

    /// Decode record `index`, which lies at `range` of the batch's `bytes`.
    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), GraphError>;
}

/// Reads raw records.
pub trait ReadRecord {
    /// Append the bytes of record `index` to `out`; returns how many.
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, GraphError>;

    /// An error if what was read so far may be of something else than was opened. Called once for each batch, after its
    /// reads.
    fn unchanged(&self) -> Result<(), GraphError> {
        Ok(())
    }
}

/// The records of a built data set: one of its stores, and what decodes it.
pub struct DatasetRecords {
    dataset: Dataset,
    store: LmdbStore,
    decoder: StoreDecoder,
}

/// Reads them on one thread.
struct DatasetReader<'r> {
    reader: LmdbReader<'r>,
    dataset: &'r Dataset,
}

impl DatasetRecords {
    /// Open the store of `dataset` that `pipeline` reads.
    ///
    /// # Errors
    /// [`GraphError::NotConverted`] if there is none of that kind; it is damaged; or it has no masks of an edge type.
    pub fn open(dataset: &Dataset, pipeline: &Pipeline) -> Result<Self, GraphError> {
        let (store, decoder) = dataset.records(pipeline)?;
        Ok(Self { dataset: dataset.clone(), store, decoder })
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.store.len()
    }

    /// No records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Records for DatasetRecords {
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
        Ok(Box::new(DatasetReader { reader: self.store.reader()?, dataset: &self.dataset }))
    }

    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
        self.decoder.decode(index, bytes, range, sample).map_err(|e| self.dataset.advise(e))
    }
}

impl ReadRecord for DatasetReader<'_> {
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, GraphError> {
        self.reader.read(index, out).map_err(|e| self.dataset.advise(e))
    }

    fn unchanged(&self) -> Result<(), GraphError> {
        self.reader.unchanged()
    }
}
