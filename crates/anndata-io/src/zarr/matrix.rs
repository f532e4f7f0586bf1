use std::path::Path;

use serde_json::Value as Json;

use crate::matrix::matrix_file::{MatrixArrays, MatrixDescription, SparseEncoding};
use crate::matrix::stored_array::StoredArray;
use crate::source::byte_source::ByteSource;
use crate::zarr::array::{ZarrArray, check_unwritten};
use crate::zarr::hierarchy::{Hierarchy, Node, ObjectFiles};
use crate::zarr::metadata::{ArrayMetadata, JsonObject, json_lengths, json_text};
use crate::{AnnDataError, CSC_BYTES, MatrixFile};

/// Opens the matrix at `location` of an AnnData folder: `X`, `raw` (or `raw/X`) or `layers/NAME`. A CSC matrix is transposed in
/// memory if that takes at most [`CSC_BYTES`].
///
/// # Errors
/// There is no such folder or matrix (the error lists the layers), it is damaged or truncated, or its encoding is not
/// supported.
pub fn open_matrix(path: &Path, location: &str) -> Result<MatrixFile, AnnDataError> {
    open_matrix_checked(&Hierarchy::open(path)?, location, CSC_BYTES, |_, _| Ok(()))
}

/// Rows, columns and stored values of the matrix at `location`, without opening it.
///
/// # Errors
/// As [`open_matrix`].
pub fn size(path: &Path, location: &str) -> Result<(u64, u64, u64), AnnDataError> {
    let found = LocatedMatrix::find(&Hierarchy::open(path)?, location)?;
    Ok((found.rows, found.columns, found.values()))
}

/// As [`open_matrix`]; `check` gets the shape in the metadata before memory is allocated for it.
pub(crate) fn open_matrix_checked(
    tree: &Hierarchy,
    location: &str,
    csc_bytes: u64,
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

/// Maximum number of columns of a dense matrix.
const MAX_DENSE_COLUMNS: u64 = 1 << 27;

/// A matrix, as its metadata describes it.
struct LocatedMatrix {
    pub rows: u64,
    pub columns: u64,
    arrays: Vec<ZarrArray>,
    /// `None` for a dense matrix.
    encoding: Option<SparseEncoding>,
}

impl LocatedMatrix {
    /// Finds the matrix at `location`: `X`, `raw` (or `raw/X`), `layers/NAME`.
    pub fn find(tree: &Hierarchy, location: &str) -> Result<Self, AnnDataError> {
        let name = if location == "raw" { "raw/X" } else { location };
        match tree.node(name)? {
            Some(Node::Array(meta)) => locate_dense(tree, name, meta),
            // AnnData writes this if there is no X.
            Some(Node::Group(attributes)) if json_text(&attributes, "encoding-type") != Some("null") => {
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
            array.stored(&source, parts).map_err(|reason| tree.wrong(&array.name, reason))
        };
        let stored = self.arrays.iter().zip(&parts).map(|(array, parts)| stored(array, parts));
        let mut stored: Vec<StoredArray> = stored.collect::<Result<_, _>>()?;
        let arrays = match (self.encoding, stored.len()) {
            (Some(encoding), 3) => {
                // The row pointers are read as a whole.
                check_unwritten(&stored[0]).map_err(|reason| tree.wrong(&stored[0].name, reason))?;
                let (data, indices, indptr) = (stored.remove(2), stored.remove(1), stored.remove(0));
                MatrixArrays::Sparse(encoding, Box::new([indptr, indices, data]))
            }
            _ => MatrixArrays::Dense(stored.remove(0)),
        };
        Ok((source, MatrixDescription { rows: self.rows, columns: self.columns, arrays }))
    }
}

fn locate_dense(tree: &Hierarchy, name: &str, meta: ArrayMetadata) -> Result<LocatedMatrix, AnnDataError> {
    check_matrix_encoding(tree, name, &meta.attributes, &[("array", &["0.1.0", "0.2.0"])])?;
    let [rows, columns] = meta.shape[..] else {
        return Err(tree.wrong(name, "is no matrix: it does not have two dimensions"));
    };
    if columns > MAX_DENSE_COLUMNS {
        let reason =
            format!("has {columns} columns; more than {MAX_DENSE_COLUMNS} of a dense matrix are not supported");
        return Err(tree.wrong(name, reason));
    }
    Ok(LocatedMatrix { rows, columns, arrays: vec![zarr_array(tree, name, meta)?], encoding: None })
}

fn locate_sparse(tree: &Hierarchy, name: &str, attributes: &JsonObject) -> Result<LocatedMatrix, AnnDataError> {
    check_matrix_encoding(tree, name, attributes, &[("csr_matrix", &["0.1.0"]), ("csc_matrix", &["0.1.0"])])?;
    let encoding = match json_text(attributes, "encoding-type") {
        Some("csr_matrix") => SparseEncoding::Csr,
        Some("csc_matrix") => SparseEncoding::Csc,
        _ => return Err(tree.wrong(name, "is no matrix: a group without the attribute encoding-type")),
    };
    let (rows, columns) = match json_lengths(attributes, "shape").as_deref() {
        Ok(&[rows, columns]) => (rows, columns),
        _ => return Err(tree.wrong(name, "has no attribute shape with its rows and columns")),
    };
    let part = |part: &str| {
        let name = format!("{name}/{part}");
        match tree.node(&name)? {
            Some(Node::Array(meta)) if meta.shape.len() == 1 => zarr_array(tree, &name, meta),
            Some(Node::Array(_)) => Err(tree.wrong(&name, "does not have one dimension")),
            Some(Node::Group(_)) => Err(tree.wrong(&name, "is a group instead of an array")),
            None => Err(AnnDataError::damaged(tree.path(), format!("has no {name}"))),
        }
    };
    let arrays = vec![part("indptr")?, part("indices")?, part("data")?];
    Ok(LocatedMatrix { rows, columns, arrays, encoding: Some(encoding) })
}

fn zarr_array(tree: &Hierarchy, name: &str, meta: ArrayMetadata) -> Result<ZarrArray, AnnDataError> {
    ZarrArray::new(name, meta).map_err(|reason| tree.wrong(name, reason))
}

/// The error for a missing matrix, with the list of those that exist.
fn missing_matrix(tree: &Hierarchy, location: &str) -> Result<AnnDataError, AnnDataError> {
    let mut has = Vec::new();
    for name in ["X", "raw/X"] {
        if matches!(tree.node(name)?, Some(Node::Array(_)) | Some(Node::Group(_))) {
            has.push(name.to_owned());
        }
    }
    has.extend(tree.names("layers")?.into_iter().map(|layer| format!("layers/{layer}")));
    let has = match (&has[..], tree.attributes().get("encoding-type").and_then(Json::as_str)) {
        ([], Some("annbatch-preshuffled")) => {
            format!(
                "it is a collection of annbatch, whose parts are given by name: {}/dataset_*",
                tree.path().display()
            )
        }
        ([], _) => "it has no matrix".to_owned(),
        (has, _) => format!("it has {}", has.join(", ")),
    };
    Ok(AnnDataError::damaged(tree.path(), format!("has no matrix {location}; {has}")))
}

/// Fails if the version of a known encoding is not known.
fn check_matrix_encoding(
    tree: &Hierarchy,
    name: &str,
    of: &JsonObject,
    known: &[(&str, &[&str])],
) -> Result<(), AnnDataError> {
    let Some(encoding) = json_text(of, "encoding-type").filter(|encoding| !encoding.is_empty()) else {
        return Ok(());
    };
    let Some((_, versions)) = known.iter().find(|(of, _)| *of == encoding) else {
        let known: Vec<&str> = known.iter().map(|(of, _)| *of).collect();
        return Err(tree.wrong(name, format!("is encoded as {encoding:?}, not as {}", known.join(" or "))));
    };
    match json_text(of, "encoding-version") {
        Some(version) if !versions.contains(&version) => {
            let known = versions.join(", ");
            Err(tree.wrong(name, format!("is encoded as {encoding} in version {version:?}; known is {known}")))
        }
        _ => Ok(()),
    }
}
