use std::path::Path;

use hdf5_metno::{Dataset, Group};

use crate::h5ad::array_layout::{NamedObject, OpenFile};
use crate::h5ad::file_driver::open_hdf5;
use crate::h5ad::values::{attribute_integers, attribute_text};
use crate::matrix::matrix_file::{MatrixArrays, MatrixDescription, SparseEncoding};
use crate::source::byte_source::ByteSource;
use crate::{AnnDataError, CSC_BYTES, MatrixFile};

/// Matrices of AnnData files: X, raw/X, or a layer.
///
/// Encodings: `csr_matrix`, `csc_matrix` and `array` of AnnData 0.7 and later, `h5sparse_format` of earlier versions, and data
/// sets without attributes. Compression: gzip, shuffle, fletcher32, lzf, blosc, lz4, zstd.
impl MatrixFile {
    /// Opens the matrix at `location`: `X`, `raw` (or `raw/X`) or `layers/NAME`. A CSC matrix is transposed in memory if that
    /// takes at most [`CSC_BYTES`].
    ///
    /// # Errors
    /// There is no such file or matrix (the error lists the layers), it is damaged or truncated, or its encoding is not
    /// supported.
    pub fn open(path: &Path, location: &str) -> Result<Self, AnnDataError> {
        Self::open_within(path, location, CSC_BYTES)
    }

    /// Rows, columns and stored values of the matrix at `location`, without opening it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn size(path: &Path, location: &str) -> Result<(u64, u64, u64), AnnDataError> {
        let described = describe_matrix(&open_hdf5(path)?, location)?;
        Ok((described.rows, described.columns, described.values()))
    }

    /// As [`Self::open`], with another limit of memory for a CSC matrix.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(path: &Path, location: &str, csc_bytes: u64) -> Result<Self, AnnDataError> {
        Self::open_checked(path, location, csc_bytes, |_, _| Ok(()))
    }

    /// As [`Self::open_within`]; `check` gets the shape in the metadata before memory is allocated for it.
    pub(crate) fn open_checked(
        path: &Path,
        location: &str,
        csc_bytes: u64,
        check: impl FnOnce(u64, u64) -> Result<(), AnnDataError>,
    ) -> Result<Self, AnnDataError> {
        let source = open_hdf5(path)?;
        let described = describe_matrix(&source, location)?;
        check(described.rows, described.columns)?;
        // The path must still lead to the file that is read, since libhdf5 opened it on its own.
        source.at_path()?;
        Self::new(source, described, csc_bytes)
    }
}

/// Maximum number of columns of a dense matrix.
const MAX_DENSE_COLUMNS: u64 = 1 << 27;

/// The matrix at `location` and its metadata.
fn describe_matrix(source: &ByteSource, location: &str) -> Result<MatrixDescription, AnnDataError> {
    let open = OpenFile::new(source)?;
    let name = find_name(&open, location)?;
    match open.object(&name)? {
        NamedObject::Dataset(dataset) => describe_dense(&open, &name, &dataset),
        NamedObject::Group(group) => describe_sparse(&open, &name, &group),
    }
}

/// Name of the matrix in this file.
fn find_name(open: &OpenFile<'_>, location: &str) -> Result<String, AnnDataError> {
    let names: &[&str] = match location {
        // AnnData before 0.7 writes a dot.
        "raw" | "raw/X" => &["raw/X", "raw.X"],
        other => &[other],
    };
    // libhdf5 fails for `a/b` if there is no `a`.
    let there = |name: &str| name.match_indices('/').all(|(end, _)| open.has(&name[..end])) && open.has(name);
    if let Some(name) = names.iter().find(|name| there(name)) {
        return Ok((*name).to_owned());
    }
    // libhdf5 reports a damaged group as empty.
    open.names()?;
    let mut has: Vec<String> =
        ["X", "raw/X", "raw.X"].into_iter().filter(|name| there(name)).map(str::to_owned).collect();
    if let Some(layers) = open.group("layers").and_then(|layers| layers.member_names().ok()) {
        has.extend(layers.into_iter().map(|layer| format!("layers/{layer}")));
    }
    let has = if has.is_empty() { "it has no matrix".to_owned() } else { format!("it has {}", has.join(", ")) };
    Err(open.source.damaged(format!("has no matrix {location}; {has}")))
}

fn describe_dense(open: &OpenFile<'_>, name: &str, dataset: &Dataset) -> Result<MatrixDescription, AnnDataError> {
    let wrong = |reason: String| Err(open.wrong(name, reason));
    check_encoding(open, name, dataset, &[("array", &["0.1.0", "0.2.0"])])?;
    let [rows, columns] = open.shape(name, dataset)?[..] else {
        return wrong("is no matrix: it does not have two dimensions".to_owned());
    };
    if columns > MAX_DENSE_COLUMNS {
        return wrong(format!(
            "has {columns} columns; more than {MAX_DENSE_COLUMNS} of a dense matrix are not supported"
        ));
    }
    Ok(MatrixDescription { rows, columns, arrays: MatrixArrays::Dense(open.describe(name, dataset)?) })
}

fn describe_sparse(open: &OpenFile<'_>, name: &str, group: &Group) -> Result<MatrixDescription, AnnDataError> {
    let wrong = |reason: String| open.wrong(name, reason);
    check_encoding(open, name, group, &[("csr_matrix", &["0.1.0"]), ("csc_matrix", &["0.1.0"])])?;
    // AnnData before 0.7 wrote the latter.
    let text = |attribute: &str| attribute_text(group, attribute).map_err(wrong);
    let shape = |attribute: &str| attribute_integers(group, attribute, 2).map_err(wrong);
    let encoding = match text("encoding-type")?.filter(|encoding| !encoding.is_empty()) {
        None => text("h5sparse_format")?,
        found => found,
    };
    let encoding = match encoding.as_deref() {
        Some("csr_matrix" | "csr") => SparseEncoding::Csr,
        Some("csc_matrix" | "csc") => SparseEncoding::Csc,
        Some(other) => return Err(wrong(format!("is encoded as {other:?}; csr, csc and arrays can be read"))),
        None => {
            return Err(wrong(
                "is no matrix: a group without the attribute encoding-type or h5sparse_format".to_owned(),
            ));
        }
    };
    let found = match shape("shape")? {
        None => shape("h5sparse_shape")?,
        found => found,
    };
    let (rows, columns) = match found.as_deref() {
        Some(&[rows, columns]) if rows >= 0 && columns >= 0 => (rows as u64, columns as u64),
        _ => return Err(wrong("has no attribute shape with its rows and columns".to_owned())),
    };
    let array = |part: &str| {
        let name = format!("{name}/{part}");
        if !open.has(&name) {
            return Err(open.source.damaged(format!("has no {name}")));
        }
        let NamedObject::Dataset(dataset) = open.object(&name)? else {
            return Err(open.wrong(&name, "is a group instead of a data set"));
        };
        let stored = open.describe(&name, &dataset)?;
        match open.shape(&name, &dataset)?[..] {
            [_] => Ok(stored),
            _ => Err(open.wrong(&name, "does not have one dimension")),
        }
    };
    let arrays = Box::new([array("indptr")?, array("indices")?, array("data")?]);
    Ok(MatrixDescription { rows, columns, arrays: MatrixArrays::Sparse(encoding, arrays) })
}

/// Fails if the version of a known encoding is not known.
fn check_encoding(
    open: &OpenFile<'_>,
    name: &str,
    of: &hdf5_metno::Location,
    known: &[(&str, &[&str])],
) -> Result<(), AnnDataError> {
    let wrong = |reason: String| Err(open.wrong(name, reason));
    let text = |attribute: &str| attribute_text(of, attribute).map_err(|reason| open.wrong(name, reason));
    let Some(encoding) = text("encoding-type")?.filter(|encoding| !encoding.is_empty()) else {
        return Ok(());
    };
    let Some((_, versions)) = known.iter().find(|(of, _)| *of == encoding) else {
        let known: Vec<&str> = known.iter().map(|(of, _)| *of).collect();
        return wrong(format!("is encoded as {encoding:?}, not as {}", known.join(" or ")));
    };
    match text("encoding-version")? {
        Some(version) if !versions.contains(&version.as_str()) => {
            wrong(format!("is encoded as {encoding} in version {version:?}; known is {}", versions.join(", ")))
        }
        _ => Ok(()),
    }
}
