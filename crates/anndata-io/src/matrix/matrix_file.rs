//! `MatrixFile`: an open matrix of an h5ad or zarr file. Its readers return rows of float32 values, as CSR with int32 columns or dense.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use crate::codec::CodecError;
use crate::matrix::array_reader::ArrayReader;
use crate::matrix::dtype::Dtype;
use crate::matrix::row_pointers::ROW_POINTER_BYTES;
use crate::matrix::shared_chunks::SharedChunks;
use crate::matrix::sparse::{CsrMatrix, SparseReader, transpose_csc};
use crate::matrix::stored_array::{ArrayLayout, StoredArray};
use crate::source::byte_source::ByteSource;
use crate::{AnnDataError, CsrRows, Form, Prefetch, ReadRows, RequestError, RowLocation, RowSelection, Rows};

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
    Csr(Box<CsrMatrix>),
    Dense(DenseMatrix),
    /// A CSC matrix, transposed.
    Transposed(CsrRows),
}

impl MatrixFile {
    /// The matrix of `source` with this description. A CSC matrix is transposed in memory, within the bytes that are left of `csc_bytes`.
    /// [`Self::read_row_pointers`] comes before the first reader.
    ///
    /// # Errors
    /// The matrix is damaged or too large.
    pub(crate) fn new(
        source: ByteSource,
        described: MatrixDescription,
        csc_bytes: &AtomicU64,
    ) -> Result<Self, AnnDataError> {
        let (rows, columns, stored_bytes) = (described.rows, described.columns, described.stored_bytes());
        let content = match described.arrays {
            MatrixArrays::Dense(data) => MatrixContent::Dense(DenseMatrix { rows, columns, data }),
            MatrixArrays::Sparse(SparseEncoding::Csr, arrays) => {
                let [indptr, indices, data] = *arrays;
                MatrixContent::Csr(Box::new(CsrMatrix::new(
                    &source,
                    indptr,
                    indices,
                    data,
                    (rows, columns),
                    "columns",
                )?))
            }
            MatrixArrays::Sparse(SparseEncoding::Csc, arrays) => {
                let [indptr, indices, data] = *arrays;
                if i32::try_from(columns).is_err() {
                    return Err(source.damaged(MatrixError::TooMany { count: columns, of: "columns" }));
                }
                let by_columns = CsrMatrix::new(&source, indptr, indices, data, (columns, rows), "rows")?;
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

    /// Bytes of memory of the row pointers, if all are read; 0 for a matrix without.
    pub(crate) fn row_pointer_bytes(&self) -> u64 {
        match &self.content {
            MatrixContent::Csr(csr) => csr.pointers.bytes(),
            MatrixContent::Dense(_) | MatrixContent::Transposed(_) => 0,
        }
    }

    /// Reads all row pointers into memory, or, if there is a place for decompressed chunks of them, checks the first and the last only: the others
    /// are then read with their rows. Those of a remote matrix are always read.
    ///
    /// # Errors
    /// They cannot be read or are damaged, or the file was rewritten.
    pub(crate) fn read_row_pointers(&self, shared: Option<SharedChunks>) -> Result<(), AnnDataError> {
        let MatrixContent::Csr(csr) = &self.content else { return Ok(()) };
        match shared {
            // With the rows of a batch they would be one round more to the server, and to announce rows would have to wait for one.
            Some(shared) if !self.source.is_remote() => csr.pointers.check_ends(&self.source, shared)?,
            _ => {
                csr.pointers.load(&self.source)?;
            }
        }
        self.source.unchanged()
    }

    /// The matrix with its row pointers, if it is opened by itself.
    ///
    /// # Errors
    /// As [`Self::read_row_pointers`].
    pub(crate) fn with_row_pointers(self) -> Result<Self, AnnDataError> {
        let stay = self.row_pointer_bytes() > ROW_POINTER_BYTES;
        self.read_row_pointers(stay.then(|| SharedChunks::new(ROW_POINTER_BYTES)))?;
        Ok(self)
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

    /// As [`ArrayStore::locate`](crate::ArrayStore::locate).
    pub(crate) fn locate(&self, rows: &[u64], out: &mut Vec<RowLocation>) -> Result<Option<u64>, AnnDataError> {
        match &self.content {
            MatrixContent::Csr(csr) if csr.can_be_placed() => csr.pointers.locate(&self.source, rows, out).map(Some),
            MatrixContent::Dense(dense) if dense.data.can_be_placed::<f32>() => {
                out.extend(rows.iter().map(|row| RowLocation { first: row * self.columns, values: self.columns }));
                Ok(Some(0))
            }
            _ => Ok(None),
        }
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
pub(crate) fn check_range(source: &ByteSource, range: &Range<u64>, rows: u64) -> Result<(), RequestError> {
    if range.start <= range.end && range.end <= rows {
        return Ok(());
    }
    let store = source.path().display().to_string();
    Err(RequestError::RangeBeyondEnd { start: range.start, end: range.end, store, rows })
}

/// Checks that `row` is below `rows`.
#[inline]
pub(crate) fn check_row(source: &ByteSource, row: u64, rows: u64) -> Result<usize, RequestError> {
    if row < rows {
        return Ok(row as usize);
    }
    Err(RequestError::RowBeyondEnd { row, store: source.path().display().to_string(), rows })
}

/// Checks that the values of a row lie in an array of `stored` values, and fit from position `place` on into `values` values.
#[inline]
pub(crate) fn check_location(
    source: &ByteSource,
    row: &RowLocation,
    place: u64,
    stored: u64,
    values: usize,
) -> Result<(), RequestError> {
    if row.first.checked_add(row.values).is_none_or(|end| end > stored) {
        let store = source.path().display().to_string();
        return Err(RequestError::LocationBeyondEnd { first: row.first, values: row.values, store, stored });
    }
    if place.saturating_add(row.values) > values as u64 {
        return Err(RequestError::PlaceBeyondEnd { place, values: values as u64 });
    }
    Ok(())
}

/// Why a file has no matrix that can be read. Most texts are predicates of the file, the matrix or an array of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MatrixError {
    #[error("has no matrix {location}; it has {}", if found.is_empty() { "no matrix".to_owned() } else { found.join(", ") })]
    Missing { location: String, found: Vec<String> },
    #[error("has no {array}")]
    MissingArray { array: String },
    #[error("is a group instead of an array")]
    IsGroup,
    #[error("is no matrix: it does not have two dimensions")]
    NotTwoDimensions,
    #[error("does not have one dimension")]
    NotOneDimension,
    #[error("has {columns} columns; more than {MAX_DENSE_COLUMNS} of a dense matrix are not supported")]
    DenseColumns { columns: u64 },
    #[error("has {columns} columns; more than {MAX_OBSM_COLUMNS} of an array of obsm are not supported")]
    ObsmColumns { columns: u64 },
    #[error("has {count} {of}; more than {} are not supported", i32::MAX)]
    TooMany { count: u64, of: &'static str },
    #[error("is no matrix: a group without the attribute {attribute}")]
    NoEncoding { attribute: &'static str },
    #[error("is encoded as {encoding:?}, not as {known}")]
    Encoding { encoding: String, known: &'static str },
    #[error("is encoded as {encoding} in version {version:?}; known is {known}")]
    Version { encoding: String, version: String, known: String },
    #[error("has no attribute shape with its rows and columns")]
    NoShape,
    #[error("holds {dtype} instead of integers")]
    NotIntegers { dtype: Dtype },
    #[error("was not written to its end")]
    Unfinished,
    #[error("has {entries} entries for {rows} rows; it should have one more")]
    IndptrLength { entries: u64, rows: u64 },
    #[error("has {entries} entries, and {other} has {other_entries}")]
    Lengths { entries: u64, other: String, other_entries: u64 },
    #[error("goes from {from} to {to} at row {row}; a row has 0 to {columns} values")]
    RowLength { row: u64, from: i64, to: i64, columns: u64 },
    #[error("goes to {to} at row {row}, and {data} has {entries} entries")]
    RowBeyondData { row: u64, to: u64, data: String, entries: u64 },
    #[error("goes from {first} to {last} instead of from 0 to {entries}, the length of {data}")]
    IndptrEnds { first: u64, last: u64, entries: u64, data: String },
    #[error("has an index that is not in 0 to {}", columns.saturating_sub(1))]
    Index { columns: u64 },
    #[error("has index {index} twice in a row; sum_duplicates() of scipy puts that right")]
    RepeatedIndex { index: i32 },
    #[error("chunk {chunk} {error}")]
    Chunk { chunk: u64, error: CodecError },
}

/// Maximum number of columns of an array of obsm. Each has a name in memory.
pub(crate) const MAX_OBSM_COLUMNS: u64 = 1 << 20;
const MAX_DENSE_COLUMNS: u64 = 1 << 27;

/// Rows and columns of a dense matrix with this shape.
pub(crate) fn dense_shape(shape: &[u64]) -> Result<(u64, u64), MatrixError> {
    match *shape {
        [_, columns] if columns > MAX_DENSE_COLUMNS => Err(MatrixError::DenseColumns { columns }),
        [rows, columns] => Ok((rows, columns)),
        _ => Err(MatrixError::NotTwoDimensions),
    }
}

/// Fails if `encoding` and `version`, attributes of AnnData, are not those of a dense or of a sparse matrix. Files before AnnData
/// 0.7 have neither.
pub(crate) fn check_matrix_encoding(
    encoding: Option<&str>,
    version: Option<&str>,
    is_sparse: bool,
) -> Result<(), MatrixError> {
    let Some(encoding) = encoding.filter(|encoding| !encoding.is_empty()) else { return Ok(()) };
    let versions: &[&str] = match (encoding, is_sparse) {
        ("array", false) => &["0.1.0", "0.2.0"],
        ("csr_matrix" | "csc_matrix", true) => &["0.1.0"],
        _ => {
            let known = if is_sparse { "csr_matrix or csc_matrix" } else { "array" };
            return Err(MatrixError::Encoding { encoding: encoding.to_owned(), known });
        }
    };
    match version {
        Some(version) if !versions.contains(&version) => Err(MatrixError::Version {
            encoding: encoding.to_owned(),
            version: version.to_owned(),
            known: versions.join(", "),
        }),
        _ => Ok(()),
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
        let out = &mut out.dense(columns as usize)?.data;
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

    fn fetch_to(&mut self, rows: &[RowLocation], places: &[u64], out: &mut Rows) -> Result<u64, AnnDataError> {
        let columns = self.matrix.columns;
        let out = &mut out.dense(columns as usize)?.data;
        if !self.matrix.data.can_be_placed::<f32>() || rows.len() != places.len() {
            return Err(RequestError::NoPlaces.into());
        }
        self.before = None;
        self.data.begin_placed();
        for (row, place) in rows.iter().zip(places) {
            check_location(self.source, row, *place, self.matrix.data.len, out.len())?;
            self.data.add_at(row.first, row.values, *place as usize);
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
        let out = &mut out.dense(self.matrix.columns as usize)?.data;
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
        let (all, out) = (self.rows.len() as u64, out.sparse()?);
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
