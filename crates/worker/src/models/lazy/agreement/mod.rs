//! Shared against replicated, over random graphs and batches.
//!
//! In double precision both give the same to 1e-9: they are one function. In float32 they agree to 1e-4, except where float32
//! itself is not that good: a prediction comes from the difference of two encodings that are almost equal, and its gradient
//! from that of two gradients. There the one may be no further from the function's value than the other.

mod cases;
mod double;
mod rounding;
mod run;
mod single;

pub(super) use cases::collate;
