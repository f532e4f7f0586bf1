use super::{NarrowRows, prefetch};
use crate::CsrView;
use crate::Row;

/// All rows of a store, in memory.
#[derive(Clone, Copy, Debug)]
pub enum Resident<'a> {
    /// In CSR.
    Csr(CsrView<'a>),
    /// In pieces, each but the last of as many rows.
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

    /// No rows.
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

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Csr(rows) => (size_of_val(rows.indptr) + size_of_val(rows.indices) + size_of_val(rows.data)) as u64,
            Self::Narrow { pieces, .. } => pieces.iter().map(NarrowRows::bytes).sum(),
        }
    }

    /// One of the rows, below their number.
    pub fn row(&self, row: u64) -> Row<'a> {
        match *self {
            Self::Csr(rows) => {
                let (columns, values) = rows.row(row as usize);
                Row::Sparse(columns, values)
            }
            Self::Narrow { pieces, piece } => Row::Narrow(pieces[(row / piece) as usize].row((row % piece) as usize)),
        }
    }

    /// Begin to bring into the caches where a row starts, which [`Self::row`] of it reads; of a row that is
    /// not there, nothing.
    pub fn prefetch_start(&self, row: u64) {
        match *self {
            Self::Csr(rows) => {
                if let Some(start) = rows.indptr.get(row as usize) {
                    prefetch(bytemuck::bytes_of(start));
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
