//! Rows (cells) × columns (genes) in h5ad, zarr, parquet and MDS files, local or remote: stores that are read row by row on any
//! number of threads, and writers.
//!
//! Invariants: a store hands out rows in exactly the order asked for, whatever lies how in the file; values are float32,
//! columns int32 and ascending within a row; whoever reads never waits for another thread; a file that changed, is cut
//! short or is not what it says is an error that names it, never other numbers.

mod ann_data;
mod annotation;
mod collection;
mod error;
mod file_state;
pub mod h5ad;
mod labels;
mod limit;
mod matrix;
mod mds;
mod memory;
mod names;
pub mod nontemporal;
mod parquet;
mod row;
mod rows;
mod source;
mod store;
pub mod write;
pub mod zarr;

pub use ann_data::AnnDataStore;
pub use collection::{Collection, Join};
pub use error::AnnDataError;
pub use h5ad::H5adStore;
pub use labels::{LabelKind, Labels};
pub use matrix::{CSC_BYTES, MatrixFile};
pub use mds::{INDEX_FILE as MDS_INDEX_FILE, MdsCompression, MdsOptions, MdsStore, MdsWriter};
pub use memory::{MemoryStore, NarrowRow, NarrowRows, Resident};
pub use parquet::{
    ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetObsValues, ParquetOptions,
    ParquetStore, ParquetWriter,
};
pub use row::Row;
pub use rows::{CsrRows, CsrView, DenseRows, Rows, RowsView};
pub use source::remote::{self, Ahead};
pub use store::{ArrayStore, Form, ReadRows, Wanted};
pub use zarr::{ZarrStore, ZarrWriter};
