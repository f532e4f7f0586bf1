//! Statistics of step times, rates and their ratios: estimates with their uncertainty, and what may be said of them.
//!
//! | Module | What it computes |
//! |---|---|
//! | `descriptive` | mean, median, quantiles, modified z scores; slow steps, runs apart from the others |
//! | `run_rate` | rate of the steps of one run, rates over runs, mean epoch time, each with an interval |
//! | `block_bootstrap` | standard error of the mean of dependent steps |
//! | `ratio` | ratio and difference of two sides, unpaired (Welch), paired, and of two short series of steps; smallest ratio that can be detected |
//! | `permutation` | permutation test of two sides |
//! | `student` | Student's t and its interval |
//! | `verdict` | Holm's correction, and the words "faster" and "slower" |
//! | `stationarity` | warm-up (MSER-5) and drift of a series |
//! | `periods` | steps after which a series repeats itself |
//! | `change_points` | levels of a series of jobs and the changes between them; a new job against the level before it |
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

mod block_bootstrap;
mod change_points;
mod descriptive;
mod periods;
mod permutation;
mod ratio;
mod run_rate;
mod stationarity;
mod student;
mod verdict;

pub use block_bootstrap::MIN_PERIODS_FOR_INTERVAL;
pub use change_points::{
    CHANGE_ALPHA, LevelChange, MIN_RATES_AT_LEVEL, MIN_RATES_FOR_CHANGE, RateLevel, RateLevels, rate_levels,
    ratio_to_level,
};
pub use descriptive::{Outliers, mean, median, modified_z, outlying, quantile, slow_outliers};
pub use periods::{LaggedProducts, MIN_PERIODS_FOR_SHAPE, Periods};
pub use permutation::{Permutation, permutation_test};
pub use ratio::{
    ComparedSteps, Difference, POWER, Ratio, compare_steps, difference, minimum_detectable, minimum_detectable_paired,
    paired_difference, paired_ratio, paired_ratio_at, ratio,
};
pub use run_rate::{
    Estimate, MIN_STEPS_FOR_INTERVAL, RateOverRuns, RunRate, Scope, epoch_mean, rate_over_runs, run_rate,
};
pub use stationarity::{Drift, MIN_STEPS_FOR_SHAPE, WarmUp, drift, warm_up};
pub use student::{ALPHA, Interval, noncentral_t};
pub use verdict::{
    Judgement, MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, RatioOfRuns, Verdict, holm, judge, verdict,
};
