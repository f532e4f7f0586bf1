use super::{data, say, submit};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::project::Project;
use expctl_record::Ledger;

/// Arguments of the steps of a chain.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job
    #[arg(value_name = "JOB")]
    job: u64,
}

/// Build the data that the trials of a job need.
pub fn build(project: &Project, args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let record = Ledger::open(project)?.measured(args.job)?.record()?;
    data::ensure_all(project, &record.trials, &interrupt)
}

/// Give every trial of a job an outcome, and write its note. Whether the results are complete is judged here, not by Slurm:
/// the arrays may have ended in any way.
pub fn note(project: &Project, args: &Args) -> Result<(), Failure> {
    say(format!("job {} has ended", args.job));
    submit::wait_for_slurm(project, args.job, Interrupt::listen()?)
}
