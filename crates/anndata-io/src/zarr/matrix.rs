//! Finds a matrix in an AnnData folder (X, raw, a layer, or an array of obsm) and opens it as a `MatrixFile`.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use crate::matrix::matrix_file::{
    MatrixArrays, MatrixDescription, MatrixError, SparseEncoding, check_matrix_encoding, dense_shape,
};
use crate::matrix::stored_array::StoredArray;
use crate::source::byte_source::ByteSource;
use crate::zarr::array::{ZarrArray, check_unwritten};
use crate::zarr::hierarchy::{Hierarchy, ObjectFiles, ZarrNode};
use crate::zarr::metadata::{ArrayMetadata, JsonObject, ZarrError, json_lengths, json_text};
use crate::{AnnDataError, CSC_BYTES, MatrixFile};

/// Opens the matrix at `location` of an AnnData folder: `X`, `raw` (or `raw/X`), `layers/NAME` or `obsm/NAME`. A CSC matrix is transposed
/// in memory if that takes at most [`CSC_BYTES`].
///
/// # Errors
/// There is no such folder or matrix (the error lists those that exist), it is damaged or truncated, or its encoding is not
/// supported.
pub fn open_matrix(path: &Path, location: &str) -> Result<MatrixFile, AnnDataError> {
    let matrix = open_matrix_checked(&Hierarchy::open(path)?, location, &AtomicU64::new(CSC_BYTES), |_, _| Ok(()))?;
    matrix.with_row_pointers()
}

/// Rows, columns and stored values of the matrix at `location`, without opening it.
///
/// # Errors
/// As [`open_matrix`].
pub fn size(path: &Path, location: &str) -> Result<(u64, u64, u64), AnnDataError> {
    let found = LocatedMatrix::find(&Hierarchy::open(path)?, location)?;
    Ok((found.rows, found.columns, found.values()))
}

/// As [`open_matrix`], without its row pointers; `check` gets the shape in the metadata before memory is allocated for it.
pub(crate) fn open_matrix_checked(
    tree: &Hierarchy,
    location: &str,
    csc_bytes: &AtomicU64,
    check: impl FnOnce(u64, u64) -> Result<(), AnnDataError>,
) -> Result<MatrixFile, AnnDataError> {
    let found = LocatedMatrix::find(tree, location)?;
    check(found.rows, found.columns)?;
    let (source, described) = found.describe(tree)?;
    // The metadata must still be that of the files that are read.
    tree.unchanged()?;
    source.at_path()?;
    MatrixFile::new(source, described, csc_bytes)
}

/// A matrix, as its metadata describes it.
struct LocatedMatrix {
    pub rows: u64,
    pub columns: u64,
    arrays: Vec<ZarrArray>,
    /// `None` for a dense matrix.
    encoding: Option<SparseEncoding>,
}

impl LocatedMatrix {
    /// Finds the matrix at `location`: `X`, `raw` (or `raw/X`), `layers/NAME` or `obsm/NAME`.
    pub fn find(tree: &Hierarchy, location: &str) -> Result<Self, AnnDataError> {
        let name = if location == "raw" { "raw/X" } else { location };
        match tree.node(name)? {
            Some(ZarrNode::Array(meta)) => locate_dense(tree, name, meta),
            // AnnData writes this if there is no X.
            Some(ZarrNode::Group(attributes)) if json_text(&attributes, "encoding-type") != Some("null") => {
                locate_sparse(tree, name, &attributes)
            }
            _ => Err(missing_matrix(tree, location)?),
        }
    }

    /// Number of stored values.
    pub fn values(&self) -> u64 {
        match &self.arrays[..] {
            [_, _, data] => data.meta.shape.iter().product(),
            _ => self.rows.saturating_mul(self.columns),
        }
    }

    /// Opens its objects, and builds the chunk tables of its arrays.
    pub fn describe(&self, tree: &Hierarchy) -> Result<(ByteSource, MatrixDescription), AnnDataError> {
        let (source, parts) = tree.source(&self.arrays.iter().collect::<Vec<_>>())?;
        let stored = |array: &ZarrArray, parts: &ObjectFiles| {
            array.stored(&source, parts).map_err(|error| tree.wrong(&array.name, error))
        };
        let stored = self.arrays.iter().zip(&parts).map(|(array, parts)| stored(array, parts));
        let mut stored: Vec<StoredArray> = stored.collect::<Result<_, _>>()?;
        let arrays = match (self.encoding, stored.len()) {
            (Some(encoding), 3) => {
                // The row pointers may be read as a whole.
                check_unwritten(&stored[0]).map_err(|error| tree.wrong(&stored[0].name, error))?;
                let (data, indices, indptr) = (stored.remove(2), stored.remove(1), stored.remove(0));
                MatrixArrays::Sparse(encoding, Box::new([indptr, indices, data]))
            }
            _ => MatrixArrays::Dense(stored.remove(0)),
        };
        Ok((source, MatrixDescription { rows: self.rows, columns: self.columns, arrays }))
    }
}

fn locate_dense(tree: &Hierarchy, name: &str, meta: ArrayMetadata) -> Result<LocatedMatrix, AnnDataError> {
    check_encoding(tree, name, &meta.attributes, false)?;
    let (rows, columns) = dense_shape(&meta.shape).map_err(|error| tree.wrong(name, error))?;
    Ok(LocatedMatrix { rows, columns, arrays: vec![zarr_array(tree, name, meta)?], encoding: None })
}

fn locate_sparse(tree: &Hierarchy, name: &str, attributes: &JsonObject) -> Result<LocatedMatrix, AnnDataError> {
    check_encoding(tree, name, attributes, true)?;
    let encoding = match json_text(attributes, "encoding-type") {
        Some("csr_matrix") => SparseEncoding::Csr,
        Some("csc_matrix") => SparseEncoding::Csc,
        _ => return Err(tree.wrong(name, MatrixError::NoEncoding { attribute: "encoding-type" })),
    };
    let (rows, columns) = match json_lengths(attributes, "shape").as_deref() {
        Ok(&[rows, columns]) => (rows, columns),
        _ => return Err(tree.wrong(name, MatrixError::NoShape)),
    };
    let part = |part: &str| {
        let name = format!("{name}/{part}");
        match tree.node(&name)? {
            Some(ZarrNode::Array(meta)) if meta.shape.len() == 1 => zarr_array(tree, &name, meta),
            Some(ZarrNode::Array(_)) => Err(tree.wrong(&name, MatrixError::NotOneDimension)),
            Some(ZarrNode::Group(_)) => Err(tree.wrong(&name, MatrixError::IsGroup)),
            None => Err(AnnDataError::damaged(tree.path(), MatrixError::MissingArray { array: name })),
        }
    };
    let arrays = vec![part("indptr")?, part("indices")?, part("data")?];
    Ok(LocatedMatrix { rows, columns, arrays, encoding: Some(encoding) })
}

fn zarr_array(tree: &Hierarchy, name: &str, meta: ArrayMetadata) -> Result<ZarrArray, AnnDataError> {
    ZarrArray::new(name, meta).map_err(|error| tree.wrong(name, error))
}

/// The error for a missing matrix, with the list of those that exist.
fn missing_matrix(tree: &Hierarchy, location: &str) -> Result<AnnDataError, AnnDataError> {
    let mut has = Vec::new();
    for name in ["X", "raw/X"] {
        if tree.node(name)?.is_some() {
            has.push(name.to_owned());
        }
    }
    has.extend(tree.names("layers")?.into_iter().map(|layer| format!("layers/{layer}")));
    if location.starts_with("obsm/") {
        has = tree.names("obsm")?.into_iter().map(|name| format!("obsm/{name}")).collect();
    }
    let location = location.to_owned();
    if has.is_empty() && json_text(tree.attributes(), "encoding-type") == Some("annbatch-preshuffled") {
        let folder = tree.path().display().to_string();
        return Ok(AnnDataError::damaged(tree.path(), ZarrError::AnnbatchCollection { location, folder }));
    }
    Ok(AnnDataError::damaged(tree.path(), MatrixError::Missing { location, found: has }))
}

/// Fails if the matrix has the encoding of another one, or a version that is not known.
fn check_encoding(tree: &Hierarchy, name: &str, of: &JsonObject, is_sparse: bool) -> Result<(), AnnDataError> {
    let (encoding, version) = (json_text(of, "encoding-type"), json_text(of, "encoding-version"));
    check_matrix_encoding(encoding, version, is_sparse).map_err(|error| tree.wrong(name, error))
}
