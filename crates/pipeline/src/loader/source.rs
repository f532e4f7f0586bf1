use crate::PipelineError;
use crate::store::Sample;

/// Where a loader gets its records: a store and what decodes it.
pub trait Records: Send + Sync + 'static {
    /// A reader of one thread.
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, PipelineError>;

    /// Decode the bytes of record `index`.
    fn decode(&self, index: u64, bytes: &[u8], sample: &mut Sample) -> Result<(), PipelineError>;
}

/// Reads raw records.
pub trait ReadRecord {
    /// Append the bytes of record `index` to `out`; returns how many.
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, PipelineError>;
}
