use std::sync::Arc;

use cell_loader::CellValues;
use loader_core::{Batcher, Loaded, Recycler, Stage, StageTimes};
use pyo3::prelude::*;

use crate::batcher::{LoaderBatch, LoaderBatcher, Numbers};
use crate::dlpack::{ArrayView, NativeTensor, Owner};
use crate::error::BindingError;

/// The buffers of a batch. When the last array of them is freed, they go back to the threads of their stream.
struct LentBatch {
    /// `None` after it was given back.
    batch: Option<LoaderBatch>,
    recycler: Recycler<LoaderBatcher>,
    process: u32,
}

impl Drop for LentBatch {
    fn drop(&mut self) {
        let Some(batch) = self.batch.take() else { return };
        if self.process == std::process::id() {
            self.recycler.recycle(batch);
        }
        // In a forked child a thread that is not there may hold the lock of the pool: the memory is freed instead.
    }
}

/// A batch of B rows, in the memory that a loader thread wrote it to.
///
/// Arrays, in this order: the values (dense float32 `[B, genes]`; or CSR: int32 `crow [B + 1]`, int32 `col [nnz]`, float32
/// `values [nnz]`), int64 `index [B]`, int64 class numbers `[B]` for each column of classes, then the numbers `[B]` of each column
/// of numbers.
#[pyclass(name = "Batch", module = "expctl._native", frozen)]
pub struct NativeBatch {
    arrays: Vec<ArrayView>,
    owner: Owner,
    /// Number of rows, B.
    #[pyo3(get)]
    rows: usize,
    /// Genes of a row.
    #[pyo3(get)]
    genes: usize,
    /// The values are CSR, which is three arrays.
    #[pyo3(get)]
    sparse: bool,
    /// The epoch of the batch.
    #[pyo3(get)]
    epoch: u64,
    /// The step of the batch, counted over all epochs.
    #[pyo3(get)]
    step: u64,
    /// Bytes that were read for it from the files.
    #[pyo3(get)]
    bytes_read: u64,
    /// Bytes of all arrays but the row numbers.
    #[pyo3(get)]
    nbytes: u64,
    busy: StageTimes,
    exposed: StageTimes,
}

impl NativeBatch {
    pub fn new(loaded: Loaded<LoaderBatch>, recycler: Recycler<LoaderBatcher>) -> Self {
        let (busy, nbytes) = (loaded.busy(), LoaderBatcher::bytes(&loaded.batch));
        let Loaded { mut batch, epoch, step, bytes_read, exposed, .. } = loaded;
        let (rows, genes) = (batch.cells.len(), batch.cells.columns);
        let mut arrays = Vec::with_capacity(4 + batch.cells.labels.len() + batch.numbers.len());
        let sparse = match &mut batch.cells.values {
            CellValues::Dense(values) => {
                arrays.push(ArrayView::matrix(values, rows, genes));
                false
            }
            CellValues::Sparse { crow, col, values } => {
                arrays.extend([ArrayView::of(crow), ArrayView::of(col), ArrayView::of(values)]);
                true
            }
        };
        arrays.push(ArrayView::of(&mut batch.cells.rows));
        arrays.extend(batch.cells.labels.iter_mut().map(ArrayView::of));
        arrays.extend(batch.numbers.iter_mut().map(|numbers| match numbers {
            Numbers::Float32(values) => ArrayView::of(values),
            Numbers::Float64(values) => ArrayView::of(values),
            Numbers::Int64(values) => ArrayView::of(values),
        }));
        // The vectors are not touched again before they are given back, so what the views point to does not move.
        let owner = Arc::new(LentBatch { batch: Some(batch), recycler, process: std::process::id() });
        Self { arrays, owner, rows, genes, sparse, epoch, step, bytes_read, nbytes, busy, exposed }
    }

    fn array(&self, index: usize) -> Result<&ArrayView, BindingError> {
        self.arrays.get(index).ok_or(BindingError::NoArray { index, arrays: self.arrays.len() })
    }
}

#[pymethods]
impl NativeBatch {
    /// A DLPack capsule of an array, to be taken once.
    fn capsule<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        self.array(index)?.capsule(py, Arc::clone(&self.owner), false)
    }

    /// An array, for `from_dlpack`.
    fn tensor(&self, index: usize) -> PyResult<NativeTensor> {
        Ok(NativeTensor::new(*self.array(index)?, Arc::clone(&self.owner)))
    }

    /// The class numbers of an array of int64, as a list.
    fn class_numbers(&self, index: usize) -> PyResult<Vec<i64>> {
        let array = self.array(index)?;
        // SAFETY: `owner` keeps the memory of the array.
        Ok(unsafe { array.int64() }.map(<[i64]>::to_vec).unwrap_or_default())
    }

    /// For each stage, in order: its name, the time that threads worked on it for this batch, summed over threads, and the time that
    /// the program waited for it, in ns.
    fn stages(&self) -> Vec<(&'static str, u64, u64)> {
        Stage::ALL.iter().map(|stage| (stage.name(), self.busy[*stage], self.exposed[*stage])).collect()
    }

    /// Stored values; of a dense batch all.
    #[getter]
    fn nnz(&self) -> i64 {
        if self.sparse { self.arrays[2].len() } else { self.rows as i64 * self.genes as i64 }
    }

    fn __len__(&self) -> usize {
        self.rows
    }
}
