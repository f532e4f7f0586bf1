//! AnnData files (.h5ad).
//!
//! Invariants: the HDF5 library is asked only where things lie in a file; the matrix itself is read at positions and
//! decompressed here, so that its global lock bounds nothing. Nothing that a file says is believed before it is checked.

mod array_reader;
mod attribute;
mod chunk_table;
mod column;
mod column_values;
mod csc;
mod csr;
mod dense;
mod describe;
mod element;
pub mod filters;
mod frame;
mod frame_file;
mod matrix;
mod number;
mod resident;
mod source;
mod sparse;
mod store;
mod stored;
mod strings;
mod table;

pub use matrix::{CSC_BYTES, MatrixFile};
pub use store::H5adStore;
