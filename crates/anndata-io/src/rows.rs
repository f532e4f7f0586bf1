//! Rows in memory: CSR or dense, owned or borrowed.

use crate::memory::narrow_rows::prefetch_lines;
use crate::{Form, NarrowRow, RequestError};

/// Rows in CSR.
///
/// Invariants: `indptr` ascends, starts at 0 and has one entry more than there are rows; its last entry is the length of
/// `indices` and of `data`; columns ascend within a row.
#[derive(Clone, Debug, PartialEq)]
pub struct CsrRows {
    /// uint64 `[rows + 1]`: start of each row in `indices` and `data`.
    pub indptr: Vec<u64>,
    /// int32 `[nnz]`: column of each value.
    pub indices: Vec<i32>,
    /// float32 `[nnz]`.
    pub data: Vec<f32>,
}

impl Default for CsrRows {
    fn default() -> Self {
        Self { indptr: vec![0], indices: Vec::new(), data: Vec::new() }
    }
}

impl CsrRows {
    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Whether there are no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all rows and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.indptr.truncate(1);
        self.indices.clear();
        self.data.clear();
    }

    /// Appends a dense row. 0 is not stored; -0 is, so that every bit of the row can be restored.
    pub fn push_dense(&mut self, row: &[f32]) {
        for (column, value) in row.iter().enumerate() {
            if value.to_bits() != 0 {
                self.indices.push(column as i32);
                self.data.push(*value);
            }
        }
        self.indptr.push(self.indices.len() as u64);
    }

    /// The end of all rows, for [`Self::truncate`].
    #[inline]
    pub(crate) fn end(&self) -> RowsEnd {
        RowsEnd { rows: self.len(), values: self.indices.len() }
    }

    /// Removes what was appended after `end`.
    pub(crate) fn truncate(&mut self, end: RowsEnd) {
        self.indptr.truncate(end.rows + 1);
        self.indices.truncate(end.values);
        self.data.truncate(end.values);
    }

    /// Borrows all rows.
    #[inline]
    pub fn view(&self) -> CsrView<'_> {
        CsrView { indptr: &self.indptr, indices: &self.indices, data: &self.data }
    }

    /// Bytes of memory held, used or not.
    pub fn capacity_bytes(&self) -> u64 {
        (self.indptr.capacity() * 8 + self.indices.capacity() * 4 + self.data.capacity() * 4) as u64
    }
}

/// Borrowed [`CsrRows`].
#[derive(Clone, Copy, Debug)]
pub struct CsrView<'a> {
    /// uint64 `[rows + 1]`.
    pub indptr: &'a [u64],
    /// int32 `[nnz]`.
    pub indices: &'a [i32],
    /// float32 `[nnz]`.
    pub data: &'a [f32],
}

impl<'a> CsrView<'a> {
    /// Columns and values of a row.
    #[inline]
    pub fn row(&self, row: usize) -> (&'a [i32], &'a [f32]) {
        let range = self.indptr[row] as usize..self.indptr[row + 1] as usize;
        (&self.indices[range.clone()], &self.data[range])
    }

    /// Whether the column indices of each row ascend and are below `columns`.
    pub fn ascends_within(&self, columns: u64) -> bool {
        (0..self.indptr.len().saturating_sub(1)).all(|row| {
            let (indices, _) = self.row(row);
            indices.first().is_none_or(|first| *first >= 0)
                && indices.last().is_none_or(|last| (*last as u64) < columns)
                && indices.is_sorted_by(|a, b| a < b)
        })
    }
}

/// Rows with a value for every column, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DenseRows {
    /// Number of columns.
    pub columns: usize,
    /// float32 `[rows, columns]`.
    pub data: Vec<f32>,
}

/// Rows in the [`Form`] of their store.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// CSR.
    Sparse(CsrRows),
    /// Dense.
    Dense(DenseRows),
}

/// Where rows that are to be appended will begin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowsEnd {
    /// Number of CSR rows before it; not used for dense rows.
    pub rows: usize,
    /// Number of values before it.
    pub values: usize,
}

impl Rows {
    /// No rows of a form.
    pub(crate) fn empty(form: Form) -> Self {
        match form {
            Form::Sparse => Self::Sparse(CsrRows::default()),
            Form::Dense => Self::Dense(DenseRows::default()),
        }
    }

    /// The CSR rows, to append to; dense rows become CSR if there are none.
    pub(crate) fn sparse(&mut self) -> Result<&mut CsrRows, RequestError> {
        if matches!(self, Self::Dense(rows) if rows.data.is_empty()) {
            *self = Self::Sparse(CsrRows::default());
        }
        match self {
            Self::Sparse(rows) => Ok(rows),
            Self::Dense(_) => Err(RequestError::OtherForm { form: Form::Sparse }),
        }
    }

    /// The dense rows, to append rows of so many columns to; CSR rows become dense if there are none.
    pub(crate) fn dense(&mut self, columns: usize) -> Result<&mut DenseRows, RequestError> {
        if matches!(self, Self::Sparse(rows) if rows.is_empty()) {
            *self = Self::Dense(DenseRows { columns, data: Vec::new() });
        }
        match self {
            Self::Dense(rows) => {
                if rows.columns != columns && !rows.data.is_empty() {
                    return Err(RequestError::OtherColumns { columns, found: rows.columns });
                }
                rows.columns = columns;
                Ok(rows)
            }
            Self::Sparse(_) => Err(RequestError::OtherForm { form: Form::Dense }),
        }
    }

    /// The end of all rows, for [`Self::truncate`].
    pub(crate) fn end(&self) -> RowsEnd {
        match self {
            Self::Sparse(rows) => rows.end(),
            Self::Dense(rows) => RowsEnd { rows: 0, values: rows.data.len() },
        }
    }

    /// Removes what was appended after `end`.
    pub(crate) fn truncate(&mut self, end: RowsEnd) {
        match self {
            Self::Sparse(rows) => rows.truncate(end),
            Self::Dense(rows) => rows.data.truncate(end.values),
        }
    }

    /// Remove all rows, keep the memory.
    #[inline]
    pub fn clear(&mut self) {
        match self {
            Self::Sparse(rows) => rows.clear(),
            Self::Dense(rows) => rows.data.clear(),
        }
    }

    /// Borrows all rows.
    #[inline]
    pub fn view(&self) -> RowsView<'_> {
        match self {
            Self::Sparse(rows) => RowsView::Sparse(rows.view()),
            Self::Dense(rows) => RowsView::Dense { columns: rows.columns, data: &rows.data },
        }
    }

    /// Bytes of memory held, used or not.
    pub fn capacity_bytes(&self) -> u64 {
        match self {
            Self::Sparse(rows) => rows.capacity_bytes(),
            Self::Dense(rows) => rows.data.capacity() as u64 * 4,
        }
    }
}

/// Borrowed [`Rows`], of a buffer or of a store in memory.
#[derive(Clone, Copy, Debug)]
pub enum RowsView<'a> {
    /// CSR.
    Sparse(CsrView<'a>),
    /// float32 `[rows, columns]`.
    Dense {
        /// Number of columns.
        columns: usize,
        /// The values, row-major.
        data: &'a [f32],
    },
}

/// One borrowed row.
#[derive(Clone, Copy, Debug)]
pub enum RowView<'a> {
    /// Columns, ascending, and their values, of the same length.
    Sparse(&'a [i32], &'a [f32]),
    /// A value for each column.
    Dense(&'a [f32]),
    /// A sparse row whose columns and values take fewer bytes.
    Narrow(NarrowRow<'a>),
}

impl RowView<'_> {
    /// Prefetches a sparse row into the processor's caches, some rows before it is copied. The hardware prefetcher does that for
    /// a dense row by itself.
    #[inline]
    pub fn prefetch(&self) {
        match self {
            Self::Sparse(columns, values) => {
                prefetch_lines(bytemuck::cast_slice(columns));
                prefetch_lines(bytemuck::cast_slice(values));
            }
            Self::Dense(_) => {}
            Self::Narrow(row) => row.prefetch(),
        }
    }
}

impl<'a> RowsView<'a> {
    /// Borrows a row; `row` is below [`RowsView::len`].
    #[inline]
    pub fn row(&self, row: usize) -> RowView<'a> {
        match self {
            Self::Sparse(rows) => {
                let (columns, values) = rows.row(row);
                RowView::Sparse(columns, values)
            }
            Self::Dense { columns, data } => RowView::Dense(&data[row * columns..(row + 1) * columns]),
        }
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Sparse(rows) => rows.indptr.len() - 1,
            Self::Dense { columns, data } => data.len() / (*columns).max(1),
        }
    }

    /// No rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
