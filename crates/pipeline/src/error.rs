use std::path::{Path, PathBuf};

use expctl_record::StoreKind;

/// What can go wrong between the store and the batch; every variant names the file or record.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The operating system refused to read or write.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// LMDB refused.
    #[error("LMDB store {}: {reason}", path.display())]
    Lmdb {
        /// Folder of the store.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file does not have the documented content.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A record of the store does not have the documented content.
    #[error("record {index} of {}: {reason}", store.display())]
    Record {
        /// The store.
        store: PathBuf,
        /// Key of the record.
        index: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A data set was asked for that has not been built.
    #[error("data set {} has not been built", path.display())]
    NotBuilt {
        /// Its folder.
        path: PathBuf,
    },
    /// A store was asked for that the data set has not been converted to.
    #[error("data set {} has no {} store: `{command}` makes it", path.display(), kind.name())]
    NotConverted {
        /// Folder of the data set.
        path: PathBuf,
        /// The store.
        kind: StoreKind,
        /// What makes it.
        command: String,
    },
    /// A store is another one than was opened.
    #[error("store {} was rewritten while it was read", path.display())]
    Rewritten {
        /// Its folder.
        path: PathBuf,
    },
    /// Another process is at the same work.
    #[error("another process is building {}", path.display())]
    Busy {
        /// The folder that it makes.
        path: PathBuf,
    },
    /// Something was asked for that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// The work was stopped from outside before its end.
    #[error("stopped")]
    Stopped,
}

impl PipelineError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}
