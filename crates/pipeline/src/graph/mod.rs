//! The graph that all samples share. Invariant: it is built once per rank and never changes.

mod adjacency;
mod catalysis;
mod cell_graph;
mod gene_masks;
mod incidence;
mod merge;
mod metabolism;
mod neighbours;

pub use adjacency::Adjacency;
pub use catalysis::{Catalysis, RemovedMetabolism};
pub use cell_graph::{CellGraph, EdgeType};
pub use gene_masks::GeneMasks;
pub use incidence::Incidence;
pub use metabolism::Metabolism;
pub use neighbours::{Neighbours, Visited};
