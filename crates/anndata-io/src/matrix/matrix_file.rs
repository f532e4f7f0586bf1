use std::ops::Range;

use crate::matrix::array_reader::ArrayReader;
use crate::matrix::sparse::{CsrMatrix, SparseReader, csr_bytes, transpose_csc};
use crate::matrix::stored_array::{ArrayLayout, StoredArray};
use crate::source::byte_source::ByteSource;
use crate::{AnnDataError, CsrRows, DenseRows, Form, Prefetch, ReadRows, RowSelection, Rows};

/// Default limit of memory of [`MatrixFile::open`] for a CSC matrix, in bytes.
pub const CSC_BYTES: u64 = 8 << 30;

/// A CSR, CSC or dense matrix in files.
///
/// Numbers of any width and byte order are converted to float32; float64 and integers of more than 24 bits are rounded to the
/// nearest. Column indices of a row that do not ascend are sorted.
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
    /// A CSC matrix, transposed.
    Transposed(CsrRows),
}

impl MatrixFile {
    /// The matrix of `source` with this description. A CSC matrix is transposed in memory, within a limit in bytes.
    ///
    /// # Errors
    /// The matrix is damaged or too large.
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

    /// Form of the rows that readers return.
    pub fn form(&self) -> Form {
        match self.content {
            MatrixContent::Csr(_) | MatrixContent::Transposed(_) => Form::Sparse,
            MatrixContent::Dense(_) => Form::Dense,
        }
    }

    /// Number of stored values; all values of a dense matrix.
    pub fn nnz(&self) -> u64 {
        self.nnz
    }

    /// Size of the matrix in the file in bytes, compressed.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Number of rows that are decompressed together, on average; 1 if any row can be read by itself.
    pub fn run_rows(&self) -> u64 {
        let rows = match &self.content {
            MatrixContent::Csr(csr) => {
                let values = csr.data.decoded_together().max(csr.indices.decoded_together());
                values.saturating_mul(self.rows) / self.nnz.max(1)
            }
            MatrixContent::Dense(dense) => match &dense.data.layout {
                ArrayLayout::Chunked(chunks) if chunks.grid.rows > 1 => chunks.grid.chunk_rows,
                _ => dense.data.decoded_together() / self.columns.max(1),
            },
            MatrixContent::Transposed(_) => 1,
        };
        rows.clamp(1, self.rows.max(1))
    }

    /// Appends the number of values of each row to `out`; `false` if rows cannot be read to given positions.
    pub(crate) fn row_values(&self, rows: &[u64], out: &mut Vec<u64>) -> bool {
        match &self.content {
            MatrixContent::Csr(csr) if csr.can_be_placed() => {
                out.extend(rows.iter().map(|row| csr.indptr[*row as usize + 1] - csr.indptr[*row as usize]));
                true
            }
            MatrixContent::Dense(dense) if dense.data.can_be_placed::<f32>() => {
                out.extend(rows.iter().map(|_| self.columns));
                true
            }
            _ => false,
        }
    }

    /// Size of the transposed rows in memory in bytes; 0 if the matrix was not transposed.
    pub(crate) fn transposed_bytes(&self) -> u64 {
        self.transposed().map_or(0, |rows| csr_bytes(rows.data.len() as u64, self.rows))
    }

    /// All rows, if the matrix was transposed in memory.
    pub fn transposed(&self) -> Option<&CsrRows> {
        match &self.content {
            MatrixContent::Transposed(rows) => Some(rows),
            _ => None,
        }
    }

    /// Makes a reader, for one thread.
    ///
    /// # Errors
    /// None at present: the file is open.
    pub fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(match &self.content {
            MatrixContent::Csr(csr) => Box::new(SparseReader::new(&self.source, csr)),
            MatrixContent::Dense(dense) => Box::new(DenseReader::new(&self.source, dense)),
            MatrixContent::Transposed(rows) => Box::new(TransposedReader { source: &self.source, rows }),
        })
    }

    /// Checks that the file was not written to, replaced or removed since it was opened.
    ///
    /// # Errors
    /// The file has changed, or its metadata cannot be read.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.at_path()
    }
}

/// Checks that `range` is within `rows` rows.
pub(crate) fn check_range(source: &ByteSource, range: &Range<u64>, rows: u64) -> Result<(), AnnDataError> {
    if range.start <= range.end && range.end <= rows {
        return Ok(());
    }
    Err(source.damaged(format!("rows {} to {} were asked for; it has {rows}", range.start, range.end)))
}

/// Checks that `row` is below `rows`.
pub(crate) fn check_row(source: &ByteSource, row: u64, rows: u64) -> Result<usize, AnnDataError> {
    if row < rows {
        return Ok(row as usize);
    }
    Err(source.damaged(format!("row {row} was asked for; it has {rows}")))
}

/// The CSR rows of `out`; empty dense rows become CSR.
pub(crate) fn sparse_rows(out: &mut Rows) -> Result<&mut CsrRows, AnnDataError> {
    if matches!(out, Rows::Dense(rows) if rows.data.is_empty()) {
        *out = Rows::Sparse(CsrRows::default());
    }
    match out {
        Rows::Sparse(rows) => Ok(rows),
        Rows::Dense(_) => Err(AnnDataError::Invalid("sparse rows were read behind dense ones".to_owned())),
    }
}

/// The dense rows of `out` with so many columns; empty CSR rows become dense.
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

/// Encoding of the matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SparseEncoding {
    Csr,
    Csc,
}

/// A matrix as the metadata of its files describes it.
pub(crate) struct MatrixDescription {
    pub rows: u64,
    pub columns: u64,
    pub arrays: MatrixArrays,
}

/// Its arrays.
pub(crate) enum MatrixArrays {
    Dense(StoredArray),
    /// indptr, indices and data.
    Sparse(SparseEncoding, Box<[StoredArray; 3]>),
}

impl MatrixDescription {
    /// Number of stored values.
    pub fn values(&self) -> u64 {
        match &self.arrays {
            MatrixArrays::Dense(data) => data.len,
            MatrixArrays::Sparse(_, arrays) => arrays[2].len,
        }
    }

    /// Size of all arrays in the files in bytes.
    pub fn stored_bytes(&self) -> u64 {
        match &self.arrays {
            MatrixArrays::Dense(data) => data.stored_bytes,
            MatrixArrays::Sparse(_, arrays) => arrays.iter().map(|stored| stored.stored_bytes).sum(),
        }
    }
}

/// A dense matrix in a file.
#[derive(Debug)]
struct DenseMatrix {
    pub rows: u64,
    pub columns: u64,
    pub data: StoredArray,
}

/// Reads rows of a [`DenseMatrix`].
struct DenseReader<'a> {
    source: &'a ByteSource,
    matrix: &'a DenseMatrix,
    data: ArrayReader<'a, f32>,
    /// Length of `out` before the last fetch; `None` if its rows have given positions.
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

/// Copies rows that are in memory.
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
        // There was nothing to read.
        Ok(0)
    }

    fn decode(&mut self, _: &mut Rows) -> Result<(), AnnDataError> {
        Ok(())
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.unchanged()
    }
}
