//! The graph that all samples share. Invariant: it is built once per rank and never changes.

mod cell_graph;
mod incidence;

pub use cell_graph::{CellGraph, EdgeType};
pub use incidence::Incidence;
