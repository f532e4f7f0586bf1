//! The lazy model on one graph for all samples: docs/lazy-model.md says why it gives the same.
//!
//! Invariant: a sample differs from the wild type by its removed edges alone, and every sample starts from the same
//! embedding. So the wild type's sums are corrected, and the first layer works on the rows that differ.

mod encoder;
mod first_layer;
mod removed;
mod rows;

pub(super) use encoder::Shared;
