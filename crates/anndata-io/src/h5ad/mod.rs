//! AnnData files (.h5ad).
//!
//! Invariants: the HDF5 library is asked only where things lie in a file; the matrix itself is read at positions and
//! decompressed by `matrix`, so that its global lock bounds nothing. Nothing that a file says is believed before it is checked.

pub(crate) mod array_layout;
pub(crate) mod export;
pub(crate) mod file_driver;
pub(crate) mod filters;
pub(crate) mod frame;
pub(crate) mod matrix;
pub(crate) mod values;

pub use crate::h5ad::filters::register;
pub use crate::h5ad::frame::H5adStore;
