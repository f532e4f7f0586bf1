//! Estimates with their uncertainty.
//!
//! Invariant: everything here works on raw values; rounding happens once, where a number is printed.

mod quantile;
mod ratio;

pub use quantile::{mean, median, quantile};
pub use ratio::{Interval, MIN_RUNS_FOR_VERDICT, Ratio, Verdict, ratio, verdict};
