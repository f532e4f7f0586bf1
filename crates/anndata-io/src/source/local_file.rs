use std::fs::{File, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::AnnDataError;
use crate::source::byte_source::ReadRange;

/// Larger parts are left to the system, which reads ahead in them: asking for them takes longer than it saves.
const MAX_ADVISED_BYTES: usize = 256 << 10;

/// A file that is read at positions, so that one that is cut short while it is read is an error (a mapped one would end the
/// process with SIGBUS), and that is known again.
#[derive(Debug)]
pub(crate) struct LocalFile {
    file: File,
    state: FileState,
    /// The file system can say that it would have to wait for a disk.
    can_refuse: AtomicBool,
}

impl LocalFile {
    /// Open a regular file.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        let file = File::open(path).map_err(AnnDataError::io("open", path))?;
        let state = FileState::of(&file, path)?;
        Ok(Self { file, state, can_refuse: AtomicBool::new(true) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.state.path()
    }

    /// Its length when it was opened.
    pub fn bytes(&self) -> u64 {
        self.state.bytes()
    }

    /// Read what the system has of the piece in memory. The rest, if there is any, is for [`Self::wait`], and the system is told
    /// to get it if it is small.
    ///
    /// # Errors
    /// The file cannot be read, or ends before the piece does.
    pub fn read_cached(
        &self,
        piece: &ReadRange,
        into: &mut [MaybeUninit<u8>],
    ) -> Result<Option<ReadRange>, AnnDataError> {
        let done = if self.can_refuse.load(Ordering::Relaxed) { self.try_read(piece, into)? } else { 0 };
        if done == piece.len {
            return Ok(None);
        }
        let rest = piece.after(done);
        if rest.len <= MAX_ADVISED_BYTES {
            self.will_need(&rest);
        }
        Ok(Some(rest))
    }

    /// Read a piece, however long that takes.
    ///
    /// # Errors
    /// As [`Self::read_cached`].
    pub fn wait(&self, piece: &ReadRange, into: &mut [MaybeUninit<u8>]) -> Result<(), AnnDataError> {
        let mut rest = *piece;
        while rest.len > 0 {
            match self.pread(&rest, into, 0) {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => rest = rest.after(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
        Ok(())
    }

    /// Bytes of the piece that could be read without waiting.
    #[cfg(target_os = "linux")]
    fn try_read(&self, piece: &ReadRange, into: &mut [MaybeUninit<u8>]) -> Result<usize, AnnDataError> {
        match self.pread(piece, into, libc::RWF_NOWAIT) {
            Ok(0) if piece.len > 0 => Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => Ok(n),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            // Not every file system can, and old systems cannot at all.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)) => {
                self.can_refuse.store(false, Ordering::Relaxed);
                Ok(0)
            }
            Err(e) => Err(self.failed(e)),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn try_read(&self, _: &ReadRange, _: &mut [MaybeUninit<u8>]) -> Result<usize, AnnDataError> {
        self.can_refuse.store(false, Ordering::Relaxed);
        Ok(0)
    }

    /// One call of the system; it may read less than it was asked for.
    fn pread(&self, piece: &ReadRange, into: &mut [MaybeUninit<u8>], flags: i32) -> io::Result<usize> {
        let into = &mut into[piece.at..piece.at + piece.len];
        let offset = libc::off_t::try_from(piece.offset).map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let fd = self.file.as_raw_fd();
        #[cfg(target_os = "linux")]
        let n = if flags == 0 {
            // SAFETY: the place is ours alone, as long as it says, and may be written to; the system only writes.
            unsafe { libc::pread(fd, into.as_mut_ptr().cast(), into.len(), offset) }
        } else {
            let place = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
            // SAFETY: as above; there is one place.
            unsafe { libc::preadv2(fd, &raw const place, 1, offset, flags) }
        };
        #[cfg(not(target_os = "linux"))]
        // SAFETY: as above.
        let n = unsafe { libc::pread(fd, into.as_mut_ptr().cast(), into.len(), offset) };
        #[cfg(not(target_os = "linux"))]
        let _ = flags;
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// Advice: a system that does not take it reads later.
    fn will_need(&self, piece: &ReadRange) {
        #[cfg(target_os = "linux")]
        if let (Ok(offset), Ok(len)) = (piece.offset.try_into(), piece.len.try_into()) {
            let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_WILLNEED;
            let _ = nix::fcntl::posix_fadvise(&self.file, offset, len, advice);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = piece;
    }

    /// As [`FileState::unchanged`]: for what was read.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        self.state.unchanged(&self.file)
    }

    /// As [`FileState::at_path`]: for what the library was asked, which opens the path by itself.
    pub fn at_path(&self) -> Result<(), AnnDataError> {
        self.state.at_path()
    }

    /// Why a read failed. Of a file that is not the one that was opened this says more than the system does.
    fn failed(&self, e: io::Error) -> AnnDataError {
        match self.unchanged() {
            Err(rewritten @ AnnDataError::Rewritten { .. }) => rewritten,
            _ if e.kind() == io::ErrorKind::UnexpectedEof => AnnDataError::damaged(self.path(), "is cut short"),
            _ => AnnDataError::io("read", self.path())(e),
        }
    }
}

/// What a file was when it was opened, so that one that is written to, cut short, replaced or removed while it is read
/// is an error. Small writes within a tick of the file system's clock (some milliseconds) after opening may go unseen.
#[derive(Debug)]
pub(crate) struct FileState {
    path: PathBuf,
    identity: FileIdentity,
}

/// What changes when somebody writes to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileState {
    /// That of `file`, which was opened at `path`.
    ///
    /// # Errors
    /// The system does not say, or it is no regular file.
    pub fn of(file: &File, path: &Path) -> Result<Self, AnnDataError> {
        let about = file.metadata().map_err(AnnDataError::io("inspect", path))?;
        if !about.is_file() {
            return Err(AnnDataError::damaged(path, "this is no regular file"));
        }
        Ok(Self { path: path.to_owned(), identity: FileIdentity::of(&about) })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    /// An error if what is at the path now is another file than was opened, or was written to: for what is opened by its path
    /// once more.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`], or the system does not say.
    pub fn at_path(&self) -> Result<(), AnnDataError> {
        match self.path.metadata() {
            // The file that is open keeps its inode, so a new one cannot have the same.
            Ok(about) if FileIdentity::of(&about) == self.identity => Ok(()),
            Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(AnnDataError::io("inspect", &self.path)(e))
            }
            _ => Err(AnnDataError::Rewritten { path: self.path.clone() }),
        }
    }

    /// An error if `file` is not as it was opened, or has no name any more: it was removed, or another one has its
    /// place. Less than a microsecond.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`], or the system does not say.
    pub fn unchanged(&self, file: &File) -> Result<(), AnnDataError> {
        let about = file.metadata().map_err(AnnDataError::io("inspect", &self.path))?;
        if FileIdentity::of(&about) == self.identity && about.nlink() > 0 {
            return Ok(());
        }
        Err(AnnDataError::Rewritten { path: self.path.clone() })
    }
}

impl FileIdentity {
    fn of(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
        }
    }
}

/// Descriptors that are left for everything else.
const SPARE_DESCRIPTORS: u64 = 256;

/// Let this process hold `files` files open. What it may hold is often 1,024, far below what it may ask for.
///
/// # Errors
/// The system does not let it hold as many.
pub(crate) fn allow_open_files(files: usize) -> Result<(), AnnDataError> {
    let needed = files as u64 + SPARE_DESCRIPTORS;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if needed <= soft || (needed <= hard && setrlimit(Resource::RLIMIT_NOFILE, needed, hard).is_ok()) {
        return Ok(());
    }
    Err(AnnDataError::Invalid(format!(
        "{files} files need {needed} descriptors, and this process may have {hard}; raise the limit (`ulimit -n`), or convert \
         them to fewer files"
    )))
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
        let state = FileState::of(&file, path).unwrap();
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
        assert!(FileState::of(&file, folder.path()).is_err());
    }
}
