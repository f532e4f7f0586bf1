//! The same work on many files, on several threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A login node is shared, and a file server is not faster with more threads.
const MAX_THREADS: usize = 8;
/// With fewer items a thread costs more than it saves.
const MIN_ITEMS_PER_THREAD: usize = 16;

/// Number of threads for work that can use many: one for each processor that this process may use, and 8 at most.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS)
}

/// Apply `work` to each item. Results are in the order of the items.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = threads().min(items.len() / MIN_ITEMS_PER_THREAD);
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            // Each index goes to one thread.
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(item)));
        }
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let results =
            handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results.flatten().collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for n in [0, 1, 31, 32, 1000] {
            let items: Vec<usize> = (0..n).collect();
            assert_eq!(map(&items, |i| i * 2), items.iter().map(|i| i * 2).collect::<Vec<_>>());
        }
    }
}
