//! Reads and writes AnnData matrices (rows are cells, columns are genes) row by row: h5ad, zarr, parquet and MDS, from local files
//! or from object stores.
//!
//! Each format has a store: [`H5adStore`], [`ZarrStore`], [`ParquetStore`] and [`MdsStore`]; [`Collection`] joins several stores as
//! `anndata.concat` does, and [`MemoryStore`] holds the rows of a store in memory. All of them are an [`ArrayStore`]: any thread can
//! take a [`ReadRows`] of its own from it. Values are float32, columns are int32 and ascend within a row.
//!
//! # Example
//!
//! ```
//! use anndata_io::{ArrayStore, Form, H5adStore, RowSelection, Rows};
//!
//! # fn main() -> Result<(), anndata_io::AnnDataError> {
//! let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/anndata/anndata_0.8.0.h5ad");
//! let store = H5adStore::open(path.as_ref(), "X")?; // Or "raw", or "layers/NAME".
//! assert_eq!((store.len(), store.genes().len(), store.form()), (23, 6, Form::Sparse));
//!
//! // A column of obs as classes.
//! let kind = store.labels("kind")?;
//! assert_eq!(kind.categories[kind.codes[2] as usize], "NK, α-β");
//!
//! // Rows 20, 3 and 3, in this order: `fetch` reads bytes, `decode` decompresses and converts them.
//! let mut rows = Rows::Sparse(Default::default());
//! let mut reader = store.reader()?;
//! reader.fetch(&RowSelection::Rows(&[20, 3, 3]), &mut rows)?;
//! reader.decode(&mut rows)?;
//! reader.unchanged()?; // An error if the file was written to in the meantime.
//! let Rows::Sparse(rows) = rows else { unreachable!("the store is sparse") };
//! assert_eq!(rows.len(), 3);
//! assert_eq!(rows.view().row(1), rows.view().row(2));
//! # Ok(())
//! # }
//! ```
//!
//! # Flow
//!
//! ```text
//! ByteSource     a local file, the files of a folder in one address space, or the objects below a URL
//!     │          byte ranges that are close are coalesced into one read; remote blocks go through a cache on disk
//! chunk, page, shard   decoded by codecs; the last ones stay in an LRU cache of their reader
//!     │
//! stored array   dtype, shape, fill value and chunk grid (h5ad, zarr); columns (parquet); samples (MDS)
//!     │
//! Rows           CSR or dense, in the order in which they were asked for
//! ```
//!
//! # Invariants
//!
//! - A reader appends rows in exactly the order of the [`RowSelection`], wherever they lie in the file.
//! - A reader never waits for another reader, except for bytes that both need from a server.
//! - A file that changed, is cut short or contradicts its format is an [`AnnDataError`] that names the file; the reader never
//!   returns other numbers.

mod ann_data;
mod annotation;
mod codec;
mod collection;
mod error;
mod h5ad;
mod in_parallel;
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
pub use crate::collection::{Collection, GeneJoin};
pub use crate::error::{AnnDataError, Damage, RequestError};
pub use crate::h5ad::filters::register_hdf5_filters;
pub use crate::h5ad::frame::H5adStore;
pub use crate::matrix::matrix_file::{CSC_BYTES, MatrixFile};
pub use crate::mds::index::INDEX_FILE as MDS_INDEX_FILE;
pub use crate::mds::store::MdsStore;
pub use crate::mds::writer::{MdsCompression, MdsOptions, MdsWriter};
pub use crate::memory::Resident;
pub use crate::memory::memory_store::MemoryStore;
pub use crate::memory::narrow_rows::{NarrowRow, NarrowRows};
pub use crate::memory::paged_rows::{PagePool, PagedRows};
pub use crate::names::{MissingName, NameError};
pub use crate::parquet::store::ParquetStore;
pub use crate::parquet::writer::{
    ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetObsValues, ParquetOptions,
    ParquetWriter,
};
pub use crate::rows::{CsrRows, CsrView, DenseRows, RowView, Rows, RowsView};
pub use crate::source::remote;
pub use crate::source::remote::object::Prefetch;
pub use crate::store::{Annotation, ArrayStore, Form, LabelKind, Labels, ReadRows, RowLocation, RowSelection};
pub use crate::zarr::frame::ZarrStore;
pub use crate::zarr::writer::ZarrWriter;

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
