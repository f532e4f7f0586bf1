use std::ops::Range;
use std::path::Path;

use hdf5_metno::{Dataset, Group};

use super::csr::Csr;
use super::dense::{Dense, DenseReader};
use super::describe::Open;
use super::resident::ResidentReader;
use super::source::Source;
use super::sparse::SparseReader;
use super::stored::Stored;
use super::{attribute, csc};
use crate::PipelineError;
use crate::array::{CsrRows, DenseRows, Form, ReadRows, Rows};

/// Bytes of memory that [`MatrixFile::open`] takes at most for a matrix that is stored by columns.
pub const CSC_BYTES: u64 = 8 << 30;

/// Columns that a matrix with a value for each can have.
const MOST_DENSE_COLUMNS: u64 = 1 << 27;

/// A matrix of an AnnData file: X, raw/X, or a layer.
///
/// Encodings: `csr_matrix`, `csc_matrix` and `array` of AnnData 0.7 and later, `h5sparse_format` of earlier versions, data
/// sets without a word. Numbers of any width and order of bytes become float32: float64 and integers of more than 24 bits
/// are rounded to the nearest. Compression: gzip, shuffle, fletcher32, lzf, blosc, lz4, zstd. Columns that are not in order
/// are put in order.
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

/// How it is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Csr,
    Csc,
}

impl MatrixFile {
    /// Open the matrix at `location`: `X`, `raw` (or `raw/X`) or `layers/NAME`. Of a matrix that is stored by columns (CSC) all
    /// of it is turned into rows in memory, if that takes no more than [`CSC_BYTES`].
    ///
    /// # Errors
    /// There is no such file or matrix (the error lists the layers that there are), it is damaged or cut short, or written in
    /// a way that cannot be read.
    pub fn open(path: &Path, location: &str) -> Result<Self, PipelineError> {
        Self::open_within(path, location, CSC_BYTES)
    }

    /// Rows and columns of the matrix at `location`, which is not opened for that.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn shape(path: &Path, location: &str) -> Result<(u64, u64), PipelineError> {
        let described = describe(&Source::open(path)?, location)?;
        Ok((described.rows, described.columns))
    }

    /// As [`Self::open`], with another bound on the bytes of memory that a matrix by columns may take.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(path: &Path, location: &str, csc_bytes: u64) -> Result<Self, PipelineError> {
        let source = Source::open(path)?;
        let described = describe(&source, location)?;
        // What was described lies in the file that is read.
        source.unchanged()?;
        let (rows, columns, stored_bytes) = (described.rows, described.columns, described.stored_bytes());
        let content = match described.arrays {
            Arrays::Dense(data) => Content::Dense(Dense { rows, columns, data }),
            Arrays::Sparse { encoding: Encoding::Csr, indptr, indices, data } => {
                Content::Csr(Csr::new(&source, &indptr, indices, data, (rows, columns), "columns")?)
            }
            Arrays::Sparse { encoding: Encoding::Csc, indptr, indices, data } => {
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
    pub fn reader(&self) -> Result<Box<dyn ReadRows + '_>, PipelineError> {
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
    pub fn unchanged(&self) -> Result<(), PipelineError> {
        self.source.unchanged()
    }
}

/// A matrix as its file describes it.
struct Described {
    rows: u64,
    columns: u64,
    arrays: Arrays,
}

enum Arrays {
    Dense(Stored),
    Sparse { encoding: Encoding, indptr: Stored, indices: Stored, data: Stored },
}

impl Described {
    fn stored_bytes(&self) -> u64 {
        match &self.arrays {
            Arrays::Dense(data) => data.stored_bytes,
            Arrays::Sparse { indptr, indices, data, .. } => {
                indptr.stored_bytes + indices.stored_bytes + data.stored_bytes
            }
        }
    }
}

fn describe(source: &Source, location: &str) -> Result<Described, PipelineError> {
    let open = Open::new(source)?;
    let name = found(&open, location)?;
    if let Some(dataset) = open.dataset(&name) {
        return describe_dense(&open, &name, &dataset);
    }
    match open.group(&name) {
        Some(group) => describe_sparse(&open, &name, &group),
        None => Err(source.damaged(format!("{name}: cannot be opened"))),
    }
}

/// The name that the matrix has in this file.
fn found(open: &Open<'_>, location: &str) -> Result<String, PipelineError> {
    let names: &[&str] = match location {
        // AnnData before 0.7 has a dot.
        "raw" | "raw/X" => &["raw/X", "raw.X"],
        other => &[other],
    };
    // The library answers an error for `a/b` where there is no `a`.
    let there = |name: &str| name.match_indices('/').all(|(end, _)| open.has(&name[..end])) && open.has(name);
    if let Some(name) = names.iter().find(|name| there(name)) {
        return Ok((*name).to_owned());
    }
    let mut has: Vec<String> =
        ["X", "raw/X", "raw.X"].into_iter().filter(|name| there(name)).map(str::to_owned).collect();
    if let Some(layers) = open.group("layers").and_then(|layers| layers.member_names().ok()) {
        has.extend(layers.into_iter().map(|layer| format!("layers/{layer}")));
    }
    let has = if has.is_empty() { "it has no matrix".to_owned() } else { format!("it has {}", has.join(", ")) };
    Err(open.source.damaged(format!("has no matrix {location}; {has}")))
}

fn describe_dense(open: &Open<'_>, name: &str, dataset: &Dataset) -> Result<Described, PipelineError> {
    let wrong = |reason: String| Err(open.source.damaged(format!("{name}: {reason}")));
    known_version(open, name, dataset, &[("array", &["0.1.0", "0.2.0"])])?;
    let [rows, columns] = open.shape(name, dataset)?[..] else {
        return wrong("is no matrix: it does not have two dimensions".to_owned());
    };
    if columns > MOST_DENSE_COLUMNS {
        return wrong(format!(
            "has {columns} columns; more than {MOST_DENSE_COLUMNS} of a dense matrix are not supported"
        ));
    }
    Ok(Described { rows, columns, arrays: Arrays::Dense(open.describe(name, dataset)?) })
}

fn describe_sparse(open: &Open<'_>, name: &str, group: &Group) -> Result<Described, PipelineError> {
    let wrong = |reason: String| open.source.damaged(format!("{name}: {reason}"));
    known_version(open, name, group, &[("csr_matrix", &["0.1.0"]), ("csc_matrix", &["0.1.0"])])?;
    let encoding = attribute::text(group, "encoding-type").or_else(|| attribute::text(group, "h5sparse_format"));
    let encoding = match encoding.as_deref() {
        Some("csr_matrix" | "csr") => Encoding::Csr,
        Some("csc_matrix" | "csc") => Encoding::Csc,
        Some(other) => return Err(wrong(format!("is encoded as {other:?}; csr, csc and arrays can be read"))),
        None => {
            return Err(wrong(
                "is no matrix: a group without the attribute encoding-type or h5sparse_format".to_owned(),
            ));
        }
    };
    let shape = attribute::integers(group, "shape", 2).or_else(|| attribute::integers(group, "h5sparse_shape", 2));
    let (rows, columns) = match shape.as_deref() {
        Some(&[rows, columns]) if rows >= 0 && columns >= 0 => (rows as u64, columns as u64),
        _ => return Err(wrong("has no attribute shape with its rows and columns".to_owned())),
    };
    let array = |part: &str| {
        let name = format!("{name}/{part}");
        let dataset = open.dataset(&name).ok_or_else(|| open.source.damaged(format!("has no {name}")))?;
        let stored = open.describe(&name, &dataset)?;
        match open.shape(&name, &dataset)?[..] {
            [_] => Ok(stored),
            _ => Err(open.source.damaged(format!("{name}: does not have one dimension"))),
        }
    };
    let (indptr, indices, data) = (array("indptr")?, array("indices")?, array("data")?);
    Ok(Described { rows, columns, arrays: Arrays::Sparse { encoding, indptr, indices, data } })
}

/// An error if the encoding is one that is known, in a version that is not.
fn known_version(
    open: &Open<'_>,
    name: &str,
    of: &hdf5_metno::Location,
    known: &[(&str, &[&str])],
) -> Result<(), PipelineError> {
    let wrong = |reason: String| Err(open.source.damaged(format!("{name}: {reason}")));
    let Some(encoding) = attribute::text(of, "encoding-type").filter(|encoding| !encoding.is_empty()) else {
        return Ok(());
    };
    let Some((_, versions)) = known.iter().find(|(of, _)| *of == encoding) else {
        let known: Vec<&str> = known.iter().map(|(of, _)| *of).collect();
        return wrong(format!("is encoded as {encoding:?}, not as {}", known.join(" or ")));
    };
    match attribute::text(of, "encoding-version") {
        Some(version) if !versions.contains(&version.as_str()) => {
            wrong(format!("is encoded as {encoding} in version {version:?}; known is {}", versions.join(", ")))
        }
        _ => Ok(()),
    }
}

/// `range` is one of `rows` rows.
pub(super) fn check_range(source: &Source, range: &Range<u64>, rows: u64) -> Result<(), PipelineError> {
    if range.start <= range.end && range.end <= rows {
        return Ok(());
    }
    Err(source.damaged(format!("rows {} to {} were asked for; it has {rows}", range.start, range.end)))
}

/// `row` is one of `rows` rows.
pub(super) fn check_row(source: &Source, row: u64, rows: u64) -> Result<usize, PipelineError> {
    if row < rows {
        return Ok(row as usize);
    }
    Err(source.damaged(format!("row {row} was asked for; it has {rows}")))
}

/// Rows in CSR; what has no rows becomes it.
pub(super) fn sparse(out: &mut Rows) -> Result<&mut CsrRows, PipelineError> {
    if matches!(out, Rows::Dense(rows) if rows.data.is_empty()) {
        *out = Rows::Sparse(CsrRows::default());
    }
    match out {
        Rows::Sparse(rows) => Ok(rows),
        Rows::Dense(_) => Err(PipelineError::Invalid("sparse rows were read behind dense ones".to_owned())),
    }
}

/// Dense rows of so many columns; what has no rows becomes it.
pub(super) fn dense(out: &mut Rows, columns: u64) -> Result<&mut Vec<f32>, PipelineError> {
    let columns = columns as usize;
    if matches!(out, Rows::Sparse(rows) if rows.is_empty()) {
        *out = Rows::Dense(DenseRows { columns, data: Vec::new() });
    }
    match out {
        Rows::Dense(rows) if rows.columns == columns || rows.data.is_empty() => {
            rows.columns = columns;
            Ok(&mut rows.data)
        }
        _ => Err(PipelineError::Invalid(format!("dense rows of {columns} columns were read behind others"))),
    }
}
