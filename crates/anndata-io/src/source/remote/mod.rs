//! Objects behind HTTP(S), S3 and Google Cloud Storage, read by byte range.
//!
//! A reader asks a `RemoteObject` for ranges. Blocks come from the `BlockCache`
//! on disk; the rest becomes `RangeRequest`s in the queue of the process, which two threads of a tokio
//! runtime execute.
//!
//! Invariants: all bytes of an object are of the version that was found when it was opened, or an error says that it changed;
//! the request that a thread waits for is sent before all others; a request that nobody waits for any more is cancelled.

pub(crate) mod address;
pub(crate) mod block_cache;
pub(crate) mod failure;
pub(crate) mod fetch;
pub(crate) mod object;
pub(crate) mod request;
pub(crate) mod service;

pub use crate::source::remote::address::check_url;
pub use crate::source::remote::object::Prefetch;
pub use crate::source::remote::service::{
    CacheOptions, RemoteCounts, RemoteOptions, RetryPolicy, configure, remote_counts,
};
