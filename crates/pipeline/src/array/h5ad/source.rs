use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

use crate::PipelineError;
use crate::array::file_state::FileState;

/// What every HDF5 file has at byte 0, 512, 1024, 2048, …: what comes before is the user's.
const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// The part of a superblock that is looked at: no version has fewer bytes.
const SUPERBLOCK: usize = 16;

/// Bytes of a size, and of an address, in every file that h5py writes.
const SIZE_BYTES: u8 = 8;

/// Larger parts are left to the system, which reads ahead in them: asking for them takes longer than it saves.
const ADVISED: usize = 256 << 10;

/// A file that is read at positions, so that one that is cut short while it is read is an error (a mapped one would end the
/// process with SIGBUS), and that is known again.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    state: FileState,
    /// The file system can say that it would have to wait for a disk.
    can_refuse: AtomicBool,
}

/// A part of the file, and where in a buffer it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// First byte in the file.
    pub(super) offset: u64,
    /// First byte in the buffer.
    pub(super) at: usize,
    /// Bytes.
    pub(super) len: usize,
}

impl Source {
    /// Open a file that has the signature of HDF5.
    pub(super) fn open(path: &Path) -> Result<Self, PipelineError> {
        let file = File::open(path).map_err(PipelineError::io("open", path))?;
        let state = FileState::of(&file, path)?;
        let source = Self { file, state, can_refuse: AtomicBool::new(true) };
        match source.size_bytes()? {
            None => Err(source.damaged("is not an HDF5 file: it has no HDF5 signature")),
            Some(SIZE_BYTES) => Ok(source),
            Some(other) => Err(source.damaged(format!("has sizes of {other} bytes; {SIZE_BYTES} are supported"))),
        }
    }

    /// Bytes of a size in this file, which its superblock says; `None` if there is none.
    fn size_bytes(&self) -> Result<Option<u8>, PipelineError> {
        let mut at = 0;
        while at + SUPERBLOCK as u64 <= self.bytes() {
            let mut found = [MaybeUninit::uninit(); SUPERBLOCK];
            self.read_all(&[Piece { offset: at, at: 0, len: SUPERBLOCK }], &mut found)?;
            // SAFETY: all of it was read.
            let found = found.map(|byte| unsafe { byte.assume_init() });
            if found.starts_with(&SIGNATURE) {
                // Behind the signature is the version.
                return Ok(Some(if found[8] < 2 { found[14] } else { found[10] }));
            }
            at = (at * 2).max(512);
        }
        Ok(None)
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        self.state.path()
    }

    /// Its length when it was opened.
    pub(super) fn bytes(&self) -> u64 {
        self.state.bytes()
    }

    /// An error that says what is wrong with it.
    pub(super) fn damaged(&self, reason: impl ToString) -> PipelineError {
        PipelineError::damaged(self.path(), reason)
    }

    /// Read all pieces.
    pub(super) fn read_all(&self, pieces: &[Piece], into: &mut [MaybeUninit<u8>]) -> Result<(), PipelineError> {
        let mut late = Vec::new();
        self.read_cached(pieces, into, &mut late)?;
        self.read_late(&late, into)
    }

    /// Read what the system has in memory. The rest goes to `late`, for [`Self::read_late`], and the system is told to get what
    /// is small of it, all at once: a disk that works on many parts is many times as fast as one that is given one after another.
    pub(super) fn read_cached(
        &self,
        pieces: &[Piece],
        into: &mut [MaybeUninit<u8>],
        late: &mut Vec<Piece>,
    ) -> Result<(), PipelineError> {
        late.clear();
        for piece in pieces {
            let done = if self.can_refuse.load(Ordering::Relaxed) { self.try_read(piece, into)? } else { 0 };
            if done < piece.len {
                let rest = Piece { offset: piece.offset + done as u64, at: piece.at + done, len: piece.len - done };
                if rest.len <= ADVISED {
                    self.will_need(&rest);
                }
                late.push(rest);
            }
        }
        Ok(())
    }

    /// Wait for what [`Self::read_cached`] has left.
    pub(super) fn read_late(&self, late: &[Piece], into: &mut [MaybeUninit<u8>]) -> Result<(), PipelineError> {
        for piece in late {
            let mut rest = *piece;
            while rest.len > 0 {
                match self.pread(&rest, into, 0) {
                    Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                    Ok(n) => rest = Piece { offset: rest.offset + n as u64, at: rest.at + n, len: rest.len - n },
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(self.failed(e)),
                }
            }
        }
        Ok(())
    }

    /// Bytes of the piece that could be read without waiting.
    #[cfg(target_os = "linux")]
    fn try_read(&self, piece: &Piece, into: &mut [MaybeUninit<u8>]) -> Result<usize, PipelineError> {
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
    fn try_read(&self, _: &Piece, _: &mut [MaybeUninit<u8>]) -> Result<usize, PipelineError> {
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
    pub(super) fn unchanged(&self) -> Result<(), PipelineError> {
        self.state.unchanged(&self.file)
    }

    /// As [`FileState::at_path`]: for what the library was asked, which opens the path by itself.
    pub(super) fn at_path(&self) -> Result<(), PipelineError> {
        self.state.at_path()
    }

    /// Why a read failed. Of a file that is not the one that was opened this says more than the system does.
    fn failed(&self, e: io::Error) -> PipelineError {
        match self.unchanged() {
            Err(rewritten @ PipelineError::Rewritten { .. }) => rewritten,
            _ if e.kind() == io::ErrorKind::UnexpectedEof => self.damaged("is cut short"),
            _ => PipelineError::io("read", self.path())(e),
        }
    }
}
