use crate::array::collate::Row;
use crate::array::{DenseRows, NarrowRows};

/// Rows that batches are taken from.
#[derive(Debug)]
pub(super) enum Held {
    /// In as few bytes as they fit into: several blocks of them are in memory.
    Sparse(NarrowRows),
    /// As they are.
    Dense(DenseRows),
}

impl Held {
    /// One of the rows, which is there.
    pub fn row(&self, row: usize) -> Row<'_> {
        match self {
            Self::Sparse(rows) => Row::Narrow(rows.row(row)),
            Self::Dense(rows) => Row::Dense(&rows.data[row * rows.columns..(row + 1) * rows.columns]),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Sparse(rows) => rows.len(),
            Self::Dense(rows) => rows.data.len() / rows.columns.max(1),
        }
    }

    /// Bytes of memory held, used or not.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Sparse(rows) => rows.bytes(),
            Self::Dense(rows) => rows.data.capacity() as u64 * 4,
        }
    }
}
