//! The error of all stores and writers.

use std::path::{Path, PathBuf};

/// An error of a store, a reader or a writer. A variant that is about a file or an object names it.
#[derive(Debug, thiserror::Error)]
pub enum AnnDataError {
    /// An operation on a file failed in the operating system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, such as "read".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The content of a file contradicts its format, or this crate does not support it.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        reason: String,
    },
    /// A file was written to, replaced or removed after it was opened.
    #[error("store {} was rewritten while it was read", path.display())]
    Rewritten {
        /// The file or folder.
        path: PathBuf,
    },
    /// An object of a server cannot be read.
    #[error("{url}: {reason}")]
    Remote {
        /// URL of the object.
        url: String,
        /// The answer of the server, or why there was none.
        reason: String,
    },
    /// A CSC matrix is too large to be transposed in memory.
    #[error(
        "{}: is stored by columns (CSC); to read rows of it, {bytes} bytes of memory would be needed, and {available} are left of \
         what all files together may take; write it by rows in Python: `adata.X = adata.X.tocsr()`, then `adata.write_h5ad(…)`",
        path.display()
    )]
    CscTooLarge {
        /// The file.
        path: PathBuf,
        /// Size of the transposed matrix in bytes.
        bytes: u64,
        /// Bytes of memory that all transposed matrices may still take.
        available: u64,
    },
    /// The rows of a store do not fit into memory.
    #[error("reading {rows} rows of {name} into memory needs {} GiB at least, {} GiB are free", gib(*needed), gib(*free))]
    OutOfMemory {
        /// Name of the store.
        name: String,
        /// Number of its rows.
        rows: u64,
        /// Lower bound of the size of its rows in bytes.
        needed: u64,
        /// Bytes of memory that are free.
        free: u64,
    },
    /// A request that the store cannot fulfil.
    #[error("{0}")]
    Invalid(String),
}

/// Formats bytes as GiB with two decimals.
fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 30))
}

impl AnnDataError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// The error for a panic of a thread; `what` says which thread, and what it worked on.
    pub(crate) fn panicked(what: &str, panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Invalid(format!("{what}: {}", text.unwrap_or("unknown reason")))
    }

    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}
