use std::ops::Range;

use super::Collection;
use super::column_map::Scratch;
use crate::AnnDataError;
use crate::{CsrRows, DenseRows, Form, Rows};

/// What is read of one file.
pub(super) struct Part {
    pub(super) store: usize,
    pub(super) wanted: PartWanted,
    /// How many values each row has, then where they go in the result: only of rows that are read to their places.
    pub(super) places: Vec<u64>,
    pub(super) rows: Rows,
    /// It was fetched, and not decoded yet.
    pub(super) pending: bool,
}

/// Which of its rows.
pub(super) enum PartWanted {
    Rows(Vec<u64>),
    Range(Range<u64>),
}

impl Part {
    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        match &self.wanted {
            PartWanted::Rows(rows) => rows.len(),
            PartWanted::Range(range) => (range.end - range.start) as usize,
        }
    }

    /// Bytes of memory held, used or not.
    pub(super) fn capacity_bytes(&self) -> u64 {
        let wanted = match &self.wanted {
            PartWanted::Rows(rows) => rows.capacity() * 8,
            PartWanted::Range(_) => 0,
        };
        self.rows.capacity_bytes() + (wanted + self.places.capacity() * 8) as u64
    }
}

/// Add one row of a part to the result.
pub(super) fn add_row(
    part: &Part,
    row: usize,
    collection: &Collection,
    scratch: &mut Scratch,
    out: &mut Rows,
) -> Result<(), AnnDataError> {
    let map = collection.map(part.store);
    match (&part.rows, out) {
        (Rows::Sparse(rows), Rows::Sparse(out)) => {
            let (columns, values) = rows.view().row(row);
            map.add_sparse(columns, values, out, scratch);
        }
        (Rows::Dense(rows), out) => {
            let values = &rows.data[row * rows.columns..(row + 1) * rows.columns];
            match out {
                Rows::Sparse(out) => map.add_dense_as_sparse(values, out),
                Rows::Dense(out) => map.add_dense(values, out),
            }
        }
        (Rows::Sparse(_), Rows::Dense(_)) => {
            return Err(AnnDataError::Invalid("sparse rows cannot be added to dense ones".to_owned()));
        }
    }
    Ok(())
}

/// No rows.
pub(super) fn empty(form: Form) -> Rows {
    match form {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows::default()),
    }
}
