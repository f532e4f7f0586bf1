//! `LoaderBatcher` adds to the batches of `cell_loader` what a Python program may ask for beside X: layers, arrays of obsm, and numbers of obs.
//! Invariant: all matrices and columns of a batch have the same rows in the same order, because their batchers share one sampler.

use std::sync::Arc;
use std::time::Instant;

use cell_loader::{CellBatch, CellBatcher, CellDataset, CellError};
use loader_core::{Batcher, Dataset, Interval, Loaded, LoaderError, LoaderOptions, Reader};

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
    /// X.
    pub cells: CellBatch,
    /// The same rows of the layers, then of the arrays of obsm.
    pub more: Vec<CellBatch>,
    /// `[B]` for each column of numbers.
    pub numbers: Vec<Numbers>,
}

/// The matrices that a batch is read from: X, the layers, the arrays of obsm.
pub struct Matrices(Vec<Arc<CellDataset>>);

impl Dataset for Matrices {
    /// One for each matrix.
    type Reader<'a> = Vec<<CellDataset as Dataset>::Reader<'a>>;
    type Error = CellError;

    fn reader(&self) -> Result<Self::Reader<'_>, CellError> {
        self.0.iter().map(|matrix| matrix.reader()).collect()
    }
}

/// Builds the batches of a [`CellBatcher`], reads the same rows of other matrices, and picks the numbers of obs columns for them, on
/// the loader threads.
#[derive(Clone)]
pub struct LoaderBatcher {
    /// X.
    pub cells: CellBatcher,
    /// The layers, then the arrays of obsm, with the sampler of X.
    pub more: Vec<CellBatcher>,
    /// A number for each row of the store, for each column.
    pub numbers: Arc<Vec<Numbers>>,
}

impl LoaderBatcher {
    fn matrices(&self) -> impl Iterator<Item = &CellBatcher> {
        std::iter::once(&self.cells).chain(&self.more)
    }
}

impl Batcher for LoaderBatcher {
    type Dataset = Matrices;
    type Batch = LoaderBatch;
    type Error = CellError;

    fn dataset(&self) -> Arc<Matrices> {
        Arc::new(Matrices(self.matrices().map(CellBatcher::dataset).collect()))
    }

    fn empty(&self) -> LoaderBatch {
        LoaderBatch {
            cells: self.cells.empty(),
            more: self.more.iter().map(CellBatcher::empty).collect(),
            numbers: self.numbers.iter().map(Numbers::empty).collect(),
        }
    }

    fn clock(&self) -> Instant {
        self.cells.clock()
    }

    fn bytes(batch: &LoaderBatch) -> u64 {
        let matrices = CellBatcher::bytes(&batch.cells) + batch.more.iter().map(CellBatcher::bytes).sum::<u64>();
        matrices + batch.numbers.iter().map(Numbers::bytes).sum::<u64>()
    }

    fn starting(&mut self, options: &LoaderOptions) {
        self.cells.starting(options);
        self.more.iter_mut().for_each(|matrix| matrix.starting(options));
    }

    fn stop(&self, from: u64) {
        self.matrices().for_each(|matrix| matrix.stop(from));
    }

    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        batch: LoaderBatch,
    ) -> Result<Loaded<LoaderBatch>, CellError> {
        let LoaderBatch { cells, more: buffers, mut numbers } = batch;
        let (first, others) = reader.split_first_mut().ok_or(LoaderError::Stopped)?;
        let mut loaded = self.cells.build(first, step, cells)?;
        let clock = self.cells.clock();
        let mut more = Vec::with_capacity(buffers.len());
        for ((matrix, reader), buffer) in self.more.iter_mut().zip(others).zip(buffers) {
            let ahead = matrix.clock().saturating_duration_since(clock).as_nanos() as u64;
            let of_matrix = matrix.build(reader, step, buffer)?;
            loaded.bytes_read += of_matrix.bytes_read;
            loaded.work_bytes += of_matrix.work_bytes;
            let intervals = of_matrix.intervals.into_iter();
            loaded.intervals.extend(intervals.map(|i| Interval { start: i.start + ahead, end: i.end + ahead, ..i }));
            more.push(of_matrix.batch);
        }
        for (to, all) in numbers.iter_mut().zip(self.numbers.iter()) {
            to.gather(all, &loaded.batch.rows);
        }
        // The last stage is *collate*, of which this is a part.
        if let Some(last) = loaded.intervals.last_mut() {
            last.end = self.cells.now();
        }
        Ok(mapped(loaded, |cells| LoaderBatch { cells, more, numbers }))
    }
}

/// Another batch at the same cost.
pub fn mapped<A, B>(loaded: Loaded<A>, map: impl FnOnce(A) -> B) -> Loaded<B> {
    let Loaded { batch, step, epoch, thread, bytes_read, work_bytes, intervals, operations, exposed } = loaded;
    Loaded { batch: map(batch), step, epoch, thread, bytes_read, work_bytes, intervals, operations, exposed }
}
