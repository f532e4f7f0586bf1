use std::path::{Path, PathBuf};

use loader_core::LoaderError;

use crate::OptionsError;

/// What can go wrong between a record and its batch. Every variant names the file or record where there is one.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
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
    /// There is no store in a folder.
    #[error("there is no LMDB store in {}", path.display())]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// A store is damaged, or LMDB refused to write to it.
    #[error("LMDB store {}: {reason}", path.display())]
    Lmdb {
        /// Folder of the store.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file of a store was written to, replaced or removed since it was opened.
    #[error("store {} was rewritten while it was read", path.display())]
    Rewritten {
        /// Folder of the store.
        path: PathBuf,
    },
    /// A record does not have the documented content.
    #[error("record {index} of {}: {reason}", store.display())]
    Record {
        /// The store.
        store: PathBuf,
        /// Key of the record.
        index: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The records of a store do not hold the masks that are asked for.
    #[error("{}: {reason}", store.display())]
    NoMasks {
        /// The store.
        store: PathBuf,
        /// Which masks are missing.
        reason: String,
    },
    /// An edge type is to be merged that the graph does not have.
    #[error("the graph has no edge type `{name}` to merge")]
    UnknownEdgeType {
        /// The edge type.
        name: String,
    },
    /// Masks of single genes take more memory than they may.
    #[error(
        "a mask for each of {genes} genes over {edges} edges takes {:.1} MiB in each rank, and may take {:.1} MiB",
        mib(*needed),
        mib(*available)
    )]
    GeneMasksTooLarge {
        /// Genes of the graph.
        genes: usize,
        /// Edges of all types.
        edges: usize,
        /// Bytes that the masks take.
        needed: u64,
        /// Bytes that they may take.
        available: u64,
    },
    /// Options contradict each other.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The loader cannot deliver a batch.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// An error of a caller's own [`crate::Records`].
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl GraphError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
