//! `interruptible` does work that may take minutes, such as reading all rows into memory, so that Ctrl-C ends the wait for it.
//! Invariant: the work runs on a thread of its own and never takes the GIL; a fork meanwhile is an unsafe one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::BindingError;
use crate::fork::Running;

/// How long something is waited for between two looks at signals, such as Ctrl-C.
pub const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Do `work` without the GIL. After an interrupt it goes on until it looks at the flag that it is given, and what it returns is dropped.
///
/// # Errors
/// The exception of the signal; [`BindingError::UnsafeFork`], [`BindingError::ThreadStart`] or [`BindingError::Panicked`].
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> PyResult<T> {
    let running = Running::begin()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (done, mut is_done) = channel();
    let told = Arc::clone(&stop);
    let run = move || {
        let result = work(&told);
        drop(running);
        // After an interrupt nobody waits for it.
        let _ = done.send(result);
    };
    let started = std::thread::Builder::new().name("loader-open".to_owned()).spawn(run);
    started.map_err(|source| BindingError::ThreadStart { source })?;
    loop {
        // A receiver is for one thread, so it is lent and comes back.
        let (lent, polled) = py.detach(move || {
            let polled = is_done.recv_timeout(SIGNAL_INTERVAL);
            (is_done, polled)
        });
        is_done = lent;
        match polled {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(BindingError::Panicked.into()),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interrupt) = py.check_signals() {
                    stop.store(true, Ordering::Relaxed);
                    return Err(interrupt);
                }
            }
        }
    }
}
