use std::path::{Path, PathBuf};

use anndata_io::AnnDataError;

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
    #[error("data set {} has no {store} store: `{command}` makes it", path.display())]
    NotConverted {
        /// Folder of the data set.
        path: PathBuf,
        /// The store, or the format of the files.
        store: &'static str,
        /// What makes it.
        command: String,
    },
    /// A store is not the one that was opened any more: its file was written to, replaced or removed.
    #[error("store {} was rewritten while it was read", path.display())]
    Rewritten {
        /// Its folder.
        path: PathBuf,
    },
    /// An object of a server cannot be read.
    #[error("{url}: {reason}")]
    Remote {
        /// Where it is.
        url: String,
        /// What the server said, or what came instead of an answer.
        reason: String,
    },
    /// Another process is at the same work.
    #[error("another process is building {}", path.display())]
    Busy {
        /// The folder that it makes.
        path: PathBuf,
    },
    /// A problem that something can be done about.
    #[error("{problem}; {advice}")]
    Advised {
        /// What is wrong.
        problem: Box<PipelineError>,
        /// What to do, or what was done.
        advice: String,
    },
    /// A file of an array cannot be read or written.
    #[error(transparent)]
    AnnData(#[from] AnnDataError),
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

    /// What is wrong, without what to do about it.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Advised { problem, .. } => problem.cause(),
            other => other,
        }
    }

    /// What to do about it, if that is known.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::Advised { advice, .. } => Some(advice),
            _ => None,
        }
    }

    /// What a thread's panic says; `what` is what panicked, and at what.
    pub(crate) fn panicked(what: &str, panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Invalid(format!("{what}: {}", text.unwrap_or("unknown reason")))
    }

    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}
