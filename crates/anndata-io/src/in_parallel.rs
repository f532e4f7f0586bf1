//! `in_parallel` does the same work on many files, or parts of files, on several threads.
//! Invariant: results are in the order of the parts, whichever thread has done them; no thread begins a part after one has failed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::AnnDataError;

/// More threads do not make a file server faster, and each may hold a decoded part.
const MAX_THREADS: usize = 8;
/// Files that are opened by one thread, at least: with fewer, it costs more than it saves.
const MIN_FILES_PER_THREAD: usize = 8;

/// Threads for work that can use many: one for each processor that this process may use, and 8 at most.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Threads that open `files` files.
pub(crate) fn opening_threads(files: usize) -> usize {
    threads().min(files / MIN_FILES_PER_THREAD)
}

/// The results of `work` on `0..parts`, in this order, on `threads` threads, of which this is one. `what` describes the work in the error for
/// a panic of another thread.
///
/// # Errors
/// The first one of `work`; a thread panicked.
pub(crate) fn in_parallel<R: Send + Sync>(
    threads: usize,
    parts: usize,
    what: &str,
    work: impl Fn(usize) -> Result<R, AnnDataError> + Sync,
) -> Result<Vec<R>, AnnDataError> {
    let done: Vec<OnceLock<Result<R, AnnDataError>>> = (0..parts).map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        loop {
            // Each number goes to one thread.
            let part = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = done.get(part) else { return };
            let result = work(part);
            if result.is_err() {
                // The other threads stop.
                next.store(parts, Ordering::Relaxed);
            }
            let _ = slot.set(result);
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(parts)).map(|_| scope.spawn(run)).collect();
        run();
        for other in others {
            other.join().map_err(|panic| AnnDataError::panicked(what, panic.as_ref()))?;
        }
        Ok::<_, AnnDataError>(())
    })?;
    let mut results = Vec::with_capacity(parts);
    let mut missing = false;
    for slot in done {
        match slot.into_inner() {
            Some(result) => results.push(result?),
            None => missing = true,
        }
    }
    if missing {
        return Err(AnnDataError::panicked(what, &"a thread ended early"));
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestError;

    #[test]
    fn results_are_in_the_order_of_the_parts() {
        for (threads, parts) in [(0, 0), (0, 3), (1, 5), (3, 100), (9, 4)] {
            let results = in_parallel(threads, parts, "test", |part| Ok(part * 2)).unwrap();
            assert_eq!(results, (0..parts).map(|part| part * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_ends_the_work() {
        for threads in [1, 4] {
            let work = |part| if part < 7 { Ok(part) } else { Err(RequestError::TooManyGenes { genes: part }.into()) };
            let error = in_parallel(threads, 1000, "test", work).unwrap_err();
            assert!(matches!(error, AnnDataError::Request(RequestError::TooManyGenes { genes: 7 })), "{error}");
        }
    }
}
