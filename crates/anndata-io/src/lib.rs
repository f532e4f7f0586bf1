//! Rows (cells) × columns (genes) in h5ad, zarr, parquet and MDS files, local or remote: stores that are read row by row on any
//! number of threads, and writers.
//!
//! Invariants: a store hands out rows in exactly the order asked for, whatever lies how in the file; values are float32,
//! columns int32 and ascending within a row; whoever reads never waits for another thread; a file that changed, is cut
//! short or is not what it says is an error that names it, never other numbers.

mod ann_data;
mod annotation;
mod codec;
mod collection;
mod error;
pub mod h5ad;
mod lru_cache;
mod matrix;
mod mds;
mod memory;
mod names;
pub mod nontemporal;
mod parquet;
mod rows;
mod source;
mod store;
pub mod write;
pub mod zarr;

pub use crate::ann_data::AnnDataStore;
pub use crate::collection::{Collection, Join};
pub use crate::error::AnnDataError;
pub use crate::h5ad::frame::H5adStore;
pub use crate::matrix::matrix_file::{CSC_BYTES, MatrixFile};
pub use crate::mds::index::INDEX_FILE as MDS_INDEX_FILE;
pub use crate::mds::store::MdsStore;
pub use crate::mds::writer::{MdsCompression, MdsOptions, MdsWriter};
pub use crate::memory::memory_store::{MemoryStore, Resident};
pub use crate::memory::narrow_rows::{NarrowRow, NarrowRows};
pub use crate::parquet::store::ParquetStore;
pub use crate::parquet::writer::{
    ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetObsValues, ParquetOptions,
    ParquetWriter,
};
pub use crate::rows::{CsrRows, CsrView, DenseRows, Row, Rows, RowsView};
pub use crate::source::remote;
pub use crate::source::remote::object::Ahead;
pub use crate::store::{ArrayStore, Form, LabelKind, Labels, ReadRows, Wanted};
pub use crate::zarr::frame::ZarrStore;
pub use crate::zarr::writer::ZarrWriter;
