use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use hdf5_metno::File;

use super::column_values::Most;
use crate::PipelineError;

/// First bytes of an HDF5 file.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// No filter of HDF5 makes more than this of a byte (deflate's is 1,032); small arrays are let through whatever they are made of.
const MOST_RATIO: u64 = 1_100;
const SMALL: u64 = 64 << 20;

/// A file whose frames are read, open for as long as that takes.
#[derive(Debug)]
pub(super) struct FrameFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl FrameFile {
    /// # Errors
    /// It cannot be opened, or is not HDF5.
    pub(super) fn open(path: &Path) -> Result<Self, PipelineError> {
        let mut start = [0; 8];
        let mut raw = fs::File::open(path).map_err(PipelineError::io("open", path))?;
        let bytes = raw.metadata().map_err(PipelineError::io("open", path))?.len();
        let is_short = match raw.read_exact(&mut start) {
            Ok(()) => false,
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => true,
            Err(e) => return Err(PipelineError::io("read", path)(e)),
        };
        if is_short || start != SIGNATURE {
            return Err(PipelineError::damaged(path, "it is not an HDF5 file"));
        }
        let file = File::open(path).map_err(|e| PipelineError::damaged(path, format!("HDF5 cannot open it: {e}")))?;
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn root(&self) -> &File {
        &self.file
    }

    /// What an array of it can hold at most.
    pub(super) fn most(&self) -> Most {
        let bytes = self.bytes.saturating_mul(MOST_RATIO).max(SMALL);
        Most { values: usize::try_from(bytes).unwrap_or(usize::MAX), bytes }
    }

    /// The error for what is wrong with a part of it.
    pub(super) fn wrong(&self, location: &str, reason: &str) -> PipelineError {
        PipelineError::damaged(&self.path, format!("{location}: {reason}"))
    }
}
