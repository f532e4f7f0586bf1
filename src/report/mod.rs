//! Reports of jobs: the note of one job, the comparison of several, pages and charts.
//!
//! The flow, from the bottom up (docs/design/flow-report.md has it file by file):
//!
//! * [`rates`], [`breakdown`], [`bottleneck`], [`emulation`], [`epoch_time`], [`side_by_side`], `caution`: figures of the runs of one variant;
//! * [`variant_row`]: these figures for each variant of a job; [`mod@line`]: a row against its baseline; `warning`: what makes rows doubtful;
//! * `sections` and [`note`]: the report of one job; [`compare`]: several jobs side by side; [`job_difference`]: what two jobs were told;
//!   [`pictures`] and [`html`]: charts and pages.
//!
//! Invariant: a figure never stands without its class, a rate per iteration never without samples/s, and exposed and busy time are
//! never added up.

pub mod attempts;
pub mod bottleneck;
pub mod breakdown;
mod caution;
pub mod compare;
pub mod differences;
pub mod emulation;
pub mod epoch_time;
pub mod html;
pub mod job_difference;
pub mod junit;
mod learning;
pub mod line;
pub mod next_change;
pub mod note;
pub mod pictures;
pub mod rates;
pub mod recorded_facts;
pub mod reference;
mod scaling;
mod sections;
pub mod side_by_side;
pub mod variant_row;
mod warning;
