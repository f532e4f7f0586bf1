use std::sync::Arc;
use std::time::Instant;

use cell_loader::{CellBatch, CellBatcher, CellDataset, CellError};
use loader_core::{Batcher, Loaded, LoaderOptions, Reader};

/// The numbers of a column of obs: of all rows of a data set, or of those of a batch.
#[derive(Clone, Debug)]
pub enum Numbers {
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Int64(Vec<i64>),
}

impl Numbers {
    /// No numbers of the same type.
    fn empty(&self) -> Self {
        match self {
            Self::Float32(_) => Self::Float32(Vec::new()),
            Self::Float64(_) => Self::Float64(Vec::new()),
            Self::Int64(_) => Self::Int64(Vec::new()),
        }
    }

    fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Float32(values) => values.len() * 4,
            Self::Float64(values) => values.len() * 8,
            Self::Int64(values) => values.len() * 8,
        };
        bytes as u64
    }

    /// Set the numbers to those of `rows` in `all`, which has the same type.
    fn gather(&mut self, all: &Self, rows: &[u64]) {
        match (self, all) {
            (Self::Float32(to), Self::Float32(all)) => pick(to, all, rows, f32::NAN),
            (Self::Float64(to), Self::Float64(all)) => pick(to, all, rows, f64::NAN),
            (Self::Int64(to), Self::Int64(all)) => pick(to, all, rows, 0),
            // `LoaderBatcher::empty` makes them of the same type.
            _ => {}
        }
    }
}

/// Columns are as long as there are rows, so `missing` is never taken.
fn pick<T: Copy>(to: &mut Vec<T>, all: &[T], rows: &[u64], missing: T) {
    to.clear();
    to.extend(rows.iter().map(|row| all.get(*row as usize).copied().unwrap_or(missing)));
}

/// A batch of rows with the numbers of their obs columns.
pub struct LoaderBatch {
    pub cells: CellBatch,
    /// `[B]` for each column of numbers.
    pub numbers: Vec<Numbers>,
}

/// Builds the batches of a [`CellBatcher`] and picks the numbers of obs columns for their rows, on the loader threads.
#[derive(Clone)]
pub struct LoaderBatcher {
    pub cells: CellBatcher,
    /// A number for each row of the store, for each column.
    pub numbers: Arc<Vec<Numbers>>,
}

impl Batcher for LoaderBatcher {
    type Dataset = CellDataset;
    type Batch = LoaderBatch;
    type Error = CellError;

    fn dataset(&self) -> Arc<CellDataset> {
        self.cells.dataset()
    }

    fn empty(&self) -> LoaderBatch {
        LoaderBatch { cells: self.cells.empty(), numbers: self.numbers.iter().map(Numbers::empty).collect() }
    }

    fn clock(&self) -> Instant {
        self.cells.clock()
    }

    fn bytes(batch: &LoaderBatch) -> u64 {
        CellBatcher::bytes(&batch.cells) + batch.numbers.iter().map(Numbers::bytes).sum::<u64>()
    }

    fn starting(&mut self, options: &LoaderOptions) {
        self.cells.starting(options);
    }

    fn stop(&self, from: u64) {
        self.cells.stop(from);
    }

    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        batch: LoaderBatch,
    ) -> Result<Loaded<LoaderBatch>, CellError> {
        let LoaderBatch { cells, mut numbers } = batch;
        let mut loaded = self.cells.build(reader, step, cells)?;
        for (to, all) in numbers.iter_mut().zip(self.numbers.iter()) {
            to.gather(all, &loaded.batch.rows);
        }
        // The last stage is *collate*, of which this is a part.
        if let Some(last) = loaded.intervals.last_mut() {
            last.end = self.cells.now();
        }
        Ok(mapped(loaded, |cells| LoaderBatch { cells, numbers }))
    }
}

/// Another batch at the same cost.
pub fn mapped<A, B>(loaded: Loaded<A>, map: impl FnOnce(A) -> B) -> Loaded<B> {
    let Loaded { batch, step, epoch, thread, bytes_read, work_bytes, intervals, operations, exposed } = loaded;
    Loaded { batch: map(batch), step, epoch, thread, bytes_read, work_bytes, intervals, operations, exposed }
}
