//! Estimates with their uncertainty.
//!
//! Invariant: everything here works on raw values; rounding happens once, where a number is printed.

mod difference;
mod quantile;
mod ratio;

pub use difference::{Difference, difference};
pub use quantile::{mean, median, quantile};
pub use ratio::{Interval, MIN_RUNS_FOR_VERDICT, Ratio, Verdict, ratio, verdict};
