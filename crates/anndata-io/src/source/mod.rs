//! Bytes that stores are made of.
//!
//! Invariants: bytes are read at positions, by any number of threads at a time; what was read is what was opened, or an error
//! says that it is not, which `ByteSource::unchanged` has to be asked for after a batch was read.

pub mod byte_source;
pub mod coalesce;
pub mod folder;
pub mod local_file;
pub mod remote;

/// Why bytes of a file, a folder or an object cannot be read, although the system or the server does not say so.
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
