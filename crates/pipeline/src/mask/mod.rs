//! What a perturbation removes from the graph. Invariant: an edge is kept if and only if neither of its genes is
//! perturbed, so the removed edges of a sample are the union of its genes' incident edges, self-loops included. Where masks are
//! approximate, some of these edges are kept nevertheless, and no other is removed.

mod clear;
mod sampling;
mod source;
mod sources;
mod stored;
mod union;

pub use clear::fill_gene_masks;
use clear::{clear_bits, clear_bytes};
pub use sampling::{Draws, EdgeSampling};
pub use source::Source;
pub use sources::MaskSources;
pub use stored::StoredMask;
pub use union::Union;
