//! Local files that are read at positions, and the check that they did not change.

use std::fs::{File, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::source::SourceError;
use crate::source::byte_source::ReadRange;
use crate::{AnnDataError, RequestError};

/// Larger ranges get no advice: the system reads ahead in them, and the call takes longer than it saves.
const MAX_ADVISED_BYTES: usize = 256 << 10;

/// A file that is read with `pread`. If the file is truncated meanwhile, that is an error; with `mmap` it would be SIGBUS.
#[derive(Debug)]
pub(crate) struct LocalFile {
    file: File,
    state: FileState,
    /// Whether the file system supports `RWF_NOWAIT`.
    supports_nowait: AtomicBool,
}

impl LocalFile {
    /// Opens a regular file.
    ///
    /// # Errors
    /// The file does not exist, is not a regular file, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        let file = File::open(path).map_err(AnnDataError::io("open", path))?;
        let state = FileState::new(&file, path)?;
        Ok(Self { file, state, supports_nowait: AtomicBool::new(true) })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.state.path()
    }

    /// Length in bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.state.bytes()
    }

    /// Reads the part of a range that is in the page cache of the system. Returns the rest, which the caller reads with
    /// [`Self::read`]; the system is advised to read a small rest ahead.
    ///
    /// # Errors
    /// The file cannot be read, or the range is beyond its end.
    pub fn read_cached(
        &self,
        range: &ReadRange,
        into: &mut [MaybeUninit<u8>],
    ) -> Result<Option<ReadRange>, AnnDataError> {
        let done = if self.supports_nowait.load(Ordering::Relaxed) { self.try_read(range, into)? } else { 0 };
        if done == range.len {
            return Ok(None);
        }
        let rest = range.after(done);
        if rest.len <= MAX_ADVISED_BYTES {
            self.will_need(&rest);
        }
        Ok(Some(rest))
    }

    /// Reads a range; waits for the disk.
    ///
    /// # Errors
    /// As [`Self::read_cached`].
    pub fn read(&self, range: &ReadRange, into: &mut [MaybeUninit<u8>]) -> Result<(), AnnDataError> {
        let mut rest = *range;
        while rest.len > 0 {
            match self.pread(&rest, into, 0) {
                Ok(0) => return Err(self.read_error(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => rest = rest.after(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.read_error(e)),
            }
        }
        Ok(())
    }

    /// Reads without waiting for the disk; returns the number of bytes.
    #[cfg(target_os = "linux")]
    fn try_read(&self, range: &ReadRange, into: &mut [MaybeUninit<u8>]) -> Result<usize, AnnDataError> {
        match self.pread(range, into, libc::RWF_NOWAIT) {
            Ok(0) if range.len > 0 => Err(self.read_error(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => Ok(n),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            // Some file systems, and old kernels, do not support RWF_NOWAIT.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)) => {
                self.supports_nowait.store(false, Ordering::Relaxed);
                Ok(0)
            }
            Err(e) => Err(self.read_error(e)),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn try_read(&self, _: &ReadRange, _: &mut [MaybeUninit<u8>]) -> Result<usize, AnnDataError> {
        self.supports_nowait.store(false, Ordering::Relaxed);
        Ok(0)
    }

    /// One system call; it may read fewer bytes.
    fn pread(&self, range: &ReadRange, into: &mut [MaybeUninit<u8>], flags: i32) -> io::Result<usize> {
        let into = &mut into[range.at..range.at + range.len];
        let offset = libc::off_t::try_from(range.offset).map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let fd = self.file.as_raw_fd();
        #[cfg(target_os = "linux")]
        let n = if flags == 0 {
            // SAFETY: the buffer is borrowed exclusively and has this length; the system only writes to it.
            unsafe { libc::pread(fd, into.as_mut_ptr().cast(), into.len(), offset) }
        } else {
            let place = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
            // SAFETY: as above; there is one buffer.
            unsafe { libc::preadv2(fd, &raw const place, 1, offset, flags) }
        };
        #[cfg(not(target_os = "linux"))]
        // SAFETY: as above.
        let n = unsafe { libc::pread(fd, into.as_mut_ptr().cast(), into.len(), offset) };
        #[cfg(not(target_os = "linux"))]
        let _ = flags;
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Advises the system to read ahead; errors are ignored.
    fn will_need(&self, range: &ReadRange) {
        #[cfg(target_os = "linux")]
        if let (Ok(offset), Ok(len)) = (range.offset.try_into(), range.len.try_into()) {
            let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_WILLNEED;
            let _ = nix::fcntl::posix_fadvise(&self.file, offset, len, advice);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    /// [`FileState::unchanged`], for bytes that were read.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        self.state.unchanged(&self.file)
    }

    /// [`FileState::at_path`], for libhdf5, which opens the path by itself.
    pub fn at_path(&self) -> Result<(), AnnDataError> {
        self.state.at_path()
    }

    /// The error of a failed read: [`AnnDataError::Rewritten`] if the file changed, else that of the system.
    fn read_error(&self, e: io::Error) -> AnnDataError {
        match self.unchanged() {
            Err(rewritten @ AnnDataError::Rewritten { .. }) => rewritten,
            _ if e.kind() == io::ErrorKind::UnexpectedEof => AnnDataError::damaged(self.path(), SourceError::CutShort),
            _ => AnnDataError::io("read", self.path())(e),
        }
    }
}

/// State of a file when it was opened, to detect that it is written to, truncated, replaced or removed while it is read. A small
/// write within one tick of the file system's clock (some milliseconds) after opening may be missed.
#[derive(Debug)]
pub(crate) struct FileState {
    path: PathBuf,
    identity: FileIdentity,
}

/// Metadata that changes when the file is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileState {
    /// The state of `file`, which was opened at `path`.
    ///
    /// # Errors
    /// The metadata cannot be read, or the file is not a regular file.
    pub fn new(file: &File, path: &Path) -> Result<Self, AnnDataError> {
        let metadata = file.metadata().map_err(AnnDataError::io("inspect", path))?;
        if !metadata.is_file() {
            return Err(AnnDataError::damaged(path, SourceError::NotRegular));
        }
        Ok(Self { path: path.to_owned(), identity: FileIdentity::new(&metadata) })
    }

    /// Path at which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    /// Checks that the path still leads to the opened file, unchanged: for code that opens the path once more.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`], or the metadata cannot be read.
    pub fn at_path(&self) -> Result<(), AnnDataError> {
        match self.path.metadata() {
            // The open file keeps its inode, so another file cannot have the same one.
            Ok(metadata) if FileIdentity::new(&metadata) == self.identity => Ok(()),
            Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(AnnDataError::io("inspect", &self.path)(e))
            }
            _ => Err(AnnDataError::Rewritten { path: self.path.clone() }),
        }
    }

    /// Checks that `file` is unchanged, and was not removed or replaced. Takes less than a microsecond.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`], or the metadata cannot be read.
    pub fn unchanged(&self, file: &File) -> Result<(), AnnDataError> {
        let metadata = file.metadata().map_err(AnnDataError::io("inspect", &self.path))?;
        if FileIdentity::new(&metadata) == self.identity && metadata.nlink() > 0 {
            return Ok(());
        }
        Err(AnnDataError::Rewritten { path: self.path.clone() })
    }
}

impl FileIdentity {
    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Descriptors that remain for everything else.
const SPARE_DESCRIPTORS: u64 = 256;

/// Raises the soft limit of open files of the process, often 1,024, so that `files` fit.
///
/// # Errors
/// The hard limit is too low.
pub(crate) fn allow_open_files(files: usize) -> Result<(), AnnDataError> {
    let needed = files as u64 + SPARE_DESCRIPTORS;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if needed <= soft || (needed <= hard && setrlimit(Resource::RLIMIT_NOFILE, needed, hard).is_ok()) {
        return Ok(());
    }
    Err(RequestError::TooManyFiles { files, needed, limit: hard }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file of three bytes that was last written long ago.
    fn old_file(path: &Path) -> (File, FileState) {
        let mut made = File::create(path).unwrap();
        made.write_all(b"abc").unwrap();
        made.set_modified(std::time::UNIX_EPOCH).unwrap();
        let file = File::open(path).unwrap();
        let state = FileState::new(&file, path).unwrap();
        assert_eq!((state.bytes(), state.path()), (3, path));
        state.unchanged(&file).unwrap();
        (file, state)
    }

    #[test]
    fn a_file_that_changes_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let changes: [fn(&Path); 4] = [
            |path| std::fs::write(path, b"abd").unwrap(),
            |path| File::options().write(true).open(path).unwrap().set_len(2).unwrap(),
            |path| std::fs::remove_file(path).unwrap(),
            |path| {
                let other = path.with_extension("other");
                std::fs::write(&other, b"abc").unwrap();
                std::fs::rename(other, path).unwrap();
            },
        ];
        for change in changes {
            let (file, state) = old_file(&path);
            change(&path);
            assert!(matches!(state.unchanged(&file), Err(AnnDataError::Rewritten { path: at }) if at == path));
            assert!(matches!(state.at_path(), Err(AnnDataError::Rewritten { path: at }) if at == path));
        }
    }

    #[test]
    fn a_file_that_was_moved_is_not_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (file, state) = old_file(&path);
        state.at_path().unwrap();
        std::fs::rename(&path, folder.path().join("other")).unwrap();
        std::fs::write(&path, b"abc").unwrap();
        // What is read is still the file that was opened; who opens the path gets another.
        state.unchanged(&file).unwrap();
        assert!(matches!(state.at_path(), Err(AnnDataError::Rewritten { .. })));
    }

    #[test]
    fn a_folder_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(folder.path()).unwrap();
        assert!(FileState::new(&file, folder.path()).is_err());
    }
}
