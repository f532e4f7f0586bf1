//! What a perturbation removes from the graph. Invariant: an edge is kept if and only if neither of its genes is
//! perturbed, so the removed edges of a sample are the union of its genes' incident edges, self-loops included.

mod byte_mask;
mod removed_edges;

pub use byte_mask::{fill_edge_mask, fill_gene_masks};
pub use removed_edges::RemovedEdges;
