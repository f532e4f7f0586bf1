//! Rows in parquet files: a list of the values of all genes in each row, a list of gene numbers with a list of values, or a
//! column for each gene.
//!
//! Invariant: footer and pages are checked before they are used; a contradiction is an error that names the file, and a missing
//! value is never read as 0.

pub mod column_writer;
pub mod decode;
pub mod error;
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
