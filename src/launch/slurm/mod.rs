//! The Slurm backend: one array job per submission, one array task per trial, one `srun` per task.
//!
//! Invariant: Slurm only ever knows where and when; what a trial is, and how it ended, is in the ledger.

mod attempt;
mod availability;
mod cancel;
mod container;
mod resources;
mod rest;
mod retry;
mod script;
mod srun_log;
mod standing;
mod submissions;
mod submit;
mod submitted;
mod tasks;
mod tools;
mod wait;

use std::path::Path;

use expctl_record::JobRecord;

pub use attempt::{stage, started};
pub use availability::Availability;
pub use rest::Rest;
pub use script::render;
pub use srun_log::process_ends;
pub use standing::{Standing, Standings};
pub use submitted::Submitted;
pub use tasks::{Queue, Task, TaskState, stop_reason};
pub use tools::{Programs, Slurm, ToolError};
pub use wait::{TrialProgress, WaitProgress};

use crate::exit::Failure;
use crate::launch::worker_binary;
use crate::project::Project;

/// Whether there is a Slurm to submit to. See [`Slurm::availability`].
pub fn available() -> Availability {
    Slurm::from_environment().availability()
}

/// The batch script of a job, exactly as it would be submitted.
///
/// # Errors
/// Exit 3 if the trials need different resources.
pub fn script(project: &Project, job: &JobRecord) -> Result<String, Failure> {
    script::render(project, job, &Programs::find()?)
}

/// Submit a job; returns the id that Slurm gave it. See [`Slurm::submit`].
///
/// # Errors
/// As [`Slurm::submit`]; exit 70 if there is no worker, before a job waits in the queue for nothing.
pub fn submit(project: &Project, job: JobRecord) -> Result<u64, Failure> {
    worker_binary()?;
    Slurm::from_environment().submit(project, job, &Programs::find()?)
}

/// Wait until every trial of a job has an outcome. See [`Slurm::wait`].
///
/// # Errors
/// As [`Slurm::wait`].
pub fn wait(project: &Project, id: u64, progress: &mut dyn FnMut(WaitProgress)) -> Result<(), Failure> {
    Slurm::from_environment().wait(project, id, progress)
}

/// Text of a path for a script.
fn path_text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::new(crate::exit::Exit::Usage, format!("the path {} is not valid UTF-8", path.display()))
    })
}
