use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::libc;

/// A file that is locked against other processes, until this is dropped.
#[derive(Debug)]
pub(super) struct Locked<'f>(&'f File);

/// Tries and pause between them: whoever has it writes a MiB.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(2);

impl<'f> Locked<'f> {
    /// Lock it if nobody else has it locked, or lets go of it soon.
    ///
    /// # Errors
    /// Somebody keeps it, or the file system has no locks.
    pub(super) fn soon(file: &'f File) -> io::Result<Self> {
        for _ in 1..TRIES {
            match lock(file, libc::LOCK_EX) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                result => return result.map(|()| Self(file)),
            }
        }
        lock(file, libc::LOCK_EX).map(|()| Self(file))
    }

    /// Lock it if nobody else has it locked.
    ///
    /// # Errors
    /// As [`Self::soon`].
    pub(super) fn now(file: &'f File) -> io::Result<Self> {
        lock(file, libc::LOCK_EX).map(|()| Self(file))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: the file is open. If it does not work, closing the file does.
        let _ = unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// Say that the file is in use, until it is closed.
pub(super) fn share(file: &File) -> io::Result<()> {
    lock(file, libc::LOCK_SH)
}

fn lock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: the file is open.
    match unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
