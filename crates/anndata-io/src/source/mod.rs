//! Byte sources: local files, folders of files, and remote objects, read at offsets by any number of threads at once.
//!
//! Invariant: the bytes of a batch are those of the file that was opened. A file that is rewritten meanwhile is detected by
//! `ByteSource::unchanged`, which a reader calls after each batch.

pub mod byte_source;
pub mod coalesce;
pub mod folder;
pub mod local_file;
pub mod remote;

/// Why a file, folder or object is refused although the system or server has no error for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("this is no regular file")]
    NotRegular,
    #[error("is no folder")]
    NotFolder,
    #[error("there is no such object")]
    Absent,
    #[error("names {key:?}, which is no place in it")]
    KeyOutside { key: String },
    #[error("is cut short")]
    CutShort,
    #[error("has no bytes")]
    Empty,
    #[error("has more than {max_bytes} bytes")]
    TooLong { max_bytes: u64 },
    #[error("has too many bytes")]
    TooManyBytes,
    #[error("has no {len} bytes at address {offset} of its files")]
    BeyondEnd { offset: u64, len: usize },
    #[error("belongs to another user, who could change what is kept in it")]
    ForeignCache,
}
