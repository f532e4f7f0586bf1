//! The data side of a rank: stores, samplers, graphs, masking, collation and the threaded loader. No libtorch.

pub mod array;
pub mod collate;
pub mod dataset;
mod error;
pub mod graph;
pub mod loader;
pub mod marks;
pub mod mask;
pub mod sampler;
pub mod store;

pub use anndata_io::AnnDataError;
pub use error::PipelineError;
