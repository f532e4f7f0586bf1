//! Filters and codecs of chunks.
//!
//! Invariant: for any input, the output has exactly the size of a chunk, or there is an error; nothing is read or written
//! outside of the buffers.

pub mod blosc;
pub mod filter_chain;
pub mod filters;
