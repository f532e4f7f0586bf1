//! Pictures of a measured job: what stands in its ledger, as charts.
//!
//! Invariant: every picture says in its caption of what class its figures are and over how many runs and steps they were taken,
//! and is left out where it would say nothing.

mod boxplot;
mod epoch_time;
mod learning;
mod ranks;
mod rates;
mod scaling;
mod stages;
mod timeline;
mod times;
mod words;

use crate::plot::Chart;
use expctl_record::MeasuredJob;

pub use boxplot::{TimeBox, WHISKERS, box_panel};
pub use epoch_time::{EpochBar, epoch_panel};
pub use learning::LEARNING;

/// All pictures of a job, in the order in which a reader wants them.
pub fn pictures(job: &MeasuredJob) -> Vec<Chart> {
    [
        rates::rates(job),
        epoch_time::epoch_time(job),
        stages::stages(job),
        boxplot::boxplot(job),
        times::times(job),
        timeline::timeline(job),
        ranks::ranks(job),
        scaling::scaling(job),
        learning::learning(job),
    ]
    .into_iter()
    .flatten()
    .collect()
}
