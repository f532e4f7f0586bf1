//! AnnData files in HDF5 (.h5ad).
//!
//! Invariants: libhdf5 only says where arrays lie; the matrix itself is read at positions and decoded by `matrix`, and names of genes by
//! `variable_strings`, so that the global lock of libhdf5 does not limit threads. Every number in a file is checked before it is used.

pub(crate) mod array_layout;
pub(crate) mod export;
pub(crate) mod file_driver;
pub(crate) mod filters;
pub(crate) mod frame;
pub(crate) mod global_heap;
pub(crate) mod matrix;
pub(crate) mod values;
pub(crate) mod variable_strings;
