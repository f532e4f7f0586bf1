//! Rows in parquet files: one list of all genes' values a row, a list of gene numbers beside one of values, or a column
//! for each gene.
//!
//! Invariant: the footer and the pages are believed nothing; what does not fit is an error that names the file, and
//! values that are missing are never taken for 0.

pub mod decode;
pub mod file;
pub mod levels;
pub mod obs;
pub mod page;
pub mod page_directory;
pub mod page_header;
pub mod reader;
pub mod schema;
pub mod store;
pub mod values;
pub mod writer;
