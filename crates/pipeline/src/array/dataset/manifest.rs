use std::path::Path;

use expctl_record::{ArrayFormat, Data};
use serde::{Deserialize, Serialize};

use crate::PipelineError;
use crate::dataset::manifest::{MANIFEST_FILE, check_version, load};
use crate::dataset::{Family, FileInfo, Origin};

/// Version of the layout of a built data set of an array, and of the files that were made from it.
pub const ARRAY_SCHEMA: u32 = 1;

/// `manifest.json`: what was built. It is written last, so a folder that has one is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrayManifest {
    /// Layout version.
    pub schema: u32,
    /// `array`.
    pub family: Family,
    /// Title of the recipe.
    pub title: String,
    /// What was asked for.
    pub data: Data,
    /// blake3 of the recipe and of what was asked for.
    pub recipe_blake3: String,
    /// Rows of all files.
    pub rows: u64,
    /// Columns of the matrix.
    pub genes: u64,
    /// Values that are not 0, of all files.
    pub nnz: u64,
    /// Sum of all values.
    pub sum: f64,
    /// Columns of obs.
    pub obs: Vec<ObsColumn>,
    /// Where the counts come from.
    pub class: Origin,
    /// The files, in order.
    pub files: Vec<ArrayFile>,
    /// Seconds that the build took (its last run, if it was stopped before).
    pub build_seconds: f64,
    /// Files that earlier, stopped runs had already written.
    pub resumed_files: u64,
}

/// A column of obs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObsColumn {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: String,
    /// The classes of a categorical one.
    pub classes: Vec<Class>,
}

/// A class of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Rows of it.
    pub rows: u64,
}

/// One file of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrayFile {
    /// Where it is, its size and checksum.
    #[serde(flatten)]
    pub file: FileInfo,
    /// Its rows.
    pub rows: u64,
    /// Values of them that are not 0.
    pub nnz: u64,
    /// Sum of its values.
    pub sum: f64,
    /// blake3 over the rows in order: of each the number of values that are not 0 as eight bytes, their columns as int32 and
    /// they themselves as float32, little-endian. The same rows have the same digest in files of any format.
    pub content_blake3: String,
}

/// `stores/<format>/manifest.json`: files that were made from the base files. It is written last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrayStoreManifest {
    /// Layout version.
    pub schema: u32,
    /// What the files are.
    pub format: ArrayFormat,
    /// What they were made from: blake3 over the contents of the base files.
    pub base_blake3: String,
    /// Rows of a parquet row group; 0 of other formats.
    pub row_group: u64,
    /// Rows of a shard of shuffled files; 0 of other formats.
    pub shard_rows: u64,
    /// Seed of the order of shuffled files; 0 of other formats.
    pub seed: u64,
    /// Number of files that parquet's rows were put into; 0 where each is made from one base file.
    #[serde(default)]
    pub file_count: u64,
    /// The files, in order.
    pub files: Vec<ArrayFile>,
    /// Seconds that the conversion took (its last run, if it was stopped before), checks included.
    pub build_seconds: f64,
}

impl ArrayManifest {
    /// Read the manifest of a data set.
    ///
    /// # Errors
    /// [`PipelineError::NotBuilt`] if there is none; it is damaged, of another version or of another family.
    pub fn load(folder: &Path) -> Result<Self, PipelineError> {
        load(folder, Family::Array, ARRAY_SCHEMA)
    }

    /// Apparent size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file.bytes).sum()
    }

    /// blake3 over the contents of all files.
    pub(super) fn base_blake3(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for file in &self.files {
            hasher.update(file.content_blake3.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

impl ArrayStoreManifest {
    /// Read the manifest in the folder of converted files; `None` if there are none.
    ///
    /// # Errors
    /// It is damaged, of another version, or of another format.
    pub fn load(folder: &Path, format: ArrayFormat) -> Result<Option<Self>, PipelineError> {
        let path = folder.join(MANIFEST_FILE);
        let text = match std::fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(PipelineError::io("read", &path))?,
        };
        check_version(&path, &text, ARRAY_SCHEMA)?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|e| PipelineError::damaged(&path, e))?;
        if manifest.format != format {
            return Err(PipelineError::damaged(&path, format!("of {} files", manifest.format.name())));
        }
        Ok(Some(manifest))
    }

    /// Apparent size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file.bytes).sum()
    }
}
