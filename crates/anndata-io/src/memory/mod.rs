//! Rows in memory, with the narrowest dtypes that lose nothing: all rows of a store on huge pages, or some of them in pages that are used again.

pub mod memory_store;
pub mod narrow_rows;
pub mod paged_rows;

use crate::memory::narrow_rows::prefetch_lines;
use crate::{CsrView, NarrowRows, RowView};

/// All rows of a store, in memory.
#[derive(Clone, Copy, Debug)]
pub enum Resident<'a> {
    /// CSR.
    Csr(CsrView<'a>),
    /// Pieces, all but the last with the same number of rows.
    Narrow {
        /// The pieces.
        pieces: &'a [NarrowRows],
        /// Rows of a piece; not 0.
        piece: u64,
    },
}

impl<'a> Resident<'a> {
    /// Number of rows.
    pub fn len(&self) -> u64 {
        match self {
            Self::Csr(rows) => rows.indptr.len() as u64 - 1,
            Self::Narrow { pieces, .. } => pieces.iter().map(|rows| rows.len() as u64).sum(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of values.
    pub fn nnz(&self) -> u64 {
        match self {
            Self::Csr(rows) => rows.data.len() as u64,
            Self::Narrow { pieces, .. } => pieces.iter().map(|rows| rows.nnz() as u64).sum(),
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Csr(rows) => (size_of_val(rows.indptr) + size_of_val(rows.indices) + size_of_val(rows.data)) as u64,
            Self::Narrow { pieces, .. } => pieces.iter().map(NarrowRows::bytes).sum(),
        }
    }

    /// Borrows a row; `row` is below [`Self::len`].
    #[inline]
    pub fn row(&self, row: u64) -> RowView<'a> {
        match *self {
            Self::Csr(rows) => {
                let (columns, values) = rows.row(row as usize);
                RowView::Sparse(columns, values)
            }
            Self::Narrow { pieces, piece } => {
                RowView::Narrow(pieces[(row / piece) as usize].row((row % piece) as usize))
            }
        }
    }

    /// Prefetches the row pointer that [`Self::row`] reads; does nothing for a row beyond the end.
    #[inline]
    pub fn prefetch_start(&self, row: u64) {
        match *self {
            Self::Csr(rows) => {
                if let Some(start) = rows.indptr.get(row as usize) {
                    prefetch_lines(bytemuck::bytes_of(start));
                }
            }
            Self::Narrow { pieces, piece } => {
                if let Some(rows) = pieces.get((row / piece) as usize) {
                    rows.prefetch_start((row % piece) as usize);
                }
            }
        }
    }
}
