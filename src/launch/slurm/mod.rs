//! The Slurm backend: an array job per submission (several where trials ask for different resources, or are many), a task
//! per trial (or per list of trials), an `srun` per trial.
//!
//! Invariant: Slurm only ever knows where and when; what a trial is, and how it ended, is in the ledger.

mod accounting;
mod arrays;
mod attempt;
mod availability;
mod cancel;
mod chain;
mod commands;
mod container;
mod logs;
mod parts;
mod poll;
mod queue;
mod resources;
mod rest;
mod retry;
mod script;
mod srun_log;
mod standing;
mod state;
mod submit;
mod submitted;
mod table;
mod task_ids;
mod tasks;
mod test_only;
mod tools;
mod usage;
mod wait;

use std::path::Path;

use expctl_record::JobRecord;

pub use arrays::{Array, Arrays, Turn};
pub use attempt::{stage, stage_task, started};
pub use availability::Availability;
pub use logs::script_logs;
pub use poll::Interval;
pub use rest::Rest;
pub use retry::Adjustment;
pub use script::render;
pub use srun_log::process_ends;
pub use standing::{Standing, Standings};
pub use submit::Order;
pub use submitted::Submitted;
pub use tasks::{Queue, Task, TaskState, stop_reason};
pub use tools::{Programs, Slurm, ToolError};
pub use wait::{TrialProgress, WaitProgress};

use crate::exit::Failure;
use crate::launch::needed_worker;
use crate::project::Project;

/// Whether there is a Slurm to submit to. See [`Slurm::availability`].
pub fn available() -> Availability {
    Slurm::from_environment().availability()
}

/// The batch scripts of a job as they would be submitted, one for each array.
///
/// # Errors
/// As [`render`].
pub fn scripts(project: &Project, job: &JobRecord) -> Result<Vec<String>, Failure> {
    script::render(project, job, &Programs::find()?)
}

/// Submit a job; returns the id that Slurm gave it. See [`Slurm::submit`].
///
/// # Errors
/// As [`Slurm::submit`]; exit 70 if there is no worker, before a job waits in the queue for nothing.
pub fn submit(project: &Project, job: JobRecord, order: Order) -> Result<u64, Failure> {
    needed_worker(&job.trials)?;
    Slurm::of_backend(&job.backend)?.submit(project, job, &Programs::find()?, order)
}

/// Write down what Slurm measured of a job that nobody waited for, if there is a Slurm here that answers.
///
/// # Errors
/// As [`Slurm::collect_usage`].
pub fn collect_usage(project: &Project, job: &JobRecord) -> Result<(), Failure> {
    if !job.on_slurm() || available() != Availability::Ready {
        return Ok(());
    }
    Slurm::from_environment().collect_usage(&project.job(job.job), job.job, false)
}

/// Wait until every trial of a job has an outcome. See [`Slurm::wait`].
///
/// # Errors
/// As [`Slurm::wait`].
pub fn wait(project: &Project, id: u64, progress: &mut dyn FnMut(WaitProgress)) -> Result<(), Failure> {
    Slurm::of_job(&project.job(id).record()?.backend)?.wait(project, id, progress)
}

/// Text of a path for a script.
fn path_text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::new(crate::exit::Exit::Usage, format!("the path {} is not valid UTF-8", path.display()))
    })
}
