//! The lazy model on one graph for all samples: docs/lazy-model.md says why it gives the same.
//!
//! Invariant: a sample differs from the wild type by its removed edges alone, and every sample starts from the same
//! embedding. The kernels of the host ([`Shared`]) correct the wild type's sums, and compute the first layer for the rows that differ.
//! libtorch's operations ([`Operations`]) compute all rows of all samples, and run on any device.

mod encoder;
mod first_layer;
mod operations;
mod removed;
mod rows;

pub(super) use encoder::Shared;
pub(super) use operations::Operations;
