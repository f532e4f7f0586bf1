//! Rows in parquet files: one list of all genes' values a row, a list of gene numbers beside one of values, or a column
//! for each gene.
//!
//! Invariant: the footer and the pages are believed nothing; what does not fit is an error that names the file, and
//! values that are missing are never taken for 0.

mod codec;
mod delta;
mod dense;
mod directory;
mod file;
mod keys;
mod layout;
mod levels;
mod numeric;
mod obs;
mod obs_values;
mod options;
mod page;
mod page_header;
mod reader;
mod runs;
mod selection;
mod sparse;
mod store;
mod values;
mod wide;
mod work;
mod write_columns;
mod writer;

pub use options::{
    ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetObsValues, ParquetOptions,
};
pub use store::ParquetStore;
pub use writer::ParquetWriter;
