use std::path::Path;

use super::in_order::in_order;
use super::rows::{RowsSeen, without_zeros};
use crate::PipelineError;
use crate::array::h5ad::MatrixFile;
use crate::array::{CsrRows, DenseRows, Form, ReadRows, Rows, Wanted};

/// Values that are read at a time by a thread, about.
const PIECE: u64 = 1 << 20;

/// All rows of a matrix, in order, read by several threads.
pub(super) struct Transfer<'a> {
    pub(super) path: &'a Path,
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Values that it stores.
    pub(super) stored: u64,
    pub(super) jobs: usize,
}

impl<'a> Transfer<'a> {
    pub(super) fn of(path: &'a Path, matrix: &MatrixFile, jobs: usize) -> Self {
        Self { path, rows: matrix.rows(), columns: matrix.columns(), stored: matrix.nnz(), jobs }
    }

    /// Hand all rows to `take`, in order and without values that are 0.
    pub(super) fn each<'m>(
        &self,
        form: Form,
        reader: impl Fn() -> Result<Box<dyn ReadRows + 'm>, PipelineError> + Sync,
        take: impl FnMut(CsrRows) -> Result<(), PipelineError>,
    ) -> Result<(), PipelineError> {
        let of_piece = (PIECE * self.rows / self.stored.max(1)).clamp(1, 1 << 16);
        let what = format!("reading {}", self.path.display());
        let read = |reader: &mut Box<dyn ReadRows + 'm>, piece: u64| {
            let start = piece * of_piece;
            let mut rows = match form {
                Form::Sparse => Rows::Sparse(CsrRows::default()),
                Form::Dense => Rows::Dense(DenseRows { columns: self.columns as usize, data: Vec::new() }),
            };
            reader.fetch(&Wanted::Range(start..(start + of_piece).min(self.rows)), &mut rows)?;
            reader.decode(&mut rows)?;
            reader.unchanged()?;
            Ok(without_zeros(rows))
        };
        in_order(self.jobs, self.rows.div_ceil(of_piece), &what, reader, read, take)
    }

    /// Digest of all rows.
    pub(super) fn seen<'m>(
        &self,
        form: Form,
        reader: impl Fn() -> Result<Box<dyn ReadRows + 'm>, PipelineError> + Sync,
        mut passed: impl FnMut(u64) -> Result<(), PipelineError>,
    ) -> Result<RowsSeen, PipelineError> {
        let mut seen = RowsSeen::default();
        self.each(form, reader, |rows| {
            seen.add(rows.view());
            passed(seen.rows)
        })?;
        Ok(seen)
    }
}
