//! What may be used after a fork.
//!
//! A forked process has the memory of its parent, locks included, but none of its threads. If no thread of this module ran, no
//! lock is held, and files are read at positions, so a child reads as its parent does. Else everything is refused, because a lock
//! may be held by a thread that is not there.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use pyo3::pyfunction;

use crate::error::BindingError;

/// Calls and streams in which other threads may run.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// A remote file was opened: two threads of the process read all of them.
static REMOTE: AtomicBool = AtomicBool::new(false);
/// 0: nothing ran in the parent. 1: a loader; 2: reads of remote files.
static FORKED: AtomicU32 = AtomicU32::new(0);

/// Counts work during which a fork leaves locks behind.
pub struct Running(u32);

impl Running {
    /// # Errors
    /// [`BindingError::UnsafeFork`].
    pub fn begin() -> Result<Self, BindingError> {
        check()?;
        RUNNING.fetch_add(1, Ordering::SeqCst);
        Ok(Self(std::process::id()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A child counts from 0.
        if self.0 == std::process::id() {
            RUNNING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Remote files are read from now on.
pub fn reads_remote() {
    REMOTE.store(true, Ordering::SeqCst);
}

/// # Errors
/// [`BindingError::UnsafeFork`].
pub fn check() -> Result<(), BindingError> {
    match FORKED.load(Ordering::SeqCst) {
        0 => Ok(()),
        1 => Err(BindingError::UnsafeFork { what: "threads of a loader were running" }),
        _ => Err(BindingError::UnsafeFork { what: "remote files were open" }),
    }
}

/// Python calls this in a child after each fork.
#[pyfunction]
pub fn after_fork() {
    if REMOTE.load(Ordering::SeqCst) {
        FORKED.store(2, Ordering::SeqCst);
    } else if RUNNING.swap(0, Ordering::SeqCst) > 0 {
        FORKED.store(1, Ordering::SeqCst);
    }
}
