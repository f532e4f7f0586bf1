//! [`Backend`]: what runs the trials of a job.

use std::path::Path;

use expctl_ledger::{CodeSnapshot, JobDir, JobRecord, write_atomic};

use super::local::LocalBackend;
use super::slurm::{Adjustment, SlurmBackend};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::project::Project;
use crate::snapshot::place;

/// Runs the trials of jobs: on Slurm ([`SlurmBackend`]), or on this machine ([`LocalBackend`]).
///
/// After a job was submitted or retried, this process either leaves it ([`Backend::detach`]) or stays with it
/// ([`Backend::wait`]).
pub trait Backend {
    /// Put a job into the ledger and give it an id, which is returned. On Slurm its tasks are queued then; on this
    /// machine it starts with [`Backend::detach`] or [`Backend::wait`].
    ///
    /// # Errors
    /// Exit 3 or 4 if Slurm cannot be reached or refuses the job; exit 70 if a program is missing or the ledger cannot
    /// be written.
    fn submit(&self, project: &Project, job: JobRecord, order: SubmitOrder<'_>) -> Result<u64, Failure>;

    /// Prepare another attempt of the trials of `job`, which are those to run again and those that completed. `which`
    /// are their indices in the job as it was submitted, with their resources. On Slurm they are queued then.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn retry(&self, project: &Project, job: &JobRecord, which: &[(u32, Adjustment)]) -> Result<(), Failure>;

    /// Let a job run on without this process.
    ///
    /// # Errors
    /// Exit 70 if no process can be started.
    fn detach(&self, project: &Project, job: &JobRecord) -> Result<(), Failure>;

    /// Stay until every trial of a job has an outcome. Says on stderr how far it is.
    ///
    /// # Errors
    /// Exit 6 if the user stopped it; exit 4 if the cluster does not answer; exit 70 if the ledger cannot be read or
    /// written.
    fn wait(&self, project: &Project, job: &JobRecord, interrupt: &Interrupt) -> Result<(), Failure>;

    /// Stop a job, or the trial at index `only` of it, and wait until it has stopped. False if nothing ran.
    ///
    /// # Errors
    /// Exit 2 if it cannot be stopped from here, or not alone; else as [`Backend::wait`].
    fn cancel(&self, project: &Project, job: &JobRecord, only: Option<u32>) -> Result<bool, Failure>;
}

/// What is submitted beside the trials: other jobs, and the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubmitOrder<'a> {
    /// On Slurm: a job that writes the note after the last array, and one before the first that builds the data.
    pub chain: bool,
    /// Data are missing, so a chain begins with a job that builds them.
    pub builds_data: bool,
    /// The code that programs run. `None`: they run in the project's folder.
    pub code: Option<&'a CodeSnapshot>,
    /// Token of a submission from another machine: its job is found again by it.
    pub submission: Option<&'a str>,
}

/// File in the folder of a job with the token of its submission.
const SUBMISSION_FILE: &str = "submission";

/// The token of the submission that the folder of a job was made by.
pub fn submission_of(folder: &Path) -> Option<String> {
    read_submission(folder).ok().flatten()
}

/// The same, where none may be overlooked.
///
/// # Errors
/// The file is there, and the system refuses to read it.
pub fn read_submission(folder: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(folder.join(SUBMISSION_FILE)) {
        Ok(token) => Ok(Some(token)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

impl SubmitOrder<'_> {
    /// Write the token and the code into the folder of a job, before anything looks for them there.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn place_code(&self, folder: &JobDir, job: &JobRecord) -> Result<(), Failure> {
        if let Some(token) = self.submission {
            write_atomic(&folder.path().join(SUBMISSION_FILE), token.as_bytes())?;
        }
        let runs_programs = job.trials.iter().any(|trial| trial.settings.runs_command());
        Ok(self.code.map_or(Ok(()), |code| place(folder, code, runs_programs))?)
    }
}

/// The backend with this name: `local`, `slurm` or `slurmrest`.
///
/// # Errors
/// Exit 4 if slurmrestd is meant, and its address, the user or the token is missing or malformed.
pub fn backend_from_name(name: &str) -> Result<Box<dyn Backend>, Failure> {
    Ok(match name {
        "slurm" | "slurmrest" => Box::new(SlurmBackend::from_name(name)?),
        _ => Box::new(LocalBackend),
    })
}

/// The backend that knows a job which was submitted to the backend with this name; see [`SlurmBackend::for_job`].
///
/// # Errors
/// As [`backend_from_name`].
pub fn backend_for_job(name: &str) -> Result<Box<dyn Backend>, Failure> {
    Ok(match name {
        "slurm" | "slurmrest" => Box::new(SlurmBackend::for_job(name)?),
        _ => Box::new(LocalBackend),
    })
}
