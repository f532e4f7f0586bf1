use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path};

use serde::Deserialize;

use super::encoding::Encoding;
use super::hashes;
use super::sample::SampleShape;
use crate::AnnDataError;

/// Says which shards there are.
pub const INDEX_FILE: &str = "index.json";

/// What `index.json` says.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) shards: Vec<IndexedShard>,
    pub(super) columns: Columns,
    pub(super) notes: Notes,
}

/// Columns of all shards, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) names: Vec<String>,
    pub(super) encodings: Vec<Encoding>,
    pub(super) shape: SampleShape,
}

/// A shard as the index has it.
#[derive(Debug, Deserialize)]
pub(super) struct IndexedShard {
    version: u32,
    #[serde(default)]
    format: String,
    #[serde(flatten)]
    config: ShardColumns,
    #[serde(default)]
    pub(super) compression: Option<String>,
    pub(super) samples: u64,
    pub(super) raw_data: FileNote,
    #[serde(default)]
    pub(super) zip_data: Option<FileNote>,
}

/// The columns of a shard, which it has in itself, too.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ShardColumns {
    column_names: Vec<String>,
    column_encodings: Vec<String>,
    column_sizes: Vec<Option<u32>>,
}

/// A file of the index's folder.
#[derive(Debug, Deserialize)]
pub(super) struct FileNote {
    pub(super) basename: String,
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) hashes: BTreeMap<String, String>,
}

/// What the package does not know, beside its own keys.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Notes {
    /// The column of dense rows.
    #[serde(rename = "expctl.x")]
    pub(super) x: Option<String>,
    /// The column of the numbers of genes.
    #[serde(rename = "expctl.indices")]
    pub(super) indices: Option<String>,
    /// The column of their values.
    #[serde(rename = "expctl.values")]
    pub(super) values: Option<String>,
    /// Number of genes, where they have no names.
    #[serde(rename = "expctl.columns")]
    pub(super) columns: Option<u64>,
    /// Names of the classes of columns of obs, in order.
    #[serde(rename = "expctl.categories")]
    pub(super) categories: BTreeMap<String, Vec<String>>,
    /// The number that stands for no value in columns of obs.
    #[serde(rename = "expctl.missing")]
    pub(super) missing: BTreeMap<String, i64>,
}

#[derive(Deserialize)]
struct IndexFile {
    version: u32,
    shards: Vec<IndexedShard>,
    #[serde(flatten)]
    notes: Notes,
}

impl Index {
    /// Read the index of `folder`.
    ///
    /// # Errors
    /// There is none; it is not of version 2; shards are not MDS, differ in their columns, or are files elsewhere.
    pub(super) fn read(folder: &Path) -> Result<Self, AnnDataError> {
        let path = folder.join(INDEX_FILE);
        let bytes = std::fs::read(&path).map_err(AnnDataError::io("read", &path))?;
        Self::parse(&bytes).map_err(|reason| AnnDataError::damaged(&path, reason))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let IndexFile { version, shards, notes } = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        check_version(version)?;
        let first = shards.first().ok_or("it has no shards, so nothing says what a sample is")?;
        let mut rows = 0_u64;
        for (number, shard) in shards.iter().enumerate() {
            let of_shard = |reason: String| format!("shard {number}: {reason}");
            shard.check().map_err(of_shard)?;
            if shard.config != first.config {
                return Err(of_shard("it has other columns than the first".to_owned()));
            }
            rows = rows.checked_add(shard.samples).ok_or("there are more than 2^64 samples")?;
        }
        let files = || shards.iter().flat_map(|shard| [Some(&shard.raw_data), shard.zip_data.as_ref()]).flatten();
        if let Some(file) = files().find(|file| hashes::are_unknown(&file.hashes)) {
            let names: Vec<&str> = file.hashes.keys().map(String::as_str).collect();
            tracing::warn!("hashes of MDS shards are not compared: {} is not known here", names.join(", "));
        }
        let columns = first.config.columns()?;
        for (name, classes) in &notes.categories {
            if classes.iter().collect::<HashSet<_>>().len() != classes.len() {
                return Err(format!("\"expctl.categories\": two classes of '{name}' have one name"));
            }
        }
        Ok(Self { shards, columns, notes })
    }
}

fn check_version(version: u32) -> Result<(), String> {
    match version {
        2 => Ok(()),
        other => Err(format!("it is of version {other}; 2 is read here")),
    }
}

impl IndexedShard {
    fn check(&self) -> Result<(), String> {
        check_version(self.version)?;
        if self.format != "mds" {
            return Err(format!("it is of format \"{}\"; \"mds\" is read here", self.format));
        }
        for file in [Some(&self.raw_data), self.zip_data.as_ref()].into_iter().flatten() {
            let mut parts = Path::new(&file.basename).components().peekable();
            if parts.peek().is_none() || !parts.all(|part| matches!(part, Component::Normal(_))) {
                return Err(format!("its file is \"{}\", which is not in the folder", file.basename));
            }
        }
        // Where samples begin takes 4 bytes each, and is itself written in 4 bytes.
        let least = self.samples.checked_mul(4).and_then(|bytes| bytes.checked_add(8));
        let bytes = self.raw_data.bytes;
        if least.is_none_or(|least| least > bytes) || bytes > u32::MAX.into() {
            return Err(format!("{} samples are not in {bytes} bytes", self.samples));
        }
        Ok(())
    }

    /// The columns that are in the file itself.
    ///
    /// # Errors
    /// They are others than the index says.
    pub(super) fn check_config(&self, json: &[u8]) -> Result<(), String> {
        let config: ShardColumns = serde_json::from_slice(json).map_err(|e| format!("its columns are damaged: {e}"))?;
        if config == self.config { Ok(()) } else { Err("it has other columns than the index says".to_owned()) }
    }
}

impl ShardColumns {
    fn columns(&self) -> Result<Columns, String> {
        let names = &self.column_names;
        if names.is_empty() || [self.column_encodings.len(), self.column_sizes.len()] != [names.len(); 2] {
            return Err("it has not one encoding and one size for each column".to_owned());
        }
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(format!("two columns have the name '{twice}'"));
        }
        let encodings: Vec<Encoding> =
            self.column_encodings.iter().map(|text| Encoding::parse(text)).collect::<Result<_, _>>()?;
        for ((name, encoding), size) in names.iter().zip(&encodings).zip(&self.column_sizes) {
            if encoding.size().is_some_and(|expected| expected != *size) || *size == Some(0) {
                return Err(format!("the size of column '{name}' is not that of its encoding"));
            }
        }
        let shape = SampleShape::new(self.column_sizes.clone());
        Ok(Columns { names: names.clone(), encodings, shape })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
            let found = parse(&wrong).unwrap_err();
            assert!(found.contains(reason), "{at}: {found}");
        }
    }
}
