use std::path::PathBuf;

use expctl_record::AttemptDir;

use crate::exit::Failure;
use crate::launch::command;
use crate::project::Project;

/// Arguments of the hidden verb that is started as a rank.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of the attempt, with trial.json
    #[arg(long, value_name = "DIR")]
    attempt: PathBuf,
    /// What to become where the trial runs no program of the user's
    #[arg(long, value_name = "FILE")]
    worker: Option<PathBuf>,
}

/// Be a rank. Ends this process with the exit codes of ranks, not with those of the other verbs.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let code = command::run_rank(project.root(), &AttemptDir::open(&args.attempt), args.worker.as_deref())?;
    std::process::exit(code)
}
