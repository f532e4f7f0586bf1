use std::fs::File;
use std::path::{Path, PathBuf};

use crate::checkpoint::sync_folder;
use crate::{AttemptDir, RecordError};

/// What a training run leaves, `<trial>/weights/`. It stays when the checkpoints are removed.
///
/// Invariant: a file under its final name is complete and on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightsDir(PathBuf);

impl WeightsDir {
    /// Where the attempts of this one's trial leave it.
    pub fn of(attempt: &AttemptDir) -> Self {
        Self(attempt.path().parent().unwrap_or(Path::new(".")).join("weights"))
    }

    /// `best.safetensors`: the model after the epoch that validation found best.
    pub fn best_path(&self) -> PathBuf {
        self.0.join("best.safetensors")
    }

    /// `last.safetensors`: the state of training after the last epoch that ended.
    pub fn last_path(&self) -> PathBuf {
        self.0.join("last.safetensors")
    }

    /// Replace the file `path` of this folder by what `write` writes to the path that it gets.
    ///
    /// # Errors
    /// A file cannot be written; the old one is still there then.
    pub fn replace(
        &self,
        path: &Path,
        write: impl FnOnce(&Path) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        use std::os::unix::fs::PermissionsExt;
        std::fs::create_dir_all(&self.0).map_err(RecordError::io("create", &self.0))?;
        // Readable by all before the umask, like the rest of the ledger.
        let unfinished = tempfile::Builder::new()
            .prefix(".writing-")
            .permissions(std::fs::Permissions::from_mode(0o777))
            .tempdir_in(&self.0)
            .map_err(RecordError::io("create", &self.0))?;
        let file = unfinished.path().join("file");
        write(&file)?;
        File::open(&file).and_then(|f| f.sync_all()).map_err(RecordError::io("write", &file))?;
        std::fs::rename(&file, path).map_err(RecordError::io("write", path))?;
        sync_folder(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobDir;

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = JobDir::new(dir.path()).next_attempt("t").unwrap();
        let weights = WeightsDir::of(&attempt);
        let path = weights.best_path();
        let write = |text: &'static str| {
            weights.replace(&path, move |to| std::fs::write(to, text).map_err(RecordError::io("write", to)))
        };
        write("old").unwrap();
        let half = weights.replace(&path, |to| {
            std::fs::write(to, "half").map_err(RecordError::io("write", to))?;
            Err(RecordError::Checkpoint { path: to.to_owned(), reason: "full".to_owned() })
        });
        assert!(half.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(dir.path().join("t/weights")).unwrap().count(), 1, "nothing unfinished stays");
    }
}
