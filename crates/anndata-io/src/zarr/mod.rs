//! AnnData in zarr folders, versions 2 and 3 of the format, sharded or not.
//!
//! Invariants: metadata says where chunks lie and how they are encoded; the matrix itself is read at positions and decoded by
//! `matrix`. All metadata is checked before it is used, and no key leads out of the folder.
//!
//! Sources: <https://zarr-specs.readthedocs.io> (core 2 and 3, sharding_indexed), <https://zarr.dev/zarr-extensions/>,
//! numcodecs, and <https://anndata.readthedocs.io/en/stable/fileformat-prose.html>.

pub(crate) mod array;
pub(crate) mod codecs;
pub(crate) mod data_type;
pub(crate) mod frame;
pub(crate) mod hierarchy;
pub(crate) mod matrix;
pub(crate) mod metadata;
pub(crate) mod sharded_writer;
pub(crate) mod writer;

pub use crate::zarr::hierarchy::is_zarr;
pub use crate::zarr::matrix::{open_matrix, size};
