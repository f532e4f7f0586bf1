use super::submit;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::launch::local;
use crate::project::Project;

/// Arguments of the hidden verb that runs a local job in the background.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job
    job: u64,
    /// Only these trials
    #[arg(long, value_name = "TRIAL")]
    only: Vec<String>,
}

/// Run the trials of a job that `submit` put into the ledger, then write its note.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let mut job = project.job(args.job).record()?;
    job.trials.retain(|trial| args.only.is_empty() || args.only.contains(&trial.id));
    submit::finish(project, args.job, local::run(project, &job, &Interrupt::listen()?))
}
