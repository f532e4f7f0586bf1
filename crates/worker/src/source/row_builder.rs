use std::sync::Arc;
use std::time::Instant;

use cell_loader::{CellBatcher, CellError};
use loader_core::{Batcher, Interval, Loaded, LoaderOptions, Reader, Stage};

use crate::models::array::RowBatch;

/// Builds batches of rows in the form that the model reads, tokens included: loader threads do it, and not the step.
#[derive(Clone)]
pub(crate) struct RowBuilder {
    builder: CellBatcher,
    /// The most tokens of a row; none where the model reads all values.
    limit: Option<usize>,
}

impl RowBuilder {
    /// The batches of `builder`, for a model that reads `limit` tokens of a row, if it does.
    pub(super) fn new(builder: CellBatcher, limit: Option<usize>) -> Self {
        Self { builder, limit }
    }
}

impl Batcher for RowBuilder {
    type Dataset = <CellBatcher as Batcher>::Dataset;
    type Batch = RowBatch;
    type Error = CellError;

    fn dataset(&self) -> Arc<Self::Dataset> {
        self.builder.dataset()
    }

    fn empty(&self) -> RowBatch {
        RowBatch { rows: self.builder.empty(), tokens: None }
    }

    fn clock(&self) -> Instant {
        self.builder.clock()
    }

    fn bytes(batch: &RowBatch) -> u64 {
        batch.bytes()
    }

    fn starting(&mut self, options: &LoaderOptions) {
        self.builder.starting(options);
    }

    fn stop(&self, from: u64) {
        self.builder.stop(from);
    }

    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        batch: RowBatch,
    ) -> Result<Loaded<RowBatch>, CellError> {
        let RowBatch { rows, mut tokens } = batch;
        let loaded = self.builder.build(reader, step, rows)?;
        let Loaded { batch: rows, step, epoch, thread, bytes_read, work_bytes, mut intervals, operations, exposed } =
            loaded;
        if let Some(limit) = self.limit {
            let start = self.now();
            tokens.get_or_insert_default().set(&rows, limit);
            intervals.push(Interval { stage: Stage::Collate, start, end: self.now(), busy: true });
        }
        let batch = RowBatch { rows, tokens };
        Ok(Loaded { batch, step, epoch, thread, bytes_read, work_bytes, intervals, operations, exposed })
    }
}
