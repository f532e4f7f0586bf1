use std::path::{Path, PathBuf};

use expctl_record::ArrayFormat;

use super::{ArrayFile, ArrayManifest, ArrayStoreManifest};
use crate::PipelineError;
use crate::dataset::advice::command;
use crate::dataset::files::{STORES_FOLDER, bytes_of};

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
    /// [`PipelineError::NotBuilt`] if there is none; its manifest is damaged or of another family.
    pub fn open(folder: &Path) -> Result<Self, PipelineError> {
        Ok(Self { folder: folder.to_owned(), manifest: ArrayManifest::load(folder)? })
    }

    /// What was built.
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
    /// [`PipelineError::NotConverted`] if they have not been made; one is missing or of another length.
    pub fn store_files(&self, format: ArrayFormat) -> Result<Vec<PathBuf>, PipelineError> {
        Ok(self.files(format)?.into_iter().map(|(path, _)| path).collect())
    }

    /// The files of a format that a trial reads: as [`ArrayDataset::store_files`], of `count` files where that is not 0.
    ///
    /// # Errors
    /// As [`ArrayDataset::store_files`]; there are more or fewer.
    pub fn store_files_of(&self, format: ArrayFormat, count: u32) -> Result<Vec<PathBuf>, PipelineError> {
        let files = self.store_files(format)?;
        self.are_so_many(format, files.len(), count)?;
        Ok(files)
    }

    /// An error if files of a format that are there are not the `count` that are asked for; 0 asks for any number.
    fn are_so_many(&self, format: ArrayFormat, there: usize, count: u32) -> Result<(), PipelineError> {
        if count == 0 || there == count as usize {
            return Ok(());
        }
        let folder = self.store_folder(format);
        let convert = command("convert", &self.manifest.data, Some(format.name()));
        let advice = format!("remove {} and run `{convert} --file-count {count}`", folder.display());
        Err(PipelineError::damaged(&folder, format!("holds {there} files, and {count} are asked for")).and(advice))
    }

    /// Bytes of the files of a format.
    ///
    /// # Errors
    /// As [`ArrayDataset::store_files`].
    pub fn stored_bytes(&self, format: ArrayFormat) -> Result<u64, PipelineError> {
        Ok(self.files(format)?.iter().map(|(_, file)| file.file.bytes).sum())
    }

    fn files(&self, format: ArrayFormat) -> Result<Vec<(PathBuf, ArrayFile)>, PipelineError> {
        if format == ArrayFormat::H5ad {
            return self.present(&self.folder, &self.manifest.files).map_err(|e| self.advise(e));
        }
        let Some(manifest) = self.converted(format)? else {
            let command = command("convert", &self.manifest.data, Some(format.name()));
            return Err(PipelineError::NotConverted { path: self.folder.clone(), store: format.name(), command });
        };
        self.present(&self.store_folder(format), &manifest.files).map_err(|e| self.advise(e))
    }

    /// What is there of a format that was made from the base files; `None` if nothing is.
    ///
    /// # Errors
    /// Its manifest is damaged, it was made from other base files, or a file is missing or of another length than the
    /// manifest says.
    pub fn converted(&self, format: ArrayFormat) -> Result<Option<ArrayStoreManifest>, PipelineError> {
        self.complete(format).map_err(|e| self.advise(e))
    }

    /// As [`ArrayDataset::converted`], of `count` files where that is not 0.
    ///
    /// # Errors
    /// As [`ArrayDataset::converted`]; there are more or fewer files.
    pub fn converted_of(&self, format: ArrayFormat, count: u32) -> Result<Option<ArrayStoreManifest>, PipelineError> {
        let found = self.converted(format)?;
        if let Some(manifest) = &found {
            self.are_so_many(format, manifest.files.len(), count)?;
        }
        Ok(found)
    }

    fn complete(&self, format: ArrayFormat) -> Result<Option<ArrayStoreManifest>, PipelineError> {
        let folder = self.store_folder(format);
        let Some(manifest) = ArrayStoreManifest::load(&folder, format)? else { return Ok(None) };
        if manifest.base_blake3 != self.manifest.base_blake3() {
            return Err(PipelineError::damaged(&folder, "was made from other base files than lie beside it"));
        }
        self.present(&folder, &manifest.files)?;
        Ok(Some(manifest))
    }

    /// Paths of files in a folder, if all are there and as long as they should be.
    fn present(&self, folder: &Path, files: &[ArrayFile]) -> Result<Vec<(PathBuf, ArrayFile)>, PipelineError> {
        let present = |file: &ArrayFile| {
            let path = folder.join(&file.file.path);
            let bytes = match bytes_of(&path) {
                Err(PipelineError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    return Err(PipelineError::damaged(&path, "is missing"));
                }
                other => other?.0,
            };
            if bytes != file.file.bytes {
                let reason = format!("{bytes} bytes, but the manifest says {}", file.file.bytes);
                return Err(PipelineError::damaged(&path, reason));
            }
            Ok((path, file.clone()))
        };
        files.iter().map(present).collect()
    }

    /// Whether there is nothing left to do before rows of this format can be read.
    pub fn has(&self, format: ArrayFormat) -> bool {
        self.files(format).is_ok()
    }

    /// A problem of this data set with what can be done about it.
    pub(super) fn advise(&self, problem: PipelineError) -> PipelineError {
        problem.advise(&self.folder, &self.manifest.data)
    }
}

/// Name of the n-th file, from 0.
pub(super) fn part(index: u64, extension: &str) -> String {
    format!("part-{index:04}.{extension}")
}

/// Path of the n-th base file inside a data set.
pub(super) fn base_file(index: u64) -> String {
    format!("{FILES_FOLDER}/{}", part(index, ArrayFormat::H5ad.extension()))
}
