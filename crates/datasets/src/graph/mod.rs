//! Data sets of graphs.

mod build;
mod convert;
mod dataset;
mod forecast;
pub(crate) mod graph_file;
mod manifest;
mod networks;
mod recipe;
mod samples;
mod selection;

pub use build::build;
pub use convert::Conversion;
pub use dataset::{Dataset, DatasetRecords};
pub use forecast::{Estimate, expected_bytes, unfinished_bytes};
pub use manifest::{
    BipartiteInfo, GeneCounts, Manifest, MaskInfo, NetworkInfo, SCHEMA, STORE_SCHEMA, SampleInfo, StoreInfo,
    StoreManifest,
};
pub use recipe::{Bipartite, Network, NetworkSource, Recipe, Samples};
pub use samples::SampleGenes;
pub use selection::{choose_samples, select_samples, selected_count, split_sizes};

pub(crate) use manifest::CONVERTED;

pub use crate::verify::verify_graph as verify;
