use std::path::PathBuf;

use expctl_record::JobDir;

use super::out;
use crate::exit::Failure;
use crate::launch::slurm;

/// Arguments of `expctl stage-attempt`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of the job in the ledger
    job_dir: PathBuf,
    /// Slurm's number of the array
    array: u64,
    /// Index of the array task
    task: u32,
    /// How many trials of its list the task has behind it
    #[arg(long, default_value_t = 0, value_name = "N")]
    turn: usize,
}

/// Create the folder of the next attempt of an array task; prints its trial's number in the task's list, from 1, and the
/// folder. Prints nothing when the list is done.
pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some((turn, attempt)) = slurm::stage_task(&JobDir::new(&args.job_dir), args.array, args.task, args.turn)? {
        out(format_args!("{turn} {}", attempt.path().display()));
    }
    Ok(())
}
