use serde_json::Value as Json;

use super::array_meta::ArrayMeta;
use super::describe::{Array, few_holes};
use super::json::{Object, lengths, text};
use super::tree::{Node, Parts, Tree};
use crate::AnnDataError;
use crate::matrix::stored::Stored;
use crate::matrix::{Arrays, Described, Encoding};
use crate::source::Source;

/// Columns that a matrix with a value for each can have.
const MOST_DENSE_COLUMNS: u64 = 1 << 27;

/// A matrix that metadata was read of.
pub(super) struct Located {
    pub(super) rows: u64,
    pub(super) columns: u64,
    arrays: Vec<Array>,
    /// `None` of a dense one.
    encoding: Option<Encoding>,
}

impl Located {
    /// Find the matrix at `location`: `X`, `raw` (or `raw/X`), `layers/NAME`.
    pub(super) fn find(tree: &Tree, location: &str) -> Result<Self, AnnDataError> {
        let name = if location == "raw" { "raw/X" } else { location };
        match tree.node(name)? {
            Some(Node::Array(meta)) => dense(tree, name, meta),
            // What AnnData writes where there is no X.
            Some(Node::Group(attributes)) if text(&attributes, "encoding-type") != Some("null") => {
                sparse(tree, name, &attributes)
            }
            _ => Err(none(tree, location)?),
        }
    }

    /// Values that are stored.
    pub(super) fn values(&self) -> u64 {
        match &self.arrays[..] {
            [_, _, data] => data.meta.shape.iter().product(),
            _ => self.rows.saturating_mul(self.columns),
        }
    }

    /// Look for its files, and where its numbers lie in them.
    pub(super) fn describe(&self, tree: &Tree) -> Result<(Source, Described), AnnDataError> {
        let (source, parts) = tree.source(&self.arrays.iter().collect::<Vec<_>>())?;
        let stored = |array: &Array, parts: &Parts| {
            array.stored(&source, parts).map_err(|reason| tree.wrong(&array.name, reason))
        };
        let stored = self.arrays.iter().zip(&parts).map(|(array, parts)| stored(array, parts));
        let mut stored: Vec<Stored> = stored.collect::<Result<_, _>>()?;
        let arrays = match (self.encoding, stored.len()) {
            (Some(encoding), 3) => {
                // The starts of rows are read as a whole.
                few_holes(&stored[0]).map_err(|reason| tree.wrong(&stored[0].name, reason))?;
                let (data, indices, indptr) = (stored.remove(2), stored.remove(1), stored.remove(0));
                Arrays::Sparse(encoding, Box::new([indptr, indices, data]))
            }
            _ => Arrays::Dense(stored.remove(0)),
        };
        Ok((source, Described { rows: self.rows, columns: self.columns, arrays }))
    }
}

fn dense(tree: &Tree, name: &str, meta: ArrayMeta) -> Result<Located, AnnDataError> {
    known_version(tree, name, &meta.attributes, &[("array", &["0.1.0", "0.2.0"])])?;
    let [rows, columns] = meta.shape[..] else {
        return Err(tree.wrong(name, "is no matrix: it does not have two dimensions"));
    };
    if columns > MOST_DENSE_COLUMNS {
        let reason =
            format!("has {columns} columns; more than {MOST_DENSE_COLUMNS} of a dense matrix are not supported");
        return Err(tree.wrong(name, reason));
    }
    Ok(Located { rows, columns, arrays: vec![array(tree, name, meta)?], encoding: None })
}

fn sparse(tree: &Tree, name: &str, attributes: &Object) -> Result<Located, AnnDataError> {
    known_version(tree, name, attributes, &[("csr_matrix", &["0.1.0"]), ("csc_matrix", &["0.1.0"])])?;
    let encoding = match text(attributes, "encoding-type") {
        Some("csr_matrix") => Encoding::Csr,
        Some("csc_matrix") => Encoding::Csc,
        _ => return Err(tree.wrong(name, "is no matrix: a group without the attribute encoding-type")),
    };
    let (rows, columns) = match lengths(attributes, "shape").as_deref() {
        Ok(&[rows, columns]) => (rows, columns),
        _ => return Err(tree.wrong(name, "has no attribute shape with its rows and columns")),
    };
    let part = |part: &str| {
        let name = format!("{name}/{part}");
        match tree.node(&name)? {
            Some(Node::Array(meta)) if meta.shape.len() == 1 => array(tree, &name, meta),
            Some(Node::Array(_)) => Err(tree.wrong(&name, "does not have one dimension")),
            Some(Node::Group(_)) => Err(tree.wrong(&name, "is a group instead of an array")),
            None => Err(AnnDataError::damaged(tree.path(), format!("has no {name}"))),
        }
    };
    let arrays = vec![part("indptr")?, part("indices")?, part("data")?];
    Ok(Located { rows, columns, arrays, encoding: Some(encoding) })
}

fn array(tree: &Tree, name: &str, meta: ArrayMeta) -> Result<Array, AnnDataError> {
    Array::new(name, meta).map_err(|reason| tree.wrong(name, reason))
}

/// The error for a matrix that is not there, with those that are.
fn none(tree: &Tree, location: &str) -> Result<AnnDataError, AnnDataError> {
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

/// An error if the encoding is one that is known, in a version that is not.
fn known_version(tree: &Tree, name: &str, of: &Object, known: &[(&str, &[&str])]) -> Result<(), AnnDataError> {
    let Some(encoding) = text(of, "encoding-type").filter(|encoding| !encoding.is_empty()) else {
        return Ok(());
    };
    let Some((_, versions)) = known.iter().find(|(of, _)| *of == encoding) else {
        let known: Vec<&str> = known.iter().map(|(of, _)| *of).collect();
        return Err(tree.wrong(name, format!("is encoded as {encoding:?}, not as {}", known.join(" or "))));
    };
    match text(of, "encoding-version") {
        Some(version) if !versions.contains(&version) => {
            let known = versions.join(", ");
            Err(tree.wrong(name, format!("is encoded as {encoding} in version {version:?}; known is {known}")))
        }
        _ => Ok(()),
    }
}
