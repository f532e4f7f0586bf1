//! Data sets of arrays: the recipe, how its files are drawn, what was built.
//!
//! Invariants: every row follows from the recipe, the seed, the number of genes and its number; two machines build the same rows,
//! whatever the number of files and threads. A build takes memory for the pieces of rows that its threads work on, and 8 bytes for
//! each row of the file that it writes.

mod build;
mod built;
mod columns;
mod convert;
mod convert_file;
mod distributions;
mod finished;
mod forecast;
mod in_order;
mod manifest;
mod model;
mod recipe;
mod regroup;
mod rows;
mod shuffle;
mod shuffle_codec;
mod transfer;
mod verify;

pub use build::build;
pub use built::ArrayDataset;
pub use convert::{ConvertOptions, convert, convert_files};
pub use forecast::expected_bytes;
pub use manifest::{ARRAY_SCHEMA, ArrayFile, ArrayManifest, ArrayStoreManifest, Class, ObsColumn};
pub use recipe::{ArrayRecipe, CellTypes, Donors};
pub use verify::verify;
