//! `NativeBatch` is a batch of rows (cells) as a Python program gets it: `LentArrays` with a fixed order of arrays.

use cell_loader::{CellBatch, CellError, CellValues};
use loader_core::{Loaded, Recycler};
use pyo3::prelude::*;

use crate::batcher::{LoaderBatch, LoaderBatcher, Numbers};
use crate::dlpack::ArrayView;
use crate::error::cell_error;
use crate::lent::{LendBatches, LentArrays};

/// A batch of B rows, in the memory that a loader thread wrote it to.
///
/// Arrays, in this order: the values (dense float32 `[B, genes]`; or CSR: int32 `crow [B + 1]`, int32 `col [nnz]`, float32
/// `values [nnz]`), int64 `index [B]`, int64 class numbers `[B]` for each column of classes, then the numbers `[B]` of each column
/// of numbers, then the values of each layer, as those of X are, and of each array of obsm, dense.
#[pyclass(name = "Batch", module = "expctl._native", frozen, extends = LentArrays)]
pub struct NativeBatch {
    /// Number of rows, B.
    #[pyo3(get)]
    rows: usize,
    /// Genes of a row.
    #[pyo3(get)]
    genes: usize,
    /// The values are CSR, which is three arrays.
    #[pyo3(get)]
    sparse: bool,
}

impl LendBatches for LoaderBatcher {
    fn items(batch: &LoaderBatch) -> usize {
        batch.cells.len()
    }

    fn lend(py: Python<'_>, loaded: Loaded<LoaderBatch>, recycler: Recycler<Self>) -> PyResult<Py<PyAny>> {
        let cells = &loaded.batch.cells;
        let batch = NativeBatch {
            rows: cells.len(),
            genes: cells.columns,
            sparse: matches!(cells.values, CellValues::Sparse { .. }),
        };
        let lent = LentArrays::new(loaded, recycler, views);
        Ok(Py::new(py, PyClassInitializer::from(lent).add_subclass(batch))?.into_any())
    }

    fn exception(error: CellError) -> PyErr {
        cell_error(error)
    }
}

/// The arrays of a batch, in the order of [`NativeBatch`].
fn views(batch: &mut LoaderBatch) -> Vec<ArrayView> {
    let mut arrays = Vec::with_capacity(4 + batch.cells.labels.len() + batch.numbers.len() + 3 * batch.more.len());
    push_values(&mut arrays, &mut batch.cells);
    arrays.push(ArrayView::of(&mut batch.cells.rows));
    arrays.extend(batch.cells.labels.iter_mut().map(ArrayView::of));
    arrays.extend(batch.numbers.iter_mut().map(|numbers| match numbers {
        Numbers::Float32(values) => ArrayView::of(values),
        Numbers::Float64(values) => ArrayView::of(values),
        Numbers::Int64(values) => ArrayView::of(values),
    }));
    batch.more.iter_mut().for_each(|matrix| push_values(&mut arrays, matrix));
    arrays
}

/// The values of a matrix: one array, or the three of CSR.
fn push_values(arrays: &mut Vec<ArrayView>, batch: &mut CellBatch) {
    let (rows, columns) = (batch.len(), batch.columns);
    match &mut batch.values {
        CellValues::Dense(values) => arrays.push(ArrayView::matrix(values, rows, columns)),
        CellValues::Sparse { crow, col, values } => {
            arrays.extend([ArrayView::of(crow), ArrayView::of(col), ArrayView::of(values)]);
        }
    }
}

#[pymethods]
impl NativeBatch {
    /// The class numbers of an array of int64, as a list.
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 passes the object itself")]
    fn class_numbers(this: PyRef<'_, Self>, index: usize) -> PyResult<Vec<i64>> {
        let array = this.as_super().array(index)?;
        // SAFETY: `owner` keeps the memory of the array.
        Ok(unsafe { array.int64() }.map(<[i64]>::to_vec).unwrap_or_default())
    }

    /// Stored values; of a dense batch all.
    #[getter]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 passes the object itself")]
    fn nnz(this: PyRef<'_, Self>) -> PyResult<i64> {
        if this.sparse { Ok(this.as_super().array(2)?.len()) } else { Ok(this.rows as i64 * this.genes as i64) }
    }

    fn __len__(&self) -> usize {
        self.rows
    }
}
