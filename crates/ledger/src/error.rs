//! `LedgerError` is the error of every function of this crate that touches a file; `CheckpointMismatch` and `TableError` give the details of two of
//! its variants.

use std::num::ParseIntError;
use std::path::{Path, PathBuf};

use atomic_file::AtomicFileError;
use host_metrics::PageCacheError;
use parquet::errors::ParquetError;

/// Why a file of the ledger cannot be read or written; every variant names the file.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The operating system refused to read or write.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The refused action as a verb: "read", "write", "create", "open", "lock", …
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
        /// Position and reason.
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
    /// A checkpoint is of another run, or damaged.
    #[error("cannot go on from the checkpoint {}: {mismatch}", path.display())]
    CheckpointMismatch {
        /// The file.
        path: PathBuf,
        /// The mismatch.
        mismatch: CheckpointMismatch,
    },
    /// The state in a checkpoint does not fit the run.
    #[error("cannot go on from the checkpoint {}: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// The reason, from the reader of the state.
        reason: String,
    },
    /// A parquet file cannot be read or written, or lacks a documented column or step.
    #[error("{} is not a valid table: {source}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: TableError,
    },
}

impl LedgerError {
    /// Whether the permissions of a file or folder refused to let it be read.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
    }
}

/// Why a checkpoint is not one that a run can go on from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointMismatch {
    /// It is of another trial.
    #[error("it is of trial {found}, this is trial {expected}")]
    Trial {
        /// Trial of the checkpoint.
        found: String,
        /// Trial of the run.
        expected: String,
    },
    /// The run that wrote it had another number of ranks.
    #[error("it is of a run on {found} rank(s), this one has {expected}")]
    Ranks {
        /// Ranks of the run that wrote it.
        found: u32,
        /// Ranks of this run.
        expected: u32,
    },
    /// Its folder has the name of another step.
    #[error("it is of step {found}, its folder of {expected}")]
    Step {
        /// Step of the checkpoint.
        found: u64,
        /// Step of its folder.
        expected: u64,
    },
    /// Its state file is damaged.
    #[error("it is damaged: its digest is not the one in checkpoint.json")]
    Digest,
}

/// Why a table is not valid.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It is not a readable parquet file, or cannot be encoded.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// Its columns are of another version.
    #[error("schema version {found}; this expctl reads version {known}")]
    Schema {
        /// Version of the file.
        found: u32,
        /// Version that can be read.
        known: u32,
    },
    /// An entry of its metadata is missing.
    #[error("metadata expctl.{key} is missing")]
    NoEntry {
        /// The entry.
        key: &'static str,
    },
    /// An entry of its metadata is not a number.
    #[error("metadata expctl.{key}: {source}")]
    NoNumber {
        /// The entry.
        key: &'static str,
        /// The reason.
        source: ParseIntError,
    },
    /// A column is missing.
    #[error("column {name} is missing")]
    NoColumn {
        /// The column.
        name: String,
    },
    /// Steps between those of this table and those of the next attempt are missing.
    #[error("steps {first} to {last} of rank {rank} are in no attempt")]
    NoSteps {
        /// Rank of the table.
        rank: u32,
        /// First missing step.
        first: u64,
        /// Last missing step.
        last: u64,
    },
}

impl LedgerError {
    /// Whether the ledger could not be written to (a full disk, a quota, a network file system that is unreachable). The same write
    /// succeeds once there is room again.
    pub fn is_storage(&self) -> bool {
        matches!(self, Self::Io { action, .. } if *action != "read")
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Json { path: path.to_owned(), source }
    }

    pub(crate) fn table(path: &Path, source: impl Into<TableError>) -> Self {
        Self::Table { path: path.to_owned(), source: source.into() }
    }
}

impl From<AtomicFileError> for LedgerError {
    fn from(error: AtomicFileError) -> Self {
        match error {
            AtomicFileError::Create { path, source } => Self::Io { action: "create", path, source },
            AtomicFileError::Write { path, source } => Self::Io { action: "write", path, source },
        }
    }
}

impl From<PageCacheError> for LedgerError {
    fn from(PageCacheError { path, source }: PageCacheError) -> Self {
        Self::Io { action: "read", path, source }
    }
}
