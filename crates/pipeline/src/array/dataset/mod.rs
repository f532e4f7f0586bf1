//! Data sets of arrays: the recipe, how its files are drawn, what was built.
//!
//! Invariant: every row follows from the recipe, the seed, the scale and its number; two machines build the same rows,
//! whatever the number of files and threads.

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
