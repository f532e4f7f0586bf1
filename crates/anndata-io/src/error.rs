use std::path::{Path, PathBuf};

/// What can go wrong between a file and its rows. Every variant names the file or object where there is one.
#[derive(Debug, thiserror::Error)]
pub enum AnnDataError {
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
    /// A file does not have the content that its format asks for.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file was written to, replaced or removed since it was opened.
    #[error("store {} was rewritten while it was read", path.display())]
    Rewritten {
        /// The file or folder.
        path: PathBuf,
    },
    /// An object of a server cannot be read.
    #[error("{url}: {reason}")]
    Remote {
        /// Where the object is.
        url: String,
        /// What the server said, or what came instead of an answer.
        reason: String,
    },
    /// A matrix that is stored by columns is too large to be transposed in memory.
    #[error(
        "{}: is stored by columns (CSC); to read rows of it, {bytes} bytes of memory would be needed, and {available} are left of \
         what all files together may take; write it by rows in Python: `adata.X = adata.X.tocsr()`, then `adata.write_h5ad(…)`",
        path.display()
    )]
    CscTooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes of memory that the transposed matrix takes.
        bytes: u64,
        /// Bytes of memory that it may take.
        available: u64,
    },
    /// All rows of a store do not fit into memory.
    #[error("reading {rows} rows of {name} into memory needs {} GiB at least, {} GiB are free", gib(*needed), gib(*free))]
    OutOfMemory {
        /// The store.
        name: String,
        /// Its number of rows.
        rows: u64,
        /// Bytes of memory that its rows take at least.
        needed: u64,
        /// Bytes of memory that they may take.
        free: u64,
    },
    /// Something was asked for that cannot be.
    #[error("{0}")]
    Invalid(String),
}

/// Bytes as GiB, two digits behind the point.
fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 30))
}

impl AnnDataError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
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
