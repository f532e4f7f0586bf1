use std::sync::atomic::{AtomicU64, Ordering};

use expctl_record::RemoteCounts;

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
