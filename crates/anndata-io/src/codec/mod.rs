//! Filters that chunks are compressed with.
//!
//! Invariant: whatever the bytes are, what comes out is exactly as long as a chunk is, or an error; nothing is read or
//! written beyond the buffers.

pub mod blosc;
pub mod filter_chain;
pub mod filters;
