//! [`SnapshotError`]: why the code of a job cannot be copied, read back or unpacked.

use std::path::{Path, PathBuf};

use expctl_ledger::LedgerError;

use crate::exit::{Exit, Failure};

/// Why a snapshot cannot be taken, read or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The system refused to read or write.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The refused action as a verb: "read", "write", "create", "list".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// `snapshot.json` cannot be read or written.
    #[error(transparent)]
    Record(#[from] LedgerError),
    /// A line of `.expctlignore` is no pattern.
    #[error("{}:{line}: `{pattern}` is no pattern: {reason}", path.display())]
    Pattern {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The line.
        pattern: String,
        /// Why.
        reason: String,
    },
    /// An object is not in the store.
    #[error("the code of the job is gone: there is no {}", path.display())]
    NoObject {
        /// Where it would be.
        path: PathBuf,
    },
    /// An object is not what its name says.
    #[error("the code of the job is damaged: {} has another content than when it was written", path.display())]
    Damaged {
        /// The object.
        path: PathBuf,
    },
}

impl SnapshotError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        match &error {
            SnapshotError::Pattern { .. } => {
                Self::new(Exit::Config, &error).hint("a line is a name or a path with *, ?, [a-z] and **, without !")
            }
            SnapshotError::NoObject { .. } => Self::new(Exit::Incomplete, &error).hint(
                "submitting the same file again stores it; else the folder of objects can be restored from a backup",
            ),
            SnapshotError::Damaged { .. } => Self::new(Exit::Incomplete, &error)
                .hint("what is damaged was removed, and submitting the same file again stores it"),
            SnapshotError::Io { action, .. } if *action == "write" || *action == "create" => {
                Self::new(Exit::Incomplete, &error).hint("EXPCTL_RUNS moves the ledger to another folder")
            }
            _ => Self::new(Exit::Incomplete, &error),
        }
    }
}
