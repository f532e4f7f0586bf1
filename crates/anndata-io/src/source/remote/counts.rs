use std::sync::atomic::{AtomicU64, Ordering};

/// Requests and bytes that reading remote files took this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCounts {
    /// Requests that were sent, repeated ones too.
    pub requests: u64,
    /// Requests that repeat one that failed.
    pub retries: u64,
    /// Bytes of objects that came from servers.
    pub remote_bytes: u64,
    /// Bytes that were taken from the cache instead.
    pub cache_bytes: u64,
    /// Blocks that were in the cache.
    pub hits: u64,
    /// Blocks that were not in the cache; 0 without one.
    pub misses: u64,
    /// Blocks that could not be written to the cache: the disk is full, or it is in use.
    pub not_kept: u64,
}

/// [`RemoteCounts`], counted by many threads.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) remote_bytes: AtomicU64,
    pub(super) cache_bytes: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) not_kept: AtomicU64,
}

impl Counters {
    pub(super) fn now(&self) -> RemoteCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteCounts {
            requests: of(&self.requests),
            retries: of(&self.retries),
            remote_bytes: of(&self.remote_bytes),
            cache_bytes: of(&self.cache_bytes),
            hits: of(&self.hits),
            misses: of(&self.misses),
            not_kept: of(&self.not_kept),
        }
    }
}

/// Count `n` more.
pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
