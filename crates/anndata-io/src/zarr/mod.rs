//! AnnData in zarr folders, versions 2 and 3 of the format, sharded or not.
//!
//! Invariants: metadata says where chunks lie and how they are compressed; the matrix itself is read at positions and
//! decompressed by `matrix`. Nothing that a file says is believed before it is checked, and no key leads out
//! of the folder.
//!
//! Sources: <https://zarr-specs.readthedocs.io> (core 2 and 3, sharding_indexed), <https://zarr.dev/zarr-extensions/>,
//! numcodecs, and <https://anndata.readthedocs.io/en/stable/fileformat-prose.html>.

mod array_meta;
mod array_v2;
mod array_v3;
mod codecs;
mod data_type;
mod describe;
mod frame;
mod json;
mod locate;
mod matrix;
mod shard_index;
mod store;
mod tree;
mod values;
mod write;

pub use matrix::{open_matrix, size};
pub use store::ZarrStore;
pub use tree::is_zarr;
pub use write::ZarrWriter;
