//! Matrices in files, whatever describes them: where their numbers lie, and readers of rows.
//!
//! Invariants: a reader asks a [`Source`](crate::source::byte_source::ByteSource) for bytes at addresses and decompresses them itself;
//! nothing that a file says is believed before it is checked.

pub mod array_reader;
pub mod dtype;
pub mod matrix_file;
pub mod row_pointers;
pub mod shared_chunks;
pub mod sparse;
pub mod stored_array;
