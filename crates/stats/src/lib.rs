//! Estimates with their uncertainty, and what may be said of them.
//!
//! Invariant: everything here works on raw values; rounding happens once, where a number is printed. Nothing here draws random
//! numbers that differ from one call to the next: a report is the same twice.
//!
//! What is computed, with formulas, sources and simulations, stands in `docs/statistics.md`.

mod blocks;
mod compared_steps;
mod correlogram;
mod detectable;
mod difference;
mod drift;
mod epoch_mean;
mod holm;
mod lagged_products;
mod noncentral;
mod outliers;
mod over_runs;
mod paired;
mod parts;
mod periods;
mod permutation;
mod quantile;
mod ratio;
mod run_rate;
mod student;
mod verdict;
mod warm_up;

pub use blocks::MIN_PERIODS_FOR_INTERVAL;
pub use compared_steps::{ComparedSteps, compare_steps};
pub use detectable::{POWER, minimum_detectable, minimum_detectable_paired};
pub use difference::{Difference, difference, paired_difference};
pub use drift::{Drift, drift};
pub use epoch_mean::epoch_mean;
pub use holm::holm;
pub use lagged_products::LaggedProducts;
pub use noncentral::noncentral_t;
pub use outliers::{Outliers, modified_z, outlying, slow_outliers};
pub use over_runs::{RateOverRuns, Scope, rate_over_runs};
pub use paired::paired_ratio;
pub use periods::{MIN_PERIODS_FOR_SHAPE, Periods};
pub use permutation::{Permutation, permutation_test};
pub use quantile::{mean, median, quantile};
pub use ratio::{Interval, Ratio, ratio};
pub use run_rate::{Estimate, MIN_STEPS_FOR_INTERVAL, RunRate, run_rate};
pub use verdict::{
    ALPHA, Judgement, MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, RatioOfRuns, Verdict, judge, verdict,
};
pub use warm_up::{MIN_STEPS_FOR_SHAPE, WarmUp, warm_up};
