//! Arrays of rows (cells) × columns (genes): samplers and batches of the second family of experiments. The files are read and
//! written by `anndata-io`.

mod batch;
pub mod collate;
pub mod dataset;
pub mod loading;
mod open;
pub mod sampler;

pub use anndata_io::{
    Ahead, AnnDataError, AnnDataStore, ArrayStore, CSC_BYTES, Collection, CsrRows, CsrView, DenseRows, Form, H5adStore,
    Join, LabelKind, Labels, MDS_INDEX_FILE, MatrixFile, MdsCompression, MdsOptions, MdsStore, MdsWriter, MemoryStore,
    NarrowRow, NarrowRows, ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetObsValues,
    ParquetOptions, ParquetStore, ParquetWriter, ReadRows, Resident, Rows, RowsView, Wanted, ZarrStore, ZarrWriter,
    h5ad, remote, write, zarr,
};
pub use batch::{ArrayBatch, Values};
pub use open::{open, open_as_configured, remote_counts, remote_options};
