use std::ops::Range;

use expctl_record::Pipeline;

use crate::PipelineError;
use crate::dataset::Dataset;
use crate::store::{LmdbReader, LmdbStore, Sample, StoreDecoder};

/// Where a loader gets its records: a store and what decodes it.
pub trait Records: Send + Sync + 'static {
    /// A reader of one thread.
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, PipelineError>;

    /// Decode record `index`, which lies at `range` of the batch's `bytes`.
    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), PipelineError>;
}

/// Reads raw records.
pub trait ReadRecord {
    /// Append the bytes of record `index` to `out`; returns how many.
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, PipelineError>;

    /// An error if what was read so far may be of something else than was opened. Called once for each batch, after its
    /// reads.
    fn unchanged(&self) -> Result<(), PipelineError> {
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
    /// [`PipelineError::NotConverted`] if there is none of that kind; it is damaged; or it has no masks of an edge type.
    pub fn open(dataset: &Dataset, pipeline: &Pipeline) -> Result<Self, PipelineError> {
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
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, PipelineError> {
        Ok(Box::new(DatasetReader { reader: self.store.reader()?, dataset: &self.dataset }))
    }

    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), PipelineError> {
        self.decoder.decode(index, bytes, range, sample).map_err(|e| self.dataset.advise(e))
    }
}

impl ReadRecord for DatasetReader<'_> {
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, PipelineError> {
        self.reader.read(index, out).map_err(|e| self.dataset.advise(e))
    }

    fn unchanged(&self) -> Result<(), PipelineError> {
        self.reader.unchanged()
    }
}
