//! AnnData files (.h5ad).
//!
//! Invariants: the HDF5 library is asked only where things lie in a file; the matrix itself is read at positions and
//! decompressed by `matrix`, so that its global lock bounds nothing. Nothing that a file says is believed before it is checked.

mod attribute;
mod column_values;
mod datatype;
mod describe;
pub(crate) mod export;
mod frame;
mod frame_file;
mod hdf5_source;
mod heap;
mod library;
mod locate;
mod matrix;
mod register;
mod store;
mod strings;
mod table;

pub use register::register;
pub use store::H5adStore;
