//! Matrices in files, whatever describes them: where their numbers lie, and readers of rows.
//!
//! Invariants: a reader asks a [`Source`](crate::array::source::Source) for bytes at addresses and decompresses them itself;
//! nothing that a file says is believed before it is checked.

pub(in crate::array) mod array_reader;
mod chunk_plan;
pub(in crate::array) mod chunk_table;
mod csc;
mod csr;
mod dense;
mod described;
pub(in crate::array) mod element;
pub(in crate::array) mod filters;
mod matrix_file;
pub(in crate::array) mod number;
mod resident;
mod runs;
mod sparse;
pub(in crate::array) mod stored;

pub(in crate::array) use described::{Arrays, Described, Encoding};
pub use matrix_file::{CSC_BYTES, MatrixFile};
pub(in crate::array) use runs::runs;
