//! Objects behind HTTP(S) and S3, read in parts.
//!
//! Invariants: every byte is of the version that was found when the object was opened, or an error says that it changed; what
//! is asked for arrives on two threads of the process, of which nobody else sees anything; a thread that waits for a part has
//! it asked for before all others; parts that nobody waits for any more are given up.

pub(crate) mod address;
pub(crate) mod block_cache;
pub(crate) mod failure;
pub(crate) mod fetch;
pub(crate) mod object;
pub(crate) mod request;
pub(crate) mod service;

pub use crate::source::remote::address::check_url;
pub use crate::source::remote::object::Ahead;
pub use crate::source::remote::service::{
    CacheOptions, Patience, RemoteCounts, RemoteOptions, configure, remote_counts,
};
