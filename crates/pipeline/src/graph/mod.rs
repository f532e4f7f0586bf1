//! The graph that all samples share.

mod cell_graph;

pub use cell_graph::{CellGraph, EdgeType};
