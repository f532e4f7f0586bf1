//! `Index`: the shards and columns that `index.json` lists. `find_layout` decides which columns are the matrix.
//! Invariant: all shards have the same columns, and no file name leads out of the folder.

use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path};

use serde::Deserialize;

use crate::AnnDataError;
use crate::mds::encoding::{ColumnEncoding, MdsDtype};
use crate::mds::error::MdsError;
use crate::mds::sample::SampleLayout;
use crate::mds::shard::hashes_are_unknown;
use crate::source::folder::Folder;

/// Name of the file that lists the shards.
pub const INDEX_FILE: &str = "index.json";

/// Maximum size of an index in bytes.
const MAX_INDEX_BYTES: u64 = 1 << 30;

/// Content of `index.json`.
#[derive(Debug)]
pub(crate) struct Index {
    pub shards: Vec<IndexedShard>,
    pub columns: SampleColumns,
    pub notes: IndexNotes,
}

/// Columns of all shards, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SampleColumns {
    pub names: Vec<String>,
    pub encodings: Vec<ColumnEncoding>,
    pub shape: SampleLayout,
}

/// A shard in the index.
#[derive(Debug, Deserialize)]
pub(crate) struct IndexedShard {
    version: u32,
    #[serde(default)]
    format: String,
    #[serde(flatten)]
    config: ShardColumns,
    #[serde(default)]
    pub compression: Option<String>,
    pub samples: u64,
    pub raw_data: FileNote,
    #[serde(default)]
    pub zip_data: Option<FileNote>,
}

/// Columns of a shard; its file has them, too.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct ShardColumns {
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u32>>,
}

/// A file of the folder.
#[derive(Debug, Deserialize)]
pub(crate) struct FileNote {
    pub basename: String,
    pub bytes: u64,
    #[serde(default)]
    pub hashes: BTreeMap<String, String>,
}

/// Keys beside those of the streaming package.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IndexNotes {
    /// Column of dense rows.
    #[serde(rename = "expctl.x")]
    pub x: Option<String>,
    /// Column of gene numbers.
    #[serde(rename = "expctl.indices")]
    pub indices: Option<String>,
    /// Column of values.
    #[serde(rename = "expctl.values")]
    pub values: Option<String>,
    /// Number of genes, if they have no names.
    #[serde(rename = "expctl.columns")]
    pub columns: Option<u64>,
    /// Category names of obs columns, in order.
    #[serde(rename = "expctl.categories")]
    pub categories: BTreeMap<String, Vec<String>>,
    /// The integer that is a missing value, by obs column.
    #[serde(rename = "expctl.missing")]
    pub missing: BTreeMap<String, i64>,
}

#[derive(Deserialize)]
struct IndexFile {
    version: u32,
    shards: Vec<IndexedShard>,
    #[serde(flatten)]
    notes: IndexNotes,
}

impl Index {
    /// Reads the index of `folder`.
    ///
    /// # Errors
    /// There is no index; its version is not 2; shards are not MDS, have different columns, or are files outside of the folder.
    pub fn read(folder: &Folder) -> Result<Self, AnnDataError> {
        let bytes = folder.require(INDEX_FILE, MAX_INDEX_BYTES)?;
        Self::parse(&bytes).map_err(|error| AnnDataError::damaged(&folder.path().join(INDEX_FILE), error))
    }

    fn parse(bytes: &[u8]) -> Result<Self, MdsError> {
        let IndexFile { version, shards, notes } = serde_json::from_slice(bytes)?;
        check_version(version)?;
        let first = shards.first().ok_or(MdsError::NoShards)?;
        let mut rows = 0_u64;
        for (number, shard) in shards.iter().enumerate() {
            let of_shard = |error| MdsError::Shard { shard: number, error: Box::new(error) };
            shard.check().map_err(of_shard)?;
            if shard.config != first.config {
                return Err(of_shard(MdsError::MixedColumns));
            }
            rows = rows.checked_add(shard.samples).ok_or(MdsError::TooManySamples)?;
        }
        let files = || shards.iter().flat_map(|shard| [Some(&shard.raw_data), shard.zip_data.as_ref()]).flatten();
        if let Some(file) = files().find(|file| hashes_are_unknown(&file.hashes)) {
            let names: Vec<&str> = file.hashes.keys().map(String::as_str).collect();
            tracing::warn!("hashes of MDS shards are not compared: {} is not known here", names.join(", "));
        }
        let columns = first.config.columns()?;
        for (name, classes) in &notes.categories {
            if classes.iter().collect::<HashSet<_>>().len() != classes.len() {
                return Err(MdsError::RepeatedClass { column: name.clone() });
            }
        }
        Ok(Self { shards, columns, notes })
    }
}

fn check_version(version: u32) -> Result<(), MdsError> {
    match version {
        2 => Ok(()),
        version => Err(MdsError::Version { version }),
    }
}

impl IndexedShard {
    fn check(&self) -> Result<(), MdsError> {
        check_version(self.version)?;
        if self.format != "mds" {
            return Err(MdsError::Format { format: self.format.clone() });
        }
        for file in [Some(&self.raw_data), self.zip_data.as_ref()].into_iter().flatten() {
            let mut parts = Path::new(&file.basename).components().peekable();
            if parts.peek().is_none() || !parts.all(|part| matches!(part, Component::Normal(_))) {
                return Err(MdsError::FileOutside { file: file.basename.clone() });
            }
        }
        // Offsets of samples take 4 bytes each, and are 4-byte integers themselves.
        let least = self.samples.checked_mul(4).and_then(|bytes| bytes.checked_add(8));
        let bytes = self.raw_data.bytes;
        if least.is_none_or(|least| least > bytes) || bytes > u32::MAX.into() {
            return Err(MdsError::SampleBytes { samples: self.samples, bytes });
        }
        Ok(())
    }

    /// Names of the file of the shard: the uncompressed one, then the compressed one.
    pub fn file_names(&self) -> Vec<&str> {
        let packed = self.zip_data.as_ref().filter(|_| self.compression.is_some());
        let names = std::iter::once(&self.raw_data).chain(packed).map(|file| file.basename.as_str());
        names.collect()
    }

    /// Reads the columns from the file itself.
    ///
    /// # Errors
    /// They are not those of the index.
    pub fn check_config(&self, json: &[u8]) -> Result<(), MdsError> {
        let config: ShardColumns = serde_json::from_slice(json).map_err(MdsError::Columns)?;
        if config == self.config { Ok(()) } else { Err(MdsError::IndexColumns) }
    }
}

impl ShardColumns {
    fn columns(&self) -> Result<SampleColumns, MdsError> {
        let names = &self.column_names;
        if names.is_empty() || [self.column_encodings.len(), self.column_sizes.len()] != [names.len(); 2] {
            return Err(MdsError::ColumnCount);
        }
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(MdsError::RepeatedColumn { column: twice.clone() });
        }
        let encodings: Vec<ColumnEncoding> =
            self.column_encodings.iter().map(|text| ColumnEncoding::parse(text)).collect::<Result<_, _>>()?;
        for ((name, encoding), size) in names.iter().zip(&encodings).zip(&self.column_sizes) {
            if encoding.size().is_some_and(|expected| expected != *size) || *size == Some(0) {
                return Err(MdsError::ColumnSize { column: name.clone() });
            }
        }
        let shape = SampleLayout::new(self.column_sizes.clone());
        Ok(SampleColumns { names: names.clone(), encodings, shape })
    }
}

/// Columns of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MdsMatrixLayout {
    /// An array with the values of all genes.
    Dense(usize),
    /// An array of gene numbers and an array of values.
    Sparse { indices: usize, values: usize },
}

/// Dtypes of `bytes` columns: gene numbers, and values.
pub(crate) const RAW_INDICES: MdsDtype = MdsDtype::I32;
pub(crate) const RAW_VALUES: MdsDtype = MdsDtype::F32;

/// Well-known names of columns.
const X_NAMES: [&str; 2] = ["x", "X"];
const INDICES_NAMES: [&str; 1] = ["indices"];
const VALUES_NAMES: [&str; 2] = ["values", "data"];

/// Finds the columns of the matrix: those in the index; else those with well-known names; else the only array; else, of two
/// arrays, that of integers and that of floats.
pub(crate) fn find_layout(columns: &SampleColumns, notes: &IndexNotes) -> Result<MdsMatrixLayout, MdsError> {
    let layout = match (&notes.x, &notes.indices, &notes.values) {
        (None, None, None) => layout_by_name(columns)?,
        (Some(x), None, None) => MdsMatrixLayout::Dense(noted_column(columns, "expctl.x", x)?),
        (None, Some(indices), Some(values)) => MdsMatrixLayout::Sparse {
            indices: noted_column(columns, "expctl.indices", indices)?,
            values: noted_column(columns, "expctl.values", values)?,
        },
        _ => return Err(MdsError::IncompleteNotes),
    };
    if let MdsMatrixLayout::Sparse { indices, values } = layout {
        let column = || columns.names[indices].clone();
        if indices == values {
            return Err(MdsError::SameColumn { column: column() });
        }
        if is_float(&columns.encodings[indices]) {
            return Err(MdsError::IndicesType { column: column() });
        }
    }
    Ok(layout)
}

fn is_float(encoding: &ColumnEncoding) -> bool {
    matches!(encoding, ColumnEncoding::Array { dtype: Some(dtype), .. } if dtype.is_float())
}

fn is_integer(encoding: &ColumnEncoding) -> bool {
    matches!(encoding, ColumnEncoding::Array { dtype: Some(dtype), .. } if !dtype.is_float())
}

/// The array column that a key of the index names.
fn noted_column(columns: &SampleColumns, key: &'static str, name: &str) -> Result<usize, MdsError> {
    let column = columns.names.iter().position(|column| column == name);
    let column = column.filter(|column| columns.encodings[*column].is_array());
    column.ok_or_else(|| MdsError::NotedColumn { key, column: name.to_owned() })
}

fn layout_by_name(columns: &SampleColumns) -> Result<MdsMatrixLayout, MdsError> {
    let named = |names: &[&str]| -> Vec<usize> {
        let is_named = |column: &usize| names.contains(&columns.names[*column].as_str());
        (0..columns.names.len()).filter(is_named).filter(|column| columns.encodings[*column].is_array()).collect()
    };
    let arrays: Vec<usize> = (0..columns.names.len())
        .filter(|column| matches!(columns.encodings[*column], ColumnEncoding::Array { .. }))
        .collect();
    let unclear = |reason: &'static str| {
        let found = columns.names.iter().zip(&columns.encodings).filter(|(_, encoding)| encoding.is_array());
        MdsError::UnclearColumns { reason, arrays: found.map(|(name, _)| name.clone()).collect() }
    };
    match (&named(&X_NAMES)[..], &named(&INDICES_NAMES)[..], &named(&VALUES_NAMES)[..]) {
        ([x], [], _) => Ok(MdsMatrixLayout::Dense(*x)),
        ([], [indices], [values]) => Ok(MdsMatrixLayout::Sparse { indices: *indices, values: *values }),
        ([], [], _) => match arrays[..] {
            [x] => Ok(MdsMatrixLayout::Dense(x)),
            [a, b] if is_integer(&columns.encodings[a]) && is_float(&columns.encodings[b]) => {
                Ok(MdsMatrixLayout::Sparse { indices: a, values: b })
            }
            [b, a] if is_integer(&columns.encodings[a]) && is_float(&columns.encodings[b]) => {
                Ok(MdsMatrixLayout::Sparse { indices: a, values: b })
            }
            _ => Err(unclear("no columns are named 'x', or 'indices' and 'values'")),
        },
        ([], _, []) => Err(unclear("there is a column 'indices', but no 'values' or 'data'")),
        _ => Err(unclear("it is not clear which columns rows are made of")),
    }
}

/// Columns of obs by name: all other columns with one number or string a sample.
pub(crate) fn obs_columns(columns: &SampleColumns) -> BTreeMap<String, usize> {
    let is_obs = |encoding: &ColumnEncoding| {
        matches!(
            encoding,
            ColumnEncoding::Scalar(_) | ColumnEncoding::Text | ColumnEncoding::TextInteger | ColumnEncoding::TextFloat
        )
    };
    let found = columns.names.iter().zip(&columns.encodings).zip(0..).filter(|((_, encoding), _)| is_obs(encoding));
    found.map(|((name, _), column)| (name.clone(), column)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mds::sample::SampleLayout;
    use serde_json::Value;
    use serde_json::json;

    fn index() -> Value {
        let file = json!({"basename": "shard.00000.mds", "bytes": 100, "hashes": {}});
        json!({"version": 2, "expctl.columns": 7, "shards": [{
            "version": 2, "format": "mds", "compression": null, "hashes": [], "size_limit": 67108864, "samples": 3,
            "raw_data": file, "zip_data": null, "column_names": ["n", "x"],
            "column_encodings": ["int", "ndarray:float32"], "column_sizes": [8, null]}]})
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let parse = |value: &Value| Index::parse(value.to_string().as_bytes());
        let found = parse(&index()).unwrap();
        assert_eq!((found.notes.columns, found.columns.names.len(), found.shards[0].samples), (Some(7), 2, 3));
        for (at, value, reason) in [
            ("/version", json!(1), "version 1"),
            ("/shards", json!([]), "no shards"),
            ("/shards/0/version", json!(3), "version 3"),
            ("/shards/0/format", json!("csv"), "\"csv\""),
            ("/shards/0/samples", json!(24), "24 samples are not in 100 bytes"),
            ("/shards/0/samples", json!(u64::MAX), "samples are not in 100 bytes"),
            ("/shards/0/raw_data/bytes", json!(1_u64 << 32), "are not in 4294967296 bytes"),
            ("/shards/0/raw_data/basename", json!("../x.mds"), "not in the folder"),
            ("/shards/0/raw_data/basename", json!("/x.mds"), "not in the folder"),
            ("/shards/0/raw_data/basename", json!(""), "not in the folder"),
            ("/shards/0/column_names/0", json!("x"), "two columns"),
            ("/shards/0/column_names", json!([]), "not one encoding"),
            ("/shards/0/column_sizes/0", json!(4), "size of column 'n'"),
            ("/shards/0/column_sizes/1", json!(4), "size of column 'x'"),
            ("/shards/0/column_encodings/1", json!("ndarray:float31"), "float31"),
            ("/shards/0/samples", json!(-1), "invalid value"),
        ] {
            let mut wrong = index();
            *wrong.pointer_mut(at).unwrap() = value;
            let found = parse(&wrong).unwrap_err().to_string();
            assert!(found.contains(reason), "{at}: {found}");
        }
    }

    fn of(columns: &[(&str, &str)], notes: &IndexNotes) -> Result<MdsMatrixLayout, MdsError> {
        let names = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let encodings = columns.iter().map(|(_, encoding)| ColumnEncoding::parse(encoding).unwrap()).collect();
        find_layout(&SampleColumns { names, encodings, shape: SampleLayout::default() }, notes)
    }

    #[test]
    fn columns_are_found_or_named() {
        let sparse = |indices, values| MdsMatrixLayout::Sparse { indices, values };
        for (columns, layout) in [
            (&[("data", "ndarray:float32"), ("indices", "ndarray:int32")][..], sparse(1, 0)),
            (&[("indices", "bytes"), ("other", "ndarray"), ("values", "bytes")], sparse(0, 2)),
            (&[("counts", "ndarray:float16"), ("genes", "ndarray:uint16")], sparse(1, 0)),
            (&[("genes", "ndarray:uint16"), ("xs", "ndarray:float64"), ("y", "int")], sparse(0, 1)),
            (&[("x", "ndarray:float32"), ("other", "ndarray:float32")], MdsMatrixLayout::Dense(0)),
            (&[("X", "bytes")], MdsMatrixLayout::Dense(0)),
            (&[("cell", "ndarray:float32:5"), ("y", "int"), ("z", "bytes")], MdsMatrixLayout::Dense(0)),
        ] {
            assert_eq!(of(columns, &IndexNotes::default()).unwrap(), layout, "{columns:?}");
        }
        for (columns, reason) in [
            (&[("a", "ndarray:int32"), ("b", "ndarray:int32")][..], "are: 'a', 'b'"),
            (&[("x", "int"), ("z", "bytes")], "are: 'z'"),
            (&[("indices", "ndarray:int32"), ("v", "ndarray:float32")], "no 'values'"),
            (&[("indices", "ndarray:int32"), ("values", "bytes"), ("data", "bytes")], "not clear"),
            (&[("indices", "ndarray:int32"), ("values", "bytes"), ("x", "bytes")], "not clear"),
            (&[("indices", "ndarray:float32"), ("values", "bytes")], "holds no integers"),
            (&[("y", "int")], "are: none"),
        ] {
            let found = of(columns, &IndexNotes::default()).unwrap_err().to_string();
            assert!(found.contains(reason), "{found}");
        }
        let notes = |x: Option<&str>, indices: Option<&str>, values: Option<&str>| IndexNotes {
            x: x.map(str::to_owned),
            indices: indices.map(str::to_owned),
            values: values.map(str::to_owned),
            ..IndexNotes::default()
        };
        let columns = [("a", "ndarray:int32"), ("b", "ndarray:int32"), ("c", "int")];
        assert_eq!(of(&columns, &notes(None, Some("b"), Some("a"))).unwrap(), sparse(1, 0));
        assert_eq!(of(&columns, &notes(Some("b"), None, None)).unwrap(), MdsMatrixLayout::Dense(1));
        for (notes, reason) in [
            (notes(Some("c"), None, None), "no column of arrays"),
            (notes(Some("d"), None, None), "names 'd'"),
            (notes(None, Some("a"), None), "has to note"),
            (notes(None, Some("a"), Some("a")), "both"),
        ] {
            let found = of(&columns, &notes).unwrap_err().to_string();
            assert!(found.contains(reason), "{found}");
        }
    }
}
