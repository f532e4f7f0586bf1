use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc;

use super::lmdb::lmdb_error;
use super::lmdb_meta::{Meta, TXN_OFFSET};
use crate::PipelineError;

/// `data.mdb` of a store, read at positions, so that a file that is cut short while it is read is an error (a mapped one
/// would end the process with SIGBUS).
pub(super) struct StoreFile {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    /// Length in bytes when it was opened.
    bytes: u64,
    /// Newest meta page when it was opened.
    pub(super) meta: Meta,
    identity: Identity,
}

/// What changes when somebody writes to the file or puts another in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    transactions: [u64; 2],
}

impl StoreFile {
    /// Open the store in `folder`; [`PipelineError::NotBuilt`] if it has no `data.mdb`.
    pub(super) fn open(folder: &Path) -> Result<Self, PipelineError> {
        let path = folder.join("data.mdb");
        let file = match File::open(&path) {
            Err(e) if is_gone(&e) => {
                return Err(PipelineError::NotBuilt { path: folder.to_owned() });
            }
            other => other.map_err(PipelineError::io("open", &path))?,
        };
        // Records are read in random order. This is advice: a system that does not take it reads more than it must.
        #[cfg(target_os = "linux")]
        let _ = nix::fcntl::posix_fadvise(&file, 0, 0, nix::fcntl::PosixFadviseAdvice::POSIX_FADV_RANDOM);
        let about = file.metadata().map_err(PipelineError::io("inspect", &path))?;
        let meta = Meta::newest(|offset, out| file.read_exact_at(out, offset)).map_err(|e| lmdb_error(folder, e))?;
        let transactions = transactions(&file, &meta).map_err(PipelineError::io("read", &path))?;
        let identity = Identity::of(&about, transactions);
        Ok(Self { folder: folder.to_owned(), path, file, bytes: about.len(), meta, identity })
    }

    /// Folder of the store.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whole pages that the file has, as far as they are in use.
    pub(super) fn pages(&self) -> u64 {
        (self.bytes / u64::from(self.meta.page_size)).min(self.meta.last_page.saturating_add(1))
    }

    /// Fill `out` from `offset` on.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), PipelineError> {
        self.file.read_exact_at(out, offset).map_err(|e| self.failed(e))
    }

    /// Read `header` at `offset` and append the `bytes` behind it to `out`, in one call of the system and without clearing
    /// memory first.
    pub(super) fn append(
        &self,
        offset: u64,
        header: &mut [u8],
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), PipelineError> {
        out.reserve(bytes);
        let (of_header, total) = (header.len(), header.len() + bytes);
        let mut done = 0;
        while done < total {
            let header = &mut header[done.min(of_header)..];
            let rest = &mut out.spare_capacity_mut()[done.saturating_sub(of_header)..bytes];
            let into = [
                libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
                libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
            ];
            let at = (offset + done as u64) as libc::off_t;
            // SAFETY: both places are ours alone, as long as they say, and may be written to; the system only writes.
            let n = unsafe { libc::preadv(self.file.as_raw_fd(), into.as_ptr(), into.len() as libc::c_int, at) };
            match n {
                0 => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                1.. => done += n as usize,
                _ => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(self.failed(e));
                    }
                }
            }
        }
        // SAFETY: the loop above has filled `bytes` of the spare capacity.
        unsafe { out.set_len(out.len() + bytes) };
        Ok(())
    }

    /// An error if the file is another one than was opened. Less than a microsecond.
    pub(super) fn unchanged(&self) -> Result<(), PipelineError> {
        let rewritten = || PipelineError::Rewritten { path: self.folder.clone() };
        let about = match self.path.metadata() {
            Err(e) if is_gone(&e) => return Err(rewritten()),
            other => other.map_err(PipelineError::io("inspect", &self.path))?,
        };
        let transactions = match transactions(&self.file, &self.meta) {
            // Cut short.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(rewritten()),
            other => other.map_err(PipelineError::io("read", &self.path))?,
        };
        if Identity::of(&about, transactions) == self.identity { Ok(()) } else { Err(rewritten()) }
    }

    /// Why a read failed. Of a file that is not the one that was opened this says more than the system does; what else keeps
    /// one from looking does not.
    fn failed(&self, e: io::Error) -> PipelineError {
        match self.unchanged() {
            Err(rewritten @ PipelineError::Rewritten { .. }) => rewritten,
            _ if e.kind() == io::ErrorKind::UnexpectedEof => lmdb_error(&self.folder, e),
            _ => PipelineError::io("read", &self.path)(e),
        }
    }
}

/// There is no such file.
fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl Identity {
    fn of(about: &std::fs::Metadata, transactions: [u64; 2]) -> Self {
        let modified = (about.mtime(), about.mtime_nsec());
        Self { device: about.dev(), inode: about.ino(), bytes: about.len(), modified, transactions }
    }
}

/// Number of the last transaction in each meta page: changes with every commit, also where the file system's clock is coarse.
fn transactions(file: &File, meta: &Meta) -> io::Result<[u64; 2]> {
    let mut both = [0; 2];
    for (i, number) in both.iter_mut().enumerate() {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, i as u64 * u64::from(meta.page_size) + TXN_OFFSET)?;
        *number = u64::from_le_bytes(word);
    }
    Ok(both)
}
