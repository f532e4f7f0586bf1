use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

use super::piece::Piece;
use crate::AnnDataError;
use crate::file_state::FileState;

/// Larger parts are left to the system, which reads ahead in them: asking for them takes longer than it saves.
const ADVISED: usize = 256 << 10;

/// A file that is read at positions, so that one that is cut short while it is read is an error (a mapped one would end the
/// process with SIGBUS), and that is known again.
#[derive(Debug)]
pub(super) struct LocalFile {
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
    pub(super) fn open(path: &Path) -> Result<Self, AnnDataError> {
        let file = File::open(path).map_err(AnnDataError::io("open", path))?;
        let state = FileState::of(&file, path)?;
        Ok(Self { file, state, can_refuse: AtomicBool::new(true) })
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        self.state.path()
    }

    /// Its length when it was opened.
    pub(super) fn bytes(&self) -> u64 {
        self.state.bytes()
    }

    /// Read what the system has of the piece in memory. The rest, if there is any, is for [`Self::wait`], and the system is told
    /// to get it if it is small.
    ///
    /// # Errors
    /// The file cannot be read, or ends before the piece does.
    pub(super) fn read_cached(
        &self,
        piece: &Piece,
        into: &mut [MaybeUninit<u8>],
    ) -> Result<Option<Piece>, AnnDataError> {
        let done = if self.can_refuse.load(Ordering::Relaxed) { self.try_read(piece, into)? } else { 0 };
        if done == piece.len {
            return Ok(None);
        }
        let rest = piece.behind(done);
        if rest.len <= ADVISED {
            self.will_need(&rest);
        }
        Ok(Some(rest))
    }

    /// Read a piece, however long that takes.
    ///
    /// # Errors
    /// As [`Self::read_cached`].
    pub(super) fn wait(&self, piece: &Piece, into: &mut [MaybeUninit<u8>]) -> Result<(), AnnDataError> {
        let mut rest = *piece;
        while rest.len > 0 {
            match self.pread(&rest, into, 0) {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => rest = rest.behind(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
        Ok(())
    }

    /// Bytes of the piece that could be read without waiting.
    #[cfg(target_os = "linux")]
    fn try_read(&self, piece: &Piece, into: &mut [MaybeUninit<u8>]) -> Result<usize, AnnDataError> {
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
    fn try_read(&self, _: &Piece, _: &mut [MaybeUninit<u8>]) -> Result<usize, AnnDataError> {
        self.can_refuse.store(false, Ordering::Relaxed);
        Ok(0)
    }

    /// One call of the system; it may read less than it was asked for.
    fn pread(&self, piece: &Piece, into: &mut [MaybeUninit<u8>], flags: i32) -> io::Result<usize> {
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
    fn will_need(&self, piece: &Piece) {
        #[cfg(target_os = "linux")]
        if let (Ok(offset), Ok(len)) = (piece.offset.try_into(), piece.len.try_into()) {
            let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_WILLNEED;
            let _ = nix::fcntl::posix_fadvise(&self.file, offset, len, advice);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = piece;
    }

    /// As [`FileState::unchanged`]: for what was read.
    pub(super) fn unchanged(&self) -> Result<(), AnnDataError> {
        self.state.unchanged(&self.file)
    }

    /// As [`FileState::at_path`]: for what the library was asked, which opens the path by itself.
    pub(super) fn at_path(&self) -> Result<(), AnnDataError> {
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
