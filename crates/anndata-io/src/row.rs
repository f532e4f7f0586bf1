use crate::memory::prefetch;
use crate::{NarrowRow, RowsView};

/// One row, where it lies.
#[derive(Clone, Copy, Debug)]
pub enum Row<'a> {
    /// Columns, ascending, and their values, of one length.
    Sparse(&'a [i32], &'a [f32]),
    /// A value for each column.
    Dense(&'a [f32]),
    /// As sparse, in fewer bytes.
    Narrow(NarrowRow<'a>),
}

impl Row<'_> {
    /// Begin to bring a sparse row into the caches, so that it is there when it is written, some rows later. A dense one is
    /// long enough for the processor to see that by itself.
    pub fn prefetch(&self) {
        match self {
            Self::Sparse(columns, values) => {
                prefetch(bytemuck::cast_slice(columns));
                prefetch(bytemuck::cast_slice(values));
            }
            Self::Dense(_) => {}
            Self::Narrow(row) => row.prefetch(),
        }
    }
}

impl<'a> RowsView<'a> {
    /// One of the rows, below their number.
    pub fn row(&self, row: usize) -> Row<'a> {
        match self {
            Self::Sparse(rows) => {
                let (columns, values) = rows.row(row);
                Row::Sparse(columns, values)
            }
            Self::Dense { columns, data } => Row::Dense(&data[row * columns..(row + 1) * columns]),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Sparse(rows) => rows.indptr.len() - 1,
            Self::Dense { columns, data } => data.len() / (*columns).max(1),
        }
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
