//! Finds a matrix in an .h5ad file (X, raw, a layer, or an array of obsm) and opens it as a `MatrixFile`.
//! Invariant: libhdf5 and this crate open the path separately, and `ByteSource::at_path` checks that both have the same file.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use hdf5_metno::{Dataset, Group};

use crate::h5ad::array_layout::{NamedObject, OpenFile};
use crate::h5ad::file_driver::open_hdf5;
use crate::h5ad::values::{attribute_integers, attribute_text};
use crate::matrix::matrix_file::{
    MatrixArrays, MatrixDescription, MatrixError, SparseEncoding, check_matrix_encoding, dense_shape,
};
use crate::source::byte_source::ByteSource;
use crate::{AnnDataError, CSC_BYTES, MatrixFile};

/// Matrices of AnnData files: X, raw/X, or a layer.
///
/// Encodings: `csr_matrix`, `csc_matrix` and `array` of AnnData 0.7 and later, `h5sparse_format` of earlier versions, and data
/// sets without attributes. Compression: gzip, shuffle, fletcher32, lzf, blosc, lz4, zstd.
impl MatrixFile {
    /// Opens the matrix at `location`: `X`, `raw` (or `raw/X`), `layers/NAME` or `obsm/NAME`. A CSC matrix is transposed in memory if that
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
        Self::open_checked(path, location, &AtomicU64::new(csc_bytes), |_, _| Ok(()))?.with_row_pointers()
    }

    /// As [`Self::open_within`], without its row pointers; `check` gets the shape in the metadata before memory is allocated for it.
    pub(crate) fn open_checked(
        path: &Path,
        location: &str,
        csc_bytes: &AtomicU64,
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
    if location.starts_with("obsm/") {
        let arrays = open.group("obsm").and_then(|obsm| obsm.member_names().ok()).unwrap_or_default();
        has = arrays.into_iter().map(|name| format!("obsm/{name}")).collect();
    }
    Err(open.source.damaged(MatrixError::Missing { location: location.to_owned(), found: has }))
}

fn describe_dense(open: &OpenFile<'_>, name: &str, dataset: &Dataset) -> Result<MatrixDescription, AnnDataError> {
    check_encoding(open, name, dataset, false)?;
    let shape = dense_shape(&open.shape(name, dataset)?);
    let (rows, columns) = shape.map_err(|error| open.wrong(name, error))?;
    Ok(MatrixDescription { rows, columns, arrays: MatrixArrays::Dense(open.describe(name, dataset)?) })
}

fn describe_sparse(open: &OpenFile<'_>, name: &str, group: &Group) -> Result<MatrixDescription, AnnDataError> {
    check_encoding(open, name, group, true)?;
    // AnnData before 0.7 wrote h5sparse_format and h5sparse_shape.
    let text = |attribute: &str| attribute_text(group, attribute).map_err(|error| open.wrong(name, error));
    let shape = |attribute: &str| attribute_integers(group, attribute, 2).map_err(|error| open.wrong(name, error));
    let encoding = match text("encoding-type")?.filter(|encoding| !encoding.is_empty()) {
        None => text("h5sparse_format")?,
        found => found,
    };
    let encoding = match encoding.as_deref() {
        Some("csr_matrix" | "csr") => SparseEncoding::Csr,
        Some("csc_matrix" | "csc") => SparseEncoding::Csc,
        Some(other) => {
            return Err(open.wrong(name, MatrixError::Encoding { encoding: other.to_owned(), known: "csr or csc" }));
        }
        None => {
            let attribute = "encoding-type or h5sparse_format";
            return Err(open.wrong(name, MatrixError::NoEncoding { attribute }));
        }
    };
    let found = match shape("shape")? {
        None => shape("h5sparse_shape")?,
        found => found,
    };
    let (rows, columns) = match found.as_deref() {
        Some(&[rows, columns]) if rows >= 0 && columns >= 0 => (rows as u64, columns as u64),
        _ => return Err(open.wrong(name, MatrixError::NoShape)),
    };
    let array = |part: &str| {
        let name = format!("{name}/{part}");
        if !open.has(&name) {
            return Err(open.source.damaged(MatrixError::MissingArray { array: name }));
        }
        let NamedObject::Dataset(dataset) = open.object(&name)? else {
            return Err(open.wrong(&name, MatrixError::IsGroup));
        };
        let stored = open.describe(&name, &dataset)?;
        match open.shape(&name, &dataset)?[..] {
            [_] => Ok(stored),
            _ => Err(open.wrong(&name, MatrixError::NotOneDimension)),
        }
    };
    let arrays = Box::new([array("indptr")?, array("indices")?, array("data")?]);
    Ok(MatrixDescription { rows, columns, arrays: MatrixArrays::Sparse(encoding, arrays) })
}

/// Fails if the matrix has the encoding of another one, or a version that is not known.
fn check_encoding(
    open: &OpenFile<'_>,
    name: &str,
    of: &hdf5_metno::Location,
    is_sparse: bool,
) -> Result<(), AnnDataError> {
    let text = |attribute: &str| attribute_text(of, attribute).map_err(|error| open.wrong(name, error));
    let Some(encoding) = text("encoding-type")? else { return Ok(()) };
    let version = text("encoding-version")?;
    check_matrix_encoding(Some(&encoding), version.as_deref(), is_sparse).map_err(|error| open.wrong(name, error))
}
