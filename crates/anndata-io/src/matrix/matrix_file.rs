use std::ops::Range;

use crate::matrix::array_reader::ArrayReader;
use crate::matrix::sparse::{CsrMatrix, SparseReader, csr_bytes, transpose_csc};
use crate::matrix::stored_array::{ArrayLayout, StoredArray};
use crate::source::byte_source::ByteSource;
use crate::{AnnDataError, CsrRows, DenseRows, Form, Prefetch, ReadRows, RowSelection, Rows};

/// Bytes of memory that [`MatrixFile::open`] takes at most for a matrix that is stored by columns.
pub const CSC_BYTES: u64 = 8 << 30;

/// A matrix in files, by rows (CSR), by columns (CSC) or dense.
///
/// Numbers of any width and order of bytes become float32: float64 and integers of more than 24 bits are rounded to the
/// nearest. Columns that are not in order are put in order.
#[derive(Debug)]
pub struct MatrixFile {
    source: ByteSource,
    rows: u64,
    columns: u64,
    nnz: u64,
    stored_bytes: u64,
    content: MatrixContent,
}

#[derive(Debug)]
enum MatrixContent {
    Csr(CsrMatrix),
    Dense(DenseMatrix),
    /// It was stored by columns.
    Transposed(CsrRows),
}

impl MatrixFile {
    /// The matrix that `source` is described to have, with a bound on the bytes of memory that one by columns (CSC) may take:
    /// all of it is turned into rows in memory.
    ///
    /// # Errors
    /// It is damaged or too large.
    pub(crate) fn new(source: ByteSource, described: MatrixDescription, csc_bytes: u64) -> Result<Self, AnnDataError> {
        let (rows, columns, stored_bytes) = (described.rows, described.columns, described.stored_bytes());
        let content = match described.arrays {
            MatrixArrays::Dense(data) => MatrixContent::Dense(DenseMatrix { rows, columns, data }),
            MatrixArrays::Sparse(SparseEncoding::Csr, arrays) => {
                let [indptr, indices, data] = *arrays;
                MatrixContent::Csr(CsrMatrix::new(&source, &indptr, indices, data, (rows, columns), "columns")?)
            }
            MatrixArrays::Sparse(SparseEncoding::Csc, arrays) => {
                let [indptr, indices, data] = *arrays;
                if i32::try_from(columns).is_err() {
                    return Err(
                        source.damaged(format!("has {columns} columns; more than {} are not supported", i32::MAX))
                    );
                }
                let by_columns = CsrMatrix::new(&source, &indptr, indices, data, (columns, rows), "rows")?;
                MatrixContent::Transposed(transpose_csc(&source, &by_columns, rows, csc_bytes)?)
            }
        };
        let nnz = match &content {
            MatrixContent::Csr(csr) => csr.nnz(),
            MatrixContent::Dense(dense) => dense.data.len,
            MatrixContent::Transposed(rows) => rows.data.len() as u64,
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
            MatrixContent::Csr(_) | MatrixContent::Transposed(_) => Form::Sparse,
            MatrixContent::Dense(_) => Form::Dense,
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
            MatrixContent::Csr(csr) => {
                let values = csr.data.decoded_together().max(csr.indices.decoded_together());
                values.saturating_mul(self.rows) / self.nnz.max(1)
            }
            MatrixContent::Dense(dense) => match &dense.data.layout {
                ArrayLayout::Chunks(chunks) if chunks.grid.rows > 1 => chunks.grid.chunk_rows,
                _ => dense.data.decoded_together() / self.columns.max(1),
            },
            MatrixContent::Transposed(_) => 1,
        };
        rows.clamp(1, self.rows.max(1))
    }

    /// Add how many values each of these rows has, if they can be read to given places; `false` if not.
    pub(crate) fn row_values(&self, rows: &[u64], out: &mut Vec<u64>) -> bool {
        match &self.content {
            MatrixContent::Csr(csr) if csr.can_be_placed() => {
                out.extend(rows.iter().map(|row| csr.starts[*row as usize + 1] - csr.starts[*row as usize]));
                true
            }
            MatrixContent::Dense(dense) if dense.data.can_be_placed::<f32>() => {
                out.extend(rows.iter().map(|_| self.columns));
                true
            }
            _ => false,
        }
    }

    /// Bytes of memory that the rows take, where they are in memory.
    pub(crate) fn transposed_bytes(&self) -> u64 {
        self.transposed().map_or(0, |rows| csr_bytes(rows.data.len() as u64, self.rows))
    }

    /// All rows, where they are in memory because the file has them by columns.
    pub fn transposed(&self) -> Option<&CsrRows> {
        match &self.content {
            MatrixContent::Transposed(rows) => Some(rows),
            _ => None,
        }
    }

    /// A reader of one thread.
    ///
    /// # Errors
    /// None today: the file is open.
    pub fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(match &self.content {
            MatrixContent::Csr(csr) => Box::new(SparseReader::new(&self.source, csr)),
            MatrixContent::Dense(dense) => Box::new(DenseReader::new(&self.source, dense)),
            MatrixContent::Transposed(rows) => Box::new(TransposedReader { source: &self.source, rows }),
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
pub(crate) fn check_range(source: &ByteSource, range: &Range<u64>, rows: u64) -> Result<(), AnnDataError> {
    if range.start <= range.end && range.end <= rows {
        return Ok(());
    }
    Err(source.damaged(format!("rows {} to {} were asked for; it has {rows}", range.start, range.end)))
}

/// `row` is one of `rows` rows.
pub(crate) fn check_row(source: &ByteSource, row: u64, rows: u64) -> Result<usize, AnnDataError> {
    if row < rows {
        return Ok(row as usize);
    }
    Err(source.damaged(format!("row {row} was asked for; it has {rows}")))
}

/// Rows in CSR; what has no rows becomes it.
pub(crate) fn sparse_rows(out: &mut Rows) -> Result<&mut CsrRows, AnnDataError> {
    if matches!(out, Rows::Dense(rows) if rows.data.is_empty()) {
        *out = Rows::Sparse(CsrRows::default());
    }
    match out {
        Rows::Sparse(rows) => Ok(rows),
        Rows::Dense(_) => Err(AnnDataError::Invalid("sparse rows were read behind dense ones".to_owned())),
    }
}

/// Dense rows of so many columns; what has no rows becomes it.
fn dense_values(out: &mut Rows, columns: u64) -> Result<&mut Vec<f32>, AnnDataError> {
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

/// How it is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SparseEncoding {
    Csr,
    Csc,
}

/// A matrix as its files describe it.
pub(crate) struct MatrixDescription {
    pub rows: u64,
    pub columns: u64,
    pub arrays: MatrixArrays,
}

/// Its data sets.
pub(crate) enum MatrixArrays {
    Dense(StoredArray),
    /// indptr, indices and data.
    Sparse(SparseEncoding, Box<[StoredArray; 3]>),
}

impl MatrixDescription {
    /// Values that are stored.
    pub fn values(&self) -> u64 {
        match &self.arrays {
            MatrixArrays::Dense(data) => data.len,
            MatrixArrays::Sparse(_, arrays) => arrays[2].len,
        }
    }

    /// Bytes of all of them in the files.
    pub fn stored_bytes(&self) -> u64 {
        match &self.arrays {
            MatrixArrays::Dense(data) => data.stored_bytes,
            MatrixArrays::Sparse(_, arrays) => arrays.iter().map(|stored| stored.stored_bytes).sum(),
        }
    }
}

/// A matrix with a value for every column in a file.
#[derive(Debug)]
struct DenseMatrix {
    pub rows: u64,
    pub columns: u64,
    pub data: StoredArray,
}

/// Reads rows of it.
struct DenseReader<'a> {
    source: &'a ByteSource,
    matrix: &'a DenseMatrix,
    data: ArrayReader<'a, f32>,
    /// Values that `out` had before what was fetched last; `None` where those have given places.
    before: Option<usize>,
}

impl<'a> DenseReader<'a> {
    pub fn new(source: &'a ByteSource, matrix: &'a DenseMatrix) -> Self {
        Self { source, matrix, data: ArrayReader::new(&matrix.data, source), before: Some(0) }
    }
}

impl ReadRows for DenseReader<'_> {
    fn fetch(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        let (rows, columns) = (self.matrix.rows, self.matrix.columns);
        let out = dense_values(out, columns)?;
        self.before = Some(out.len());
        self.data.begin(out.len());
        match wanted {
            RowSelection::Range(range) => {
                check_range(self.source, range, rows)?;
                self.data.add(range.start * columns, (range.end - range.start) * columns);
            }
            RowSelection::Rows(wanted) => {
                for row in *wanted {
                    self.data.add(check_row(self.source, *row, rows)? as u64 * columns, columns);
                }
            }
        }
        let bytes = self.data.fetch(out)?;
        self.data.finish(out)?;
        Ok(bytes)
    }

    fn fetch_to(&mut self, rows: &[u64], places: &[u64], out: &mut Rows) -> Result<u64, AnnDataError> {
        let columns = self.matrix.columns;
        let out = dense_values(out, columns)?;
        if !self.matrix.data.can_be_placed::<f32>() || rows.len() != places.len() {
            return Err(AnnDataError::Invalid("rows of this matrix cannot be read to given places".to_owned()));
        }
        self.before = None;
        self.data.begin_placed();
        for (row, place) in rows.iter().zip(places) {
            let row = check_row(self.source, *row, self.matrix.rows)? as u64;
            if place.saturating_add(columns) > out.len() as u64 {
                let reason = format!("place {place} of a row is beyond {} values", out.len());
                return Err(AnnDataError::Invalid(reason));
            }
            self.data.add_at(row * columns, columns, *place as usize);
        }
        let bytes = self.data.fetch(out)?;
        self.data.finish(out)?;
        Ok(bytes)
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Prefetch, AnnDataError> {
        let mut ahead = Prefetch::default();
        if self.source.is_remote() {
            let columns = self.matrix.columns;
            for range in ranges {
                check_range(self.source, range, self.matrix.rows)?;
                ahead.add(self.data.will_need(range.start * columns, (range.end - range.start) * columns)?);
            }
        }
        Ok(ahead)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let out = dense_values(out, self.matrix.columns)?;
        self.data.decode(out).inspect_err(|_| {
            if let Some(before) = self.before {
                out.truncate(before);
            }
        })
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        self.data.work_bytes()
    }
}

/// Hands out rows that are in memory.
struct TransposedReader<'a> {
    pub source: &'a ByteSource,
    pub rows: &'a CsrRows,
}

impl ReadRows for TransposedReader<'_> {
    fn fetch(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        let (all, out) = (self.rows.len() as u64, sparse_rows(out)?);
        let mut copy = |range: std::ops::Range<usize>| {
            let starts = &self.rows.indptr[range.start..=range.end];
            let values = starts[0] as usize..starts[starts.len() - 1] as usize;
            let end = out.indices.len() as u64;
            out.indptr.extend(starts[1..].iter().map(|start| end + (start - starts[0])));
            out.indices.extend_from_slice(&self.rows.indices[values.clone()]);
            out.data.extend_from_slice(&self.rows.data[values]);
        };
        match wanted {
            RowSelection::Range(range) => {
                check_range(self.source, range, all)?;
                copy(range.start as usize..range.end as usize);
            }
            RowSelection::Rows(wanted) => {
                for row in *wanted {
                    check_row(self.source, *row, all)?;
                }
                wanted.iter().for_each(|row| copy(*row as usize..*row as usize + 1));
            }
        }
        // Nothing was read.
        Ok(0)
    }

    fn decode(&mut self, _: &mut Rows) -> Result<(), AnnDataError> {
        Ok(())
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.unchanged()
    }
}
