use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::AnnDataError;
use crate::source::local_file::FileState;

/// A file that is read at positions, and that is known again.
#[derive(Debug)]
pub(crate) struct MdsFile {
    file: File,
    state: FileState,
}

impl MdsFile {
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        let file = File::open(path).map_err(AnnDataError::io("open", path))?;
        let state = FileState::of(&file, path)?;
        Ok(Self { file, state })
    }

    pub fn path(&self) -> &Path {
        self.state.path()
    }

    /// Its length when it was opened.
    pub fn bytes(&self) -> u64 {
        self.state.bytes()
    }

    /// As [`FileState::unchanged`].
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        self.state.unchanged(&self.file)
    }

    /// What is wrong with it. Of a file that was rewritten that says more.
    pub fn damaged(&self, reason: impl ToString) -> AnnDataError {
        match self.unchanged() {
            Err(rewritten @ AnnDataError::Rewritten { .. }) => rewritten,
            _ => AnnDataError::damaged(self.path(), reason),
        }
    }

    /// Fill `out` from `offset` on.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), AnnDataError> {
        self.file.read_exact_at(out, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("the file is cut short"),
            _ => AnnDataError::io("read", self.path())(e),
        })
    }

    /// Append `len` bytes from `offset` on to `out`.
    pub fn append(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), AnnDataError> {
        let start = out.len();
        out.try_reserve(len).map_err(|_| {
            AnnDataError::Invalid(format!("{}: there is no memory for {len} bytes of it", self.path().display()))
        })?;
        out.resize(start + len, 0);
        self.read(offset, &mut out[start..])
    }

    /// All of it.
    pub fn all(&self) -> Result<Vec<u8>, AnnDataError> {
        let mut bytes = Vec::new();
        self.append(0, self.bytes() as usize, &mut bytes)?;
        Ok(bytes)
    }

    /// It from the beginning on.
    pub fn stream(&self) -> impl io::Read + '_ {
        MdsStream { source: self, at: 0 }
    }
}

/// Reads on by positions, which other threads do not move.
struct MdsStream<'a> {
    source: &'a MdsFile,
    at: u64,
}

impl io::Read for MdsStream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.source.file.read_at(out, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
