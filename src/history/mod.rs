//! How the rates of a config or variant developed over the jobs of a ledger: where they changed, by how much, and what changed with them.
//!
//! | Module | Content |
//! |---|---|
//! | `query` | which jobs and trials are asked for |
//! | `job_rates` | what one job says of a variant: rates, environment |
//! | `rated_jobs` | the jobs of a ledger with their rates, read once and then cached |
//! | `environment` | what a job ran with, and in what jobs differ |
//! | `series` | jobs with equal settings on equal hardware, in order; their levels and changes |
//! | `rate_history` | all series, published rates, and what could not be read |
//! | `gate` | the newest job against the level before it |
//! | `percent` | ratios as changes in percent |
//! | `render`, `picture` | tables, markdown, CSV, JSON; a chart |
//!
//! Invariant: rates are in one series only if settings and class of hardware are equal, and published rates are in none. A trial or job
//! that does not count is named.

mod environment;
mod gate;
mod job_rates;
mod percent;
mod picture;
mod query;
mod rate_history;
mod rated_jobs;
mod render;
mod series;

pub use gate::{DEFAULT_MARGIN, GateState, NewestCheck, newest_checks};
pub use picture::{rates_chart, series_chart};
pub use query::HistoryQuery;
pub use rate_history::{HistoryError, RateHistory};
pub use rated_jobs::RatedJobs;
pub use render::DEFAULT_ROWS;
pub use series::{RateSeries, grouped};
