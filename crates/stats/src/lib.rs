//! Statistics of step times, rates and their ratios: estimates with their uncertainty, and what may be said of them.
//!
//! | Module | What it computes |
//! |---|---|
//! | `descriptive` | mean, median, quantiles, modified z scores |
//! | `run_rate` | rate of the steps of one run, with an interval that allows for dependent steps (block bootstrap) |
//! | `estimate` | rates over runs, mean epoch time |
//! | `ratio` | ratio and difference of two sides, unpaired (Welch) and paired; smallest ratio that can be detected |
//! | `compared_steps` | difference and ratio of two short series of steps |
//! | `permutation` | permutation test of two sides |
//! | `verdict` | Holm's correction, and the words "faster" and "slower" |
//! | `stationarity` | warm-up (MSER-5) and drift of a series |
//! | `outliers` | slow steps, runs apart from the others |
//! | `periods`, `autocorrelation` | steps after which a series repeats itself |
//!
//! Invariants: all functions work on raw values and round nothing. They are deterministic: where one draws random numbers, the seed
//! is a function of the values. They are free of units but for [`MIN_SECONDS_FOR_VERDICT`]: a result has the unit of its values.
//!
//! `docs/reference/statistics.md` has simulations of how well the intervals cover and how often verdicts are wrong.
//!
//! ```
//! use expctl_stats::{Verdict, ratio, verdict};
//!
//! // Steps per second of three runs of a variant, and of three of the baseline.
//! let found = ratio(&[12.0, 12.9, 12.2], &[10.0, 10.4, 9.8]).unwrap();
//! assert!((found.value - 1.228).abs() < 1e-3);
//! assert_eq!(verdict(&found, (3, 3)), Verdict::Faster);
//! ```

mod autocorrelation;
mod block_bootstrap;
mod compared_steps;
mod descriptive;
mod estimate;
mod outliers;
mod periods;
mod permutation;
mod ratio;
mod run_rate;
mod stationarity;
mod student;
mod verdict;

pub use autocorrelation::LaggedProducts;
pub use block_bootstrap::MIN_PERIODS_FOR_INTERVAL;
pub use compared_steps::{ComparedSteps, compare_steps};
pub use descriptive::{mean, median, modified_z, quantile};
pub use estimate::{Estimate, RateOverRuns, Scope, epoch_mean, rate_over_runs};
pub use outliers::{Outliers, outlying, slow_outliers};
pub use periods::{MIN_PERIODS_FOR_SHAPE, Periods};
pub use permutation::{Permutation, permutation_test};
pub use ratio::{
    Difference, POWER, Ratio, difference, minimum_detectable, minimum_detectable_paired, paired_difference,
    paired_ratio, ratio,
};
pub use run_rate::{MIN_STEPS_FOR_INTERVAL, RunRate, run_rate};
pub use stationarity::{Drift, MIN_STEPS_FOR_SHAPE, WarmUp, drift, warm_up};
pub use student::{ALPHA, Interval, noncentral_t};
pub use verdict::{
    Judgement, MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, RatioOfRuns, Verdict, holm, judge, verdict,
};
