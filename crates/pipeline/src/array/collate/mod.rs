//! Rows to batches. Invariants: a batch is a function of its rows and the settings alone; its buffers are reused and never
//! larger than what the largest batch needed.

mod collator;
mod dense;
mod gene_map;
mod log1p;
mod transform;

pub use anndata_io::Row;
pub use collator::Collator;
pub use gene_map::GeneMap;
pub use log1p::log1p;
pub use transform::Transform;
