use std::path::Path;

use hdf5_metno::File;

use super::column_values::Most;
use super::register::register;
use super::{hdf5_source, library};
use crate::AnnDataError;
use crate::source::Source;

/// No filter of HDF5 makes much more than this of a byte (deflate's most is 1,032); small arrays are let through whatever they
/// are made of.
const MOST_RATIO: u64 = 1_100;
const SMALL: u64 = 64 << 20;

/// A file whose frames are read, open for as long as that takes.
#[derive(Debug)]
pub(super) struct FrameFile {
    source: Source,
    file: File,
}

impl FrameFile {
    /// # Errors
    /// It cannot be opened, or is not HDF5.
    pub(super) fn open(path: &Path) -> Result<Self, AnnDataError> {
        register()?;
        let source = hdf5_source::open(path)?;
        let file = library::open(path)?;
        Ok(Self { source, file })
    }

    pub(super) fn path(&self) -> &Path {
        self.source.path()
    }

    pub(super) fn root(&self) -> &File {
        &self.file
    }

    /// What an array of it can hold at most.
    pub(super) fn most(&self) -> Most {
        let bytes = self.source.bytes().saturating_mul(MOST_RATIO).max(SMALL);
        Most { values: usize::try_from(bytes).unwrap_or(usize::MAX), bytes }
    }

    /// The error for what is wrong with a part of it.
    pub(super) fn wrong(&self, location: &str, reason: &str) -> AnnDataError {
        self.source.damaged(format!("{location}: {reason}"))
    }
}
