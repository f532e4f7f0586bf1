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
    /// Index of the array task: the trial's place in job.json
    index: u32,
}

/// Create the folder of the next attempt of an array task; prints it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let attempt = slurm::stage(&JobDir::new(&args.job_dir), args.index)?;
    out(attempt.path().display());
    Ok(())
}
