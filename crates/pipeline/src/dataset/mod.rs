//! Data sets: the recipe, how it is built, what was built.
//!
//! Invariant: everything in a data set follows from the recipe's files and the settings of `[data]`; two machines
//! build the same edges, samples and records.

pub(crate) mod advice;
mod build;
mod built;
mod convert;
mod convert_check;
mod edges;
mod estimate;
mod family;
pub(crate) mod files;
mod forecast;
mod genes;
mod graph_file;
mod labels;
pub(crate) mod manifest;
mod metabolism;
mod networks;
pub(crate) mod partial;
mod planted;
mod recipe;
pub(crate) mod rng;
mod sample_genes;
mod store_manifest;
mod template;
mod triples;
mod verify;

pub use build::build;
pub use built::Dataset;
pub use convert::Conversion;
pub use estimate::Estimate;
pub use family::Family;
pub(crate) use family::recipe_text;
pub use files::{BuildProgress, free_bytes};
pub use forecast::{expected_bytes, unfinished_bytes};
pub use manifest::{BipartiteInfo, FileInfo, GeneCounts, Manifest, NetworkInfo, Origin, SCHEMA, SampleInfo, StoreInfo};
pub use recipe::{Bipartite, Network, NetworkSource, Recipe, Samples};
pub use sample_genes::SampleGenes;
pub use store_manifest::{MaskInfo, STORE_SCHEMA, StoreManifest};
pub use verify::verify;
