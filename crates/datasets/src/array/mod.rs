//! Data sets of arrays.
//!
//! Invariants: every row follows from the recipe, the seed, the number of genes and the row's index; two machines build the
//! same rows with any number of files and threads. A build takes memory for the pieces of rows that its threads work on, and
//! 8 bytes for each row of the file that it writes.

mod build;
mod convert;
mod convert_file;
mod count_model;
mod dataset;
mod open;
mod recipe;
mod rehearsal;
mod rows;
mod shuffle;
mod source_file;

pub use build::build;
pub use convert::{ConvertOptions, convert, convert_files};
pub use dataset::{ARRAY_SCHEMA, ArrayDataset, ArrayFile, ArrayManifest, ArrayStoreManifest, ObsClass, ObsColumn};
pub use open::{open, open_as_configured, remote_counts, remote_options};
pub use recipe::{ArrayRecipe, CellTypes, Donors, Treatments, expected_bytes};
pub use rehearsal::{Refusal, rehearse};

pub(crate) use convert::check_content;

pub use crate::verify::verify_array as verify;
