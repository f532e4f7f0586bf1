//! AnnData files (.h5ad).
//!
//! Invariants: the HDF5 library is asked only where things lie in a file; the matrix itself is read at positions and
//! decompressed here, so that its global lock bounds nothing. Nothing that a file says is believed before it is checked.

mod column;
mod column_values;
mod frame;
mod frame_file;
mod matrix_simple;
mod store;
mod strings;

pub use matrix_simple::MatrixFile;
pub use store::H5adStore;
