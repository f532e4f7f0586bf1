//! `ArrayDataset`: a built data set of an array, and the manifests of its base files and of the files converted from them.
//! Invariant: a path is returned only if its file exists and has the length that the manifest says.

use std::path::{Path, PathBuf};

use expctl_settings::{Advice, ArrayFormat, Converted, Data};
use serde::{Deserialize, Serialize};

use crate::build_folder::{STORES_FOLDER, bytes_of};
use crate::manifest::{DataOrigin, Family, FileInfo, MANIFEST_FILE, load, load_converted};
use crate::{Damage, DatasetError};

/// Folder of the base files inside a data set.
const FILES_FOLDER: &str = "files";

/// A built data set of an array.
#[derive(Clone, Debug)]
pub struct ArrayDataset {
    folder: PathBuf,
    manifest: ArrayManifest,
}

impl ArrayDataset {
    /// Open the data set in `folder`.
    ///
    /// # Errors
    /// [`DatasetError::NotBuilt`] if there is none; its manifest is damaged or of another family.
    pub fn open(folder: &Path) -> Result<Self, DatasetError> {
        Ok(Self { folder: folder.to_owned(), manifest: ArrayManifest::load(folder)? })
    }

    /// Its manifest.
    pub fn manifest(&self) -> &ArrayManifest {
        &self.manifest
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Folder of the files of a format, in a data set that need not be there.
    pub fn store_folder_in(dataset: &Path, format: ArrayFormat) -> PathBuf {
        match format {
            ArrayFormat::H5ad => dataset.join(FILES_FOLDER),
            made => dataset.join(STORES_FOLDER).join(made.name()),
        }
    }

    /// Folder of the files of a format.
    pub fn store_folder(&self, format: ArrayFormat) -> PathBuf {
        Self::store_folder_in(&self.folder, format)
    }

    /// The files of a format, in order; each is there and as long as the manifest says.
    ///
    /// # Errors
    /// [`DatasetError::NotConverted`] if they have not been made; one is missing or of another length.
    pub fn store_files(&self, format: ArrayFormat) -> Result<Vec<PathBuf>, DatasetError> {
        Ok(self.files(format)?.into_iter().map(|(path, _)| path).collect())
    }

    /// The files of a format that a trial reads: as [`ArrayDataset::store_files`], of `count` files where that is not 0.
    ///
    /// # Errors
    /// As [`ArrayDataset::store_files`]; there are more or fewer.
    pub fn store_files_of(&self, format: ArrayFormat, count: u32) -> Result<Vec<PathBuf>, DatasetError> {
        let files = self.store_files(format)?;
        self.check_count(format, files.len(), count)?;
        Ok(files)
    }

    /// Check that there are `count` files of a format; 0 asks for any number.
    fn check_count(&self, format: ArrayFormat, there: usize, count: u32) -> Result<(), DatasetError> {
        if count == 0 || there == count as usize {
            return Ok(());
        }
        let folder = self.store_folder(format);
        let (data, to) = (self.manifest.data.clone(), Converted::Files(format));
        let advice = Advice::ConvertAgain { remove: folder.clone(), data, to, file_count: Some(count) };
        Err(DatasetError::damaged(&folder, Damage::FileCount { found: there, asked: count }).and(advice))
    }

    /// Bytes of the files of a format.
    ///
    /// # Errors
    /// As [`ArrayDataset::store_files`].
    pub fn stored_bytes(&self, format: ArrayFormat) -> Result<u64, DatasetError> {
        Ok(self.files(format)?.iter().map(|(_, file)| file.file.bytes).sum())
    }

    fn files(&self, format: ArrayFormat) -> Result<Vec<(PathBuf, ArrayFile)>, DatasetError> {
        if format == ArrayFormat::H5ad {
            return self.present(&self.folder, &self.manifest.files).map_err(|e| self.advise(e));
        }
        let Some(manifest) = self.converted(format)? else {
            let advice = Advice::Convert(self.manifest.data.clone(), Converted::Files(format));
            return Err(DatasetError::NotConverted { path: self.folder.clone(), store: format.name() }.and(advice));
        };
        self.present(&self.store_folder(format), &manifest.files).map_err(|e| self.advise(e))
    }

    /// Manifest of the files of a format that were made from the base files; `None` if there are none.
    ///
    /// # Errors
    /// The manifest is damaged; the files were made from other base files; a file is missing or of another length than the
    /// manifest says.
    pub fn converted(&self, format: ArrayFormat) -> Result<Option<ArrayStoreManifest>, DatasetError> {
        self.complete(format).map_err(|e| self.advise(e))
    }

    /// As [`ArrayDataset::converted`], of `count` files where that is not 0.
    ///
    /// # Errors
    /// As [`ArrayDataset::converted`]; there are more or fewer files.
    pub fn converted_of(&self, format: ArrayFormat, count: u32) -> Result<Option<ArrayStoreManifest>, DatasetError> {
        let found = self.converted(format)?;
        if let Some(manifest) = &found {
            self.check_count(format, manifest.files.len(), count)?;
        }
        Ok(found)
    }

    fn complete(&self, format: ArrayFormat) -> Result<Option<ArrayStoreManifest>, DatasetError> {
        let folder = self.store_folder(format);
        let Some(manifest) = ArrayStoreManifest::load(&folder, format)? else { return Ok(None) };
        if manifest.base_blake3 != self.manifest.base_blake3() {
            return Err(DatasetError::damaged(&folder, Damage::OtherBaseFiles));
        }
        self.present(&folder, &manifest.files)?;
        Ok(Some(manifest))
    }

    /// Paths of files in a folder, if all are there and as long as they should be.
    fn present(&self, folder: &Path, files: &[ArrayFile]) -> Result<Vec<(PathBuf, ArrayFile)>, DatasetError> {
        let present = |file: &ArrayFile| {
            let path = folder.join(&file.file.path);
            let bytes = match bytes_of(&path) {
                Err(DatasetError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    return Err(DatasetError::damaged(&path, Damage::Missing));
                }
                other => other?.0,
            };
            if bytes != file.file.bytes {
                let (known_from, expected) = ("the manifest says", file.file.bytes);
                let damage = Damage::Count { found: bytes, things: "bytes", known_from, expected };
                return Err(DatasetError::damaged(&path, damage));
            }
            Ok((path, file.clone()))
        };
        files.iter().map(present).collect()
    }

    /// Whether rows of this format can be read.
    pub fn has(&self, format: ArrayFormat) -> bool {
        self.files(format).is_ok()
    }

    /// A problem of this data set with what can be done about it.
    pub(crate) fn advise(&self, problem: DatasetError) -> DatasetError {
        problem.advise(&self.folder, &self.manifest.data)
    }
}

/// Name of the n-th file, from 0.
pub fn part(index: u64, extension: &str) -> String {
    format!("part-{index:04}.{extension}")
}

/// Path of the n-th base file inside a data set.
pub fn base_file(index: u64) -> String {
    format!("{FILES_FOLDER}/{}", part(index, ArrayFormat::H5ad.extension()))
}

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
    /// The settings of `[data]`.
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
    /// Origin of the counts.
    pub class: DataOrigin,
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
    /// Kind of its values.
    pub kind: String,
    /// The classes of a categorical one.
    pub classes: Vec<ObsClass>,
}

/// A class of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObsClass {
    /// Its name.
    pub name: String,
    /// Rows of it.
    pub rows: u64,
}

/// One file of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrayFile {
    /// Its path, size and checksum.
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
    /// Their format.
    pub format: ArrayFormat,
    /// blake3 over the contents of the base files that they were made from.
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
    /// [`DatasetError::NotBuilt`] if there is none; it is damaged, of another version or of another family.
    pub fn load(folder: &Path) -> Result<Self, DatasetError> {
        load(folder, Family::Array, ARRAY_SCHEMA)
    }

    /// Apparent size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file.bytes).sum()
    }

    /// blake3 over the contents of all files.
    pub(crate) fn base_blake3(&self) -> String {
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
    /// The manifest is damaged, of another version, or of another format.
    pub fn load(folder: &Path, format: ArrayFormat) -> Result<Option<Self>, DatasetError> {
        let Some(manifest) = load_converted::<Self>(folder, ARRAY_SCHEMA)? else { return Ok(None) };
        if manifest.format != format {
            return Err(DatasetError::damaged(&folder.join(MANIFEST_FILE), Damage::OtherFormat(manifest.format)));
        }
        Ok(Some(manifest))
    }

    /// Apparent size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file.bytes).sum()
    }
}
