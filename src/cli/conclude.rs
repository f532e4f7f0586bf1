use std::path::PathBuf;

use expctl_record::{AttemptDir, Cause, TrialState};

use crate::exit::{Exit, Failure};
use crate::launch::{conclude, slurm, started};

/// Arguments of `expctl conclude`.
#[derive(Debug, clap::Args)]
pub struct Args {
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
}

/// Write the outcome of an attempt; a trial that did not complete is a failure, so that Slurm shows it as one.
pub fn run(args: &Args) -> Result<(), Failure> {
    let attempt = AttemptDir::open(&args.attempt);
    let trial = attempt.trial()?;
    if let Some(outcome) = attempt.outcome()? {
        // This node was out of reach, and the attempt was closed meanwhile. Others count on what was written then.
        let message = format!("trial {} was closed as {}: {}", trial.id, outcome.state.name(), outcome.message);
        return if outcome.state == TrialState::Completed {
            Ok(())
        } else {
            Err(Failure::new(Exit::TrialsFailed, message))
        };
    }
    // Without it the ranks' own last words still count.
    let log = args.srun_log.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let ends = slurm::process_ends(&log, args.exit_code, trial.settings.launch.ranks);
    let mut outcome = conclude(&attempt, &trial, started(&attempt), &ends, args.interrupted.is_some())?;
    if args.requeue && outcome.state == TrialState::Interrupted {
        outcome.cause = Some(Cause::TimeLimit);
        "the time limit is near: the task goes back into the queue".clone_into(&mut outcome.message);
        outcome.save(&attempt)?;
    } else if let Some(reason) = args.interrupted.as_deref().and_then(slurm::stop_reason)
        && outcome.state == TrialState::Interrupted
    {
        // Nobody asked for it: the trial did not do what it was meant to.
        outcome.state = TrialState::Failed;
        outcome.cause = Cause::of_slurm("", &reason).or(Some(Cause::Killed));
        outcome.message = format!("stopped by Slurm ({reason})");
        outcome.save(&attempt)?;
    }
    if outcome.state == TrialState::Failed && out_of_memory(&log) {
        outcome.cause = Some(Cause::OutOfMemory);
        outcome.message = format!("{}; it ran out of memory", outcome.message);
        outcome.save(&attempt)?;
    }
    match outcome.state {
        TrialState::Completed => Ok(()),
        state => {
            Err(Failure::new(Exit::TrialsFailed, format!("trial {} {}: {}", trial.id, state.name(), outcome.message)))
        }
    }
}

/// Whether srun says that the kernel took a rank for its memory.
fn out_of_memory(srun_log: &str) -> bool {
    srun_log.contains("Out Of Memory") || srun_log.contains("oom_kill event") || srun_log.contains("oom-kill event")
}
