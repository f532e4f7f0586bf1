//! Filters that HDF5 files have their chunks compressed with.
//!
//! Invariant: whatever the bytes are, what comes out is exactly as long as a chunk is, or an error; nothing is read or
//! written beyond the buffers.

mod blosc;
mod chain;
mod fletcher32;
mod lz4;
mod lzf;
mod register;
mod shuffle;

pub(super) use chain::{Chain, Work};
pub use register::register;
