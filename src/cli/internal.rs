//! Hidden verbs, which expctl calls itself: in the background, as a rank, and in the jobs of Slurm.

use std::path::PathBuf;

use expctl_ledger::{AttemptDir, JobDir, Ledger};

use super::{data, run_plan};
use crate::console::{out, say};
use crate::data::ProjectData;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::launch::slurm::{Lane, TaskStop};
use crate::launch::{self, command, local, slurm};
use crate::project::Project;

/// Arguments of `expctl run-local`.
#[derive(Debug, clap::Args)]
pub struct RunLocalArgs {
    /// The job
    job: u64,
    /// Only these trials
    #[arg(long, value_name = "TRIAL")]
    only: Vec<String>,
}

/// Run the trials of a job that `submit` put into the ledger, then write its note.
pub fn run_local(project: &Project, args: &RunLocalArgs) -> Result<(), Failure> {
    let mut job = project.job(args.job).record()?;
    job.trials.retain(|trial| args.only.is_empty() || args.only.contains(&trial.id));
    run_plan::finish(project, args.job, local::run(project, &job, &Interrupt::listen()?))
}

/// Arguments of `expctl run-command`.
#[derive(Debug, clap::Args)]
pub struct RunCommandArgs {
    /// Folder of the attempt, with trial.json
    #[arg(long, value_name = "DIR")]
    attempt: PathBuf,
    /// What to become where the trial runs no program of the user's
    #[arg(long, value_name = "FILE")]
    worker: Option<PathBuf>,
}

/// Run as a rank. Ends this process with the exit codes of ranks, not with those of the other verbs.
pub fn run_command(project: &Project, args: &RunCommandArgs) -> Result<(), Failure> {
    let code = command::run_rank(
        project.root(),
        &ProjectData(project),
        &AttemptDir::open(&args.attempt),
        args.worker.as_deref(),
    )?;
    std::process::exit(code)
}

/// Arguments of `expctl stage-attempt`.
#[derive(Debug, clap::Args)]
pub struct StageAttemptArgs {
    /// Folder of the job in the ledger
    job_dir: PathBuf,
    /// Slurm's number of the array
    array: u64,
    /// Index of the array task
    task: u32,
    /// How many trials of its list the task has behind it
    #[arg(long, default_value_t = 0, value_name = "N")]
    turn: usize,
    /// Of the trials that run side by side, those of this lane, from 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    lane: usize,
    /// Lanes of the task
    #[arg(long, default_value_t = 1, value_name = "N")]
    lanes: usize,
}

/// Create the folder of the next attempt of an array task; prints its trial's number in the task's list, from 1, and the
/// folder. Prints nothing when the list is done.
pub fn stage_attempt(args: &StageAttemptArgs) -> Result<(), Failure> {
    let lane = Lane { number: args.lane, of: args.lanes };
    let staged = slurm::stage_task(&JobDir::new(&args.job_dir), args.array, args.task, args.turn, lane)?;
    if let Some((turn, attempt)) = staged {
        out(format_args!("{turn} {}", attempt.path().display()));
    }
    Ok(())
}

/// Arguments of `expctl conclude`.
#[derive(Debug, clap::Args)]
pub struct ConcludeArgs {
    /// Folder of the attempt
    attempt: PathBuf,
    /// Exit code of srun
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    exit_code: i32,
    /// What srun printed: it tells how each rank ended
    #[arg(long, value_name = "FILE")]
    srun_log: Option<PathBuf>,
    /// This array task was told to stop; Slurm is asked why
    #[arg(long, value_name = "JOB_TASK")]
    interrupted: Option<String>,
    /// The time limit is near, and the task goes back into the queue
    #[arg(long, requires = "interrupted")]
    requeue: bool,
    /// This array task runs trials side by side
    #[arg(long, value_name = "JOB_TASK")]
    beside: Option<String>,
}

/// Write the outcome of an attempt; a trial that did not complete is a failure, so that Slurm shows it as one.
pub fn conclude(args: &ConcludeArgs) -> Result<(), Failure> {
    // Without the log the messages of the ranks still count.
    let log = args.srun_log.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    let stop = args.interrupted.as_deref().map(|task| TaskStop { task, requeue: args.requeue });
    let (attempt, log) = (AttemptDir::open(&args.attempt), String::from_utf8_lossy(&log));
    slurm::conclude_task(&attempt, args.exit_code, &log, stop, args.beside.as_deref())
}

/// Arguments of the steps of a chain: `expctl build-step` and `expctl note-step`.
#[derive(Debug, clap::Args)]
pub struct StepArgs {
    /// The job
    #[arg(value_name = "JOB")]
    job: u64,
}

/// Build the data that the trials of a job need.
pub fn build_data(project: &Project, args: &StepArgs) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let record = Ledger::open(project)?.measured(args.job)?.record()?;
    data::ensure_all(project, &record.trials, &interrupt)
}

/// Give every trial of a job an outcome, and write its note. Whether the results are complete is judged here, not by Slurm:
/// the arrays may have ended in any way.
pub fn write_note(project: &Project, args: &StepArgs) -> Result<(), Failure> {
    say(format!("job {} has ended", args.job));
    let interrupt = Interrupt::listen()?;
    let job = project.job(args.job).record().map_err(Failure::from);
    let result = job.and_then(|job| launch::backend_for_job(&job.backend)?.wait(project, &job, &interrupt));
    run_plan::finish(project, args.job, result)
}
