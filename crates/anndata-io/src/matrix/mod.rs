//! Matrices in files, whatever describes them: where their numbers lie, and readers of rows.
//!
//! Invariants: a reader asks a [`Source`](crate::source::Source) for bytes at addresses and decompresses them itself;
//! nothing that a file says is believed before it is checked.

pub(crate) mod array_reader;
mod chunk_plan;
pub(crate) mod chunk_table;
mod csc;
mod csr;
mod dense;
mod described;
pub(crate) mod element;
pub(crate) mod filters;
mod matrix_file;
pub(crate) mod number;
mod resident;
mod runs;
mod sparse;
pub(crate) mod stored;

pub(crate) use described::{Arrays, Described, Encoding};
pub use matrix_file::{CSC_BYTES, MatrixFile};
pub(crate) use runs::runs;
