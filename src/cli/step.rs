use super::{data, say, submit};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::launch::backend_for_job;
use crate::ledger::Ledger;
use crate::project::Project;

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
    let interrupt = Interrupt::listen()?;
    let job = project.job(args.job).record().map_err(Failure::from);
    let result = job.and_then(|job| backend_for_job(&job.backend)?.wait(project, &job, &interrupt));
    submit::finish(project, args.job, result)
}
