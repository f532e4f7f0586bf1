use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::local::LocalFile;
use super::remote::RemoteObject;
use crate::AnnDataError;

/// A file, wherever it is.
#[derive(Debug)]
pub(super) enum Part {
    /// Of this machine.
    Local(LocalPart),
    /// Of a server.
    Remote(Arc<RemoteObject>),
}

/// A file of this machine.
#[derive(Debug)]
pub(super) struct LocalPart {
    pub(super) file: LocalFile,
    /// It was read since somebody looked whether it is unchanged.
    pub(super) read: AtomicBool,
}

impl Part {
    /// Open the file at a path, or the object at a URL.
    pub(super) fn open(path: &Path) -> Result<Self, AnnDataError> {
        match url_of(path) {
            Some(url) => Ok(Self::Remote(RemoteObject::open(url)?)),
            None => Ok(Self::Local(LocalPart { file: LocalFile::open(path)?, read: AtomicBool::new(false) })),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Local(part) => part.file.bytes(),
            Self::Remote(object) => object.bytes(),
        }
    }

    /// An error if what was read of it may be of something else than was opened.
    pub(super) fn unchanged(&self) -> Result<(), AnnDataError> {
        match self {
            Self::Local(part) => part.file.unchanged(),
            Self::Remote(object) => object.unchanged(),
        }
    }

    /// An error if what others open at its path may be something else. Whoever opens a remote object that is open reads the
    /// same version of it.
    pub(super) fn at_path(&self) -> Result<(), AnnDataError> {
        match self {
            Self::Local(part) => part.file.at_path(),
            Self::Remote(object) => object.unchanged(),
        }
    }
}

/// Whether a file is named by a URL: an object of S3, of Google Cloud Storage, or of a server.
fn is_url(name: &str) -> bool {
    ["s3://", "gs://", "http://", "https://"].iter().any(|scheme| name.starts_with(scheme))
}

/// The URL that a path is, if it is one.
pub(crate) fn url_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| is_url(text))
}
