use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{AttemptDir, RecordError, Trial, write_json};

/// Version of `checkpoint.json`.
pub const CHECKPOINT_SCHEMA_VERSION: u32 = 1;

/// Start of the name of a folder that is not complete yet.
const UNFINISHED: &str = ".writing-";

/// `checkpoint.json`: what a checkpoint belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// [`CHECKPOINT_SCHEMA_VERSION`].
    pub schema: u32,
    /// Trial that it is of.
    pub trial: String,
    /// Ranks of the run that wrote it.
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
    /// Where the attempts of this one's trial keep their checkpoints.
    pub fn of(attempt: &AttemptDir) -> Self {
        Self(attempt.path().parent().unwrap_or(Path::new(".")).join("checkpoint"))
    }

    /// Next step of the newest complete checkpoint; none if there is no checkpoint.
    pub fn newest(&self) -> Result<Option<u64>, RecordError> {
        Ok(self.entries()?.iter().filter_map(|path| step_of(path)).max())
    }

    /// The state file of a checkpoint.
    pub fn state_path(&self, next_step: u64) -> PathBuf {
        self.folder(next_step).join("state.safetensors")
    }

    /// `checkpoint.json` of a checkpoint.
    pub fn record_path(&self, next_step: u64) -> PathBuf {
        self.folder(next_step).join("checkpoint.json")
    }

    /// Keep what `write_state` writes to the path that it gets, and remove the older checkpoints. The digest of `record`
    /// is filled in.
    ///
    /// # Errors
    /// A file cannot be written; the older checkpoints are still there then.
    pub fn save(
        &self,
        mut record: CheckpointRecord,
        write_state: impl FnOnce(&Path) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        use std::os::unix::fs::PermissionsExt;
        let folder = self.folder(record.next_step);
        std::fs::create_dir_all(&self.0).map_err(RecordError::io("create", &self.0))?;
        // Readable by all before the umask, like the rest of the ledger.
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .permissions(std::fs::Permissions::from_mode(0o777))
            .tempdir_in(&self.0)
            .map_err(RecordError::io("create", &self.0))?;
        let state = unfinished.path().join("state.safetensors");
        write_state(&state)?;
        File::open(&state).and_then(|f| f.sync_all()).map_err(RecordError::io("write", &state))?;
        record.digest = digest(&state)?;
        write_json(&unfinished.path().join("checkpoint.json"), &record)?;
        sync_folder(unfinished.path())?;
        if folder.exists() {
            // An earlier attempt came as far, from the same start: its state is the same.
            return Ok(());
        }
        std::fs::rename(unfinished.path(), &folder).map_err(RecordError::io("write", &folder))?;
        sync_folder(&self.0)?;
        for other in self.entries()?.iter().filter(|path| **path != folder) {
            // What stays costs space only: the newest one counts.
            let _ = std::fs::remove_dir_all(other);
        }
        Ok(())
    }

    /// Read `checkpoint.json` and check that it is of `trial` and its state file whole.
    ///
    /// # Errors
    /// It is of another trial or number of ranks, damaged, or of a newer version.
    pub fn check(&self, next_step: u64, trial: &Trial) -> Result<CheckpointRecord, RecordError> {
        let path = self.record_path(next_step);
        let text = std::fs::read(&path).map_err(RecordError::io("read", &path))?;
        let record: CheckpointRecord =
            serde_json::from_slice(&text).map_err(|source| RecordError::Json { path: path.clone(), source })?;
        let refuse = |path: &Path, reason: String| Err(RecordError::Checkpoint { path: path.to_owned(), reason });
        if record.schema > CHECKPOINT_SCHEMA_VERSION {
            return Err(RecordError::Newer { path, found: record.schema, known: CHECKPOINT_SCHEMA_VERSION });
        }
        if record.trial != trial.id {
            return refuse(&path, format!("it is of trial {}, this is trial {}", record.trial, trial.id));
        }
        let ranks = trial.settings.launch.ranks;
        if record.world_size != ranks {
            return refuse(&path, format!("it is of a run on {} rank(s), this one has {ranks}", record.world_size));
        }
        if record.next_step != next_step {
            return refuse(&path, format!("it is of step {}, its folder of {next_step}", record.next_step));
        }
        let state = self.state_path(next_step);
        if digest(&state)? != record.digest {
            return refuse(&state, "it is damaged: its digest is not the one in checkpoint.json".to_owned());
        }
        Ok(record)
    }

    /// Remove all checkpoints: the trial is done, and another attempt starts anew.
    pub fn clear(&self) -> Result<(), RecordError> {
        match std::fs::remove_dir_all(&self.0) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(RecordError::io("remove", &self.0)(e)),
            _ => Ok(()),
        }
    }

    fn folder(&self, next_step: u64) -> PathBuf {
        self.0.join(format!("step-{next_step}"))
    }

    fn entries(&self) -> Result<Vec<PathBuf>, RecordError> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(RecordError::io("read", &self.0)(e)),
        };
        entries.map(|entry| Ok(entry.map_err(RecordError::io("read", &self.0))?.path())).collect()
    }
}

fn step_of(folder: &Path) -> Option<u64> {
    folder.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

fn digest(path: &Path) -> Result<String, RecordError> {
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).map_err(RecordError::io("read", path))?;
    hasher.update_reader(file).map_err(RecordError::io("read", path))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// A name is on disk only when its folder is.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), RecordError> {
    File::open(folder).and_then(|f| f.sync_all()).map_err(RecordError::io("write", folder))
}
