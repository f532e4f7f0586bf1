use std::path::{Path, PathBuf};

use super::ArrayFile;
use super::built::part;
use crate::PipelineError;
use crate::dataset::files::bytes_of;

/// Folder of what is known of files that a stopped run has finished.
const FINISHED: &str = ".finished";

/// The files that runs have finished so far, in a folder under construction.
pub(super) struct Finished {
    folder: PathBuf,
}

impl Finished {
    pub(super) fn open(folder: &Path) -> Result<Self, PipelineError> {
        let notes = folder.join(FINISHED);
        std::fs::create_dir_all(&notes).map_err(PipelineError::io("create", &notes))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// What is known of the n-th file, which is to have this path, if it is there.
    pub(super) fn get(&self, index: u64, path: &str) -> Option<ArrayFile> {
        let file: ArrayFile = serde_json::from_slice(&std::fs::read(self.note(index)).ok()?).ok()?;
        let (there, _) = bytes_of(&self.folder.join(path)).ok()?;
        (there == file.file.bytes && file.file.path == path).then_some(file)
    }

    /// A file is finished.
    pub(super) fn put(&self, index: u64, file: &ArrayFile) -> Result<(), PipelineError> {
        let path = self.note(index);
        expctl_record::write_json(&path, file).map_err(|e| PipelineError::damaged(&path, e))
    }

    /// Forget them: everything is finished.
    pub(super) fn remove(self) -> Result<(), PipelineError> {
        let notes = self.folder.join(FINISHED);
        std::fs::remove_dir_all(&notes).map_err(PipelineError::io("remove", &notes))
    }

    fn note(&self, index: u64) -> PathBuf {
        self.folder.join(FINISHED).join(part(index, "json"))
    }
}
