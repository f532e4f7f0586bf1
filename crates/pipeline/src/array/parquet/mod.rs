//! Rows in parquet files: one list of all genes' values a row, a list of gene numbers beside one of values, or a column for
//! each gene.
//!
//! Invariant: the footer and the pages are believed nothing; what does not fit is an error that names the file, and values that
//! are missing are never taken for 0.

mod keys;
mod options;
mod writer;

pub use options::{
    ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetObsValues, ParquetOptions,
};
pub use writer::ParquetWriter;
