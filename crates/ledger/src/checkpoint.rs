//! Files that outlive an attempt of a trial: checkpoints, which the next attempt goes on from, and weights.

use std::fs::File;
use std::path::{Path, PathBuf};

use atomic_file::Staged;
use expctl_settings::Trial;
use serde::{Deserialize, Serialize};

use crate::layout::{known_schema, read_json};
use crate::{AttemptDir, CheckpointMismatch, LedgerError, write_json};

/// Version of `checkpoint.json`.
pub const CHECKPOINT_SCHEMA_VERSION: u32 = 1;

/// Files of a checkpoint.
const STATE_FILE: &str = "state.safetensors";
const RECORD_FILE: &str = "checkpoint.json";

/// `checkpoint.json`: the run that a checkpoint belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// [`CHECKPOINT_SCHEMA_VERSION`].
    pub schema: u32,
    /// Trial of the run.
    pub trial: String,
    /// Number of ranks of the run.
    pub world_size: u32,
    /// The first step that is not in it.
    pub next_step: u64,
    /// Attempt that wrote it.
    pub attempt: u32,
    /// blake3 of the state file, in hexadecimal.
    pub digest: String,
    /// Version of expctl-worker that wrote it.
    pub worker_version: String,
    /// Version of its libtorch.
    pub libtorch_version: String,
}

/// The checkpoints of a trial, `<trial>/checkpoint/step-<next step>/`.
///
/// Invariant: a folder under its final name is complete and on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointDir(PathBuf);

impl CheckpointDir {
    /// The checkpoints of the trial that an attempt belongs to.
    pub fn new(attempt: &AttemptDir) -> Self {
        Self(attempt.path().parent().unwrap_or(Path::new(".")).join("checkpoint"))
    }

    /// Next step of the newest complete checkpoint. `None`: there is no checkpoint.
    pub fn newest(&self) -> Result<Option<u64>, LedgerError> {
        Ok(self.entries()?.iter().filter_map(|path| step_of_folder(path)).max())
    }

    /// The state file of a checkpoint.
    pub fn state_path(&self, next_step: u64) -> PathBuf {
        self.folder(next_step).join(STATE_FILE)
    }

    /// `checkpoint.json` of a checkpoint.
    pub fn record_path(&self, next_step: u64) -> PathBuf {
        self.folder(next_step).join(RECORD_FILE)
    }

    /// Write a checkpoint and remove the older ones. `write_state` writes the state file to the path that it gets; the digest of `record` is
    /// filled in.
    ///
    /// # Errors
    /// A file cannot be written; the older checkpoints still exist then.
    pub fn save(
        &self,
        mut record: CheckpointRecord,
        write_state: impl FnOnce(&Path) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        let folder = self.folder(record.next_step);
        let staged = Staged::new(&folder)?;
        std::fs::create_dir(staged.path()).map_err(LedgerError::io("create", staged.path()))?;
        let state = staged.path().join(STATE_FILE);
        write_state(&state)?;
        record.digest = digest(&state)?;
        write_json(&staged.path().join(RECORD_FILE), &record)?;
        if folder.exists() {
            // An earlier attempt came as far, from the same start: its state is the same.
            return Ok(());
        }
        staged.publish()?;
        for other in self.entries()?.iter().filter(|path| **path != folder) {
            // A folder that stays costs space only: the newest one counts.
            let _ = std::fs::remove_dir_all(other);
        }
        Ok(())
    }

    /// Read `checkpoint.json` and check that the checkpoint is of `trial` and its state file whole.
    ///
    /// # Errors
    /// It is of another trial or number of ranks, damaged, or of a newer version.
    pub fn check(&self, next_step: u64, trial: &Trial) -> Result<CheckpointRecord, LedgerError> {
        let path = self.record_path(next_step);
        let record: CheckpointRecord = read_json(&path)?;
        known_schema(&path, record.schema, CHECKPOINT_SCHEMA_VERSION)?;
        let state = self.state_path(next_step);
        let (found, expected) = (record.world_size, trial.settings.launch.ranks);
        let mismatch = if record.trial != trial.id {
            CheckpointMismatch::Trial { found: record.trial, expected: trial.id.clone() }
        } else if found != expected {
            CheckpointMismatch::Ranks { found, expected }
        } else if record.next_step != next_step {
            CheckpointMismatch::Step { found: record.next_step, expected: next_step }
        } else if digest(&state)? != record.digest {
            return Err(LedgerError::CheckpointMismatch { path: state, mismatch: CheckpointMismatch::Digest });
        } else {
            return Ok(record);
        };
        Err(LedgerError::CheckpointMismatch { path, mismatch })
    }

    /// Remove all checkpoints: the trial is done, and another attempt starts from the beginning.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn clear(&self) -> Result<(), LedgerError> {
        match std::fs::remove_dir_all(&self.0) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(LedgerError::io("remove", &self.0)(e)),
            _ => Ok(()),
        }
    }

    fn folder(&self, next_step: u64) -> PathBuf {
        self.0.join(format!("step-{next_step}"))
    }

    fn entries(&self) -> Result<Vec<PathBuf>, LedgerError> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(LedgerError::io("read", &self.0)(e)),
        };
        entries.map(|entry| Ok(entry.map_err(LedgerError::io("read", &self.0))?.path())).collect()
    }
}

fn step_of_folder(folder: &Path) -> Option<u64> {
    folder.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

fn digest(path: &Path) -> Result<String, LedgerError> {
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).map_err(LedgerError::io("read", path))?;
    hasher.update_reader(file).map_err(LedgerError::io("read", path))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// The weights that a training run leaves, `<trial>/weights/`. They stay when the checkpoints are removed.
///
/// Invariant: a file under its final name is complete and on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightsDir(PathBuf);

impl WeightsDir {
    /// The weights of the trial that an attempt belongs to.
    pub fn new(attempt: &AttemptDir) -> Self {
        Self(attempt.path().parent().unwrap_or(Path::new(".")).join("weights"))
    }

    /// `best.safetensors`: the model after the epoch with the best validation.
    pub fn best_path(&self) -> PathBuf {
        self.0.join("best.safetensors")
    }

    /// `last.safetensors`: the state of training after the last epoch that ended.
    pub fn last_path(&self) -> PathBuf {
        self.0.join("last.safetensors")
    }

    /// Replace the file `path` of this folder. `write` writes the new content to the path that it gets.
    ///
    /// # Errors
    /// The file cannot be written; the old one is unchanged then.
    pub fn replace(
        &self,
        path: &Path,
        write: impl FnOnce(&Path) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        let staged = Staged::new(path)?;
        write(staged.path())?;
        Ok(staged.publish()?)
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
        let weights = WeightsDir::new(&attempt);
        let path = weights.best_path();
        let write = |text: &'static str| {
            weights.replace(&path, move |to| std::fs::write(to, text).map_err(LedgerError::io("write", to)))
        };
        write("old").unwrap();
        let half = weights.replace(&path, |to| {
            std::fs::write(to, "half").map_err(LedgerError::io("write", to))?;
            Err(LedgerError::Checkpoint { path: to.to_owned(), reason: "full".to_owned() })
        });
        assert!(half.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(dir.path().join("t/weights")).unwrap().count(), 1, "nothing unfinished stays");
    }
}
