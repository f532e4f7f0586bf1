//! What training came to, epoch by epoch.

mod figures;
mod table;

use minijinja::{Value, context};

use expctl_record::{MeasuredJob, Run};

pub use figures::{Learned, learned};

/// What the template shows; none where no run has epochs. `plot` is the file name of the curves, beside the note.
pub fn learning(job: &MeasuredJob, plot: &str) -> Option<Value> {
    if !has_learning(job) {
        return None;
    }
    Some(context! {
        runs => table::runs(job).markdown(),
        medians => table::medians(job).map(|table| table.markdown()),
        plot,
    })
}

/// Whether a run has epochs.
pub fn has_learning(job: &MeasuredJob) -> bool {
    job.runs.iter().any(|run| !run.learning.is_empty())
}

/// Runs with epochs by label, in the order of their first trial.
fn with_epochs(job: &MeasuredJob) -> Vec<(String, Vec<&Run>)> {
    let mut groups = job.by_label();
    for (_, runs) in &mut groups {
        runs.retain(|run| !run.learning.is_empty());
    }
    groups.retain(|(_, runs)| !runs.is_empty());
    groups
}
