//! Objects behind HTTP(S) and S3, read in parts.
//!
//! Invariants: every byte is of the version that was found when the object was opened, or an error says that it changed; what
//! is asked for arrives on two threads of the process, of which nobody else sees anything; a thread that waits for a part has
//! it asked for before all others; parts that nobody waits for any more are given up.

mod address;
mod answer;
mod cache;
mod counts;
mod cover;
mod failure;
mod fetch;
mod object;
mod options;
mod pages;
mod pending;
mod prefix;
mod queue;
mod runtime;
mod service;
mod unit;

pub use address::check_url;
pub use counts::RemoteCounts;
pub use options::{CacheOptions, Patience, RemoteOptions};
pub use pending::Ahead;
pub use service::{configure, remote_counts};

pub(crate) use object::RemoteObject;
pub(super) use pending::Arriving;
pub(super) use prefix::RemotePrefix;
