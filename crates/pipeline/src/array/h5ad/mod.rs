//! AnnData files (.h5ad).
//!
//! Invariants: the HDF5 library is asked only where things lie in a file; the matrix itself is read at positions and
//! decompressed here, so that its global lock bounds nothing. Nothing that a file says is believed before it is checked.

mod array_reader;
mod attribute;
mod chunk_table;
mod csc;
mod csr;
mod dense;
mod describe;
mod element;
pub mod filters;
mod matrix;
mod number;
mod resident;
mod source;
mod sparse;
mod stored;

pub use matrix::{CSC_BYTES, MatrixFile};
