//! All implementations of the lazy model against the replicated one, over random graphs and batches.
//!
//! In double precision all results are equal to 1e-9: they are one function. In float32 the error of an implementation is bounded by that of the
//! replicated one, both measured from double precision: no constant would do, because a prediction comes from the difference of two almost equal
//! encodings, and its gradient from the difference of two gradients.

mod cases;
mod double;
mod rounding;
mod run;
mod single;
mod subgraphs;
