//! Filters that chunks are compressed with.
//!
//! Invariant: whatever the bytes are, what comes out is exactly as long as a chunk is, or an error; nothing is read or
//! written beyond the buffers.

pub(crate) mod blosc;
mod chain;
pub(crate) mod crc32c;
mod fletcher32;
pub(crate) mod lz4;
pub(crate) mod lzf;
mod shuffle;
mod whole;

pub(crate) use chain::{Chain, Filter, Work};
