use std::ops::Range;

use super::csc;
use super::csr::Csr;
use super::dense::{Dense, DenseReader};
use super::described::{Arrays, Described, Encoding};
use super::resident::ResidentReader;
use super::sparse::SparseReader;
use super::stored::Place;
use crate::AnnDataError;
use crate::source::Source;
use crate::{CsrRows, DenseRows, Form, ReadRows, Rows};

/// Bytes of memory that [`MatrixFile::open`] takes at most for a matrix that is stored by columns.
pub const CSC_BYTES: u64 = 8 << 30;

/// A matrix in files, by rows (CSR), by columns (CSC) or dense.
///
/// Numbers of any width and order of bytes become float32: float64 and integers of more than 24 bits are rounded to the
/// nearest. Columns that are not in order are put in order.
#[derive(Debug)]
pub struct MatrixFile {
    source: Source,
    rows: u64,
    columns: u64,
    nnz: u64,
    stored_bytes: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Csr(Csr),
    Dense(Dense),
    /// It was stored by columns.
    Turned(CsrRows),
}

impl MatrixFile {
    /// The matrix that `source` is described to have, with a bound on the bytes of memory that one by columns (CSC) may take:
    /// all of it is turned into rows in memory.
    ///
    /// # Errors
    /// It is damaged or too large.
    pub(crate) fn new(source: Source, described: Described, csc_bytes: u64) -> Result<Self, AnnDataError> {
        let (rows, columns, stored_bytes) = (described.rows, described.columns, described.stored_bytes());
        let content = match described.arrays {
            Arrays::Dense(data) => Content::Dense(Dense { rows, columns, data }),
            Arrays::Sparse(Encoding::Csr, arrays) => {
                let [indptr, indices, data] = *arrays;
                Content::Csr(Csr::new(&source, &indptr, indices, data, (rows, columns), "columns")?)
            }
            Arrays::Sparse(Encoding::Csc, arrays) => {
                let [indptr, indices, data] = *arrays;
                if i32::try_from(columns).is_err() {
                    return Err(
                        source.damaged(format!("has {columns} columns; more than {} are not supported", i32::MAX))
                    );
                }
                let by_columns = Csr::new(&source, &indptr, indices, data, (columns, rows), "rows")?;
                Content::Turned(csc::turn(&source, &by_columns, rows, csc_bytes)?)
            }
        };
        let nnz = match &content {
            Content::Csr(csr) => csr.nnz(),
            Content::Dense(dense) => dense.data.len,
            Content::Turned(rows) => rows.data.len() as u64,
        };
        Ok(Self { source, rows, columns, nnz, stored_bytes, content })
    }

    /// Number of rows (cells).
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of columns (genes).
    pub fn columns(&self) -> u64 {
        self.columns
    }

    /// What readers yield.
    pub fn form(&self) -> Form {
        match self.content {
            Content::Csr(_) | Content::Turned(_) => Form::Sparse,
            Content::Dense(_) => Form::Dense,
        }
    }

    /// Values that are stored: those of a dense matrix are all.
    pub fn nnz(&self) -> u64 {
        self.nnz
    }

    /// Bytes of the matrix in the file, as compressed as they are.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Rows that are decompressed together, on average; 1 where any row can be read by itself.
    pub fn run_rows(&self) -> u64 {
        let rows = match &self.content {
            Content::Csr(csr) => {
                let values = csr.data.decoded_together().max(csr.indices.decoded_together());
                values.saturating_mul(self.rows) / self.nnz.max(1)
            }
            Content::Dense(dense) => match &dense.data.place {
                Place::Chunks(chunks) if chunks.grid.rows > 1 => chunks.grid.chunk_rows,
                _ => dense.data.decoded_together() / self.columns.max(1),
            },
            Content::Turned(_) => 1,
        };
        rows.clamp(1, self.rows.max(1))
    }

    /// Add how many values each of these rows has, if they can be read to given places; `false` if not.
    pub(crate) fn row_values(&self, rows: &[u64], out: &mut Vec<u64>) -> bool {
        match &self.content {
            Content::Csr(csr) if csr.can_be_placed() => {
                out.extend(rows.iter().map(|row| csr.starts[*row as usize + 1] - csr.starts[*row as usize]));
                true
            }
            Content::Dense(dense) if dense.data.can_be_placed::<f32>() => {
                out.extend(rows.iter().map(|_| self.columns));
                true
            }
            _ => false,
        }
    }

    /// Bytes of memory that the rows take, where they are in memory.
    pub(crate) fn turned_bytes(&self) -> u64 {
        self.turned().map_or(0, |rows| csc::bytes(rows.data.len() as u64, self.rows))
    }

    /// All rows, where they are in memory because the file has them by columns.
    pub fn turned(&self) -> Option<&CsrRows> {
        match &self.content {
            Content::Turned(rows) => Some(rows),
            _ => None,
        }
    }

    /// A reader of one thread.
    ///
    /// # Errors
    /// None today: the file is open.
    pub fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(match &self.content {
            Content::Csr(csr) => Box::new(SparseReader::new(&self.source, csr)),
            Content::Dense(dense) => Box::new(DenseReader::new(&self.source, dense)),
            Content::Turned(rows) => Box::new(ResidentReader { source: &self.source, rows }),
        })
    }

    /// An error if the file was written to, replaced or removed since it was opened.
    ///
    /// # Errors
    /// It was, or it cannot be looked at.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.at_path()
    }
}

/// `range` is one of `rows` rows.
pub(crate) fn check_range(source: &Source, range: &Range<u64>, rows: u64) -> Result<(), AnnDataError> {
    if range.start <= range.end && range.end <= rows {
        return Ok(());
    }
    Err(source.damaged(format!("rows {} to {} were asked for; it has {rows}", range.start, range.end)))
}

/// `row` is one of `rows` rows.
pub(crate) fn check_row(source: &Source, row: u64, rows: u64) -> Result<usize, AnnDataError> {
    if row < rows {
        return Ok(row as usize);
    }
    Err(source.damaged(format!("row {row} was asked for; it has {rows}")))
}

/// Rows in CSR; what has no rows becomes it.
pub(crate) fn sparse(out: &mut Rows) -> Result<&mut CsrRows, AnnDataError> {
    if matches!(out, Rows::Dense(rows) if rows.data.is_empty()) {
        *out = Rows::Sparse(CsrRows::default());
    }
    match out {
        Rows::Sparse(rows) => Ok(rows),
        Rows::Dense(_) => Err(AnnDataError::Invalid("sparse rows were read behind dense ones".to_owned())),
    }
}

/// Dense rows of so many columns; what has no rows becomes it.
pub(crate) fn dense(out: &mut Rows, columns: u64) -> Result<&mut Vec<f32>, AnnDataError> {
    let columns = columns as usize;
    if matches!(out, Rows::Sparse(rows) if rows.is_empty()) {
        *out = Rows::Dense(DenseRows { columns, data: Vec::new() });
    }
    match out {
        Rows::Dense(rows) if rows.columns == columns || rows.data.is_empty() => {
            rows.columns = columns;
            Ok(&mut rows.data)
        }
        _ => Err(AnnDataError::Invalid(format!("dense rows of {columns} columns were read behind others"))),
    }
}
