use std::path::{Path, PathBuf};

/// What can go wrong with a file of the ledger; every variant names the file.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The operating system refused to read or write.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done: "read", "write", "create".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A JSON file does not have the documented shape.
    #[error("{} is not a valid record: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A file was written by a newer expctl.
    #[error("{} has schema version {found}; this expctl reads up to version {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
    /// A checkpoint is not one that this run can go on from.
    #[error("cannot go on from the checkpoint {}: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A parquet file cannot be read or written, or lacks a documented column.
    #[error("{} is not a valid table: {reason}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl RecordError {
    /// Whether the ledger could not be written to (a full disk, a quota, a network file system that is away): the same write
    /// succeeds once there is room again.
    pub fn is_storage(&self) -> bool {
        matches!(self, Self::Io { action, .. } if *action != "read")
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn parquet(path: &Path, reason: impl ToString) -> Self {
        Self::Parquet { path: path.to_owned(), reason: reason.to_string() }
    }
}
