//! Filters that chunks are compressed with.
//!
//! Invariant: whatever the bytes are, what comes out is exactly as long as a chunk is, or an error; nothing is read or
//! written beyond the buffers.

pub(in crate::array) mod blosc;
mod chain;
pub(in crate::array) mod crc32c;
mod fletcher32;
pub(in crate::array) mod lz4;
pub(in crate::array) mod lzf;
mod shuffle;
mod whole;

pub(in crate::array) use chain::{Chain, Filter, Work};
