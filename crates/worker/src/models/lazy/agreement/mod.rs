//! Shared against replicated, over random graphs and batches.
//!
//! In double precision both give the same to 1e-9: they are one function. In float32 the shared model's error is bounded by that of
//! the replicated one, both measured from double precision: no constant would do, because a prediction comes from the difference
//! of two encodings that are almost equal, and its gradient from that of two gradients.

mod cases;
mod double;
mod rounding;
mod run;
mod single;

pub(super) use cases::collate;
