use super::out;
use crate::exit::{Exit, Failure};
use crate::ledger::RunState;
use crate::project::Project;
use crate::report;

/// Arguments of `expctl report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job
    #[arg(value_name = "JOB")]
    job: u64,
}

/// Write the note of a job and print its path.
///
/// The note is written for what there is; the exit code then says what is missing.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let path = report::write_note(project, args.job)?;
    out(path.display());
    let job = crate::ledger::MeasuredJob::load(&project.job(args.job))?;
    let failed = job.runs.iter().filter(|r| matches!(r.state, RunState::Failed(_))).count();
    let missing = job.incomplete().count() - failed;
    if missing > 0 {
        let text = format!("{missing} of {} trials did not end, so the note is incomplete", job.runs.len());
        return Err(Failure::new(Exit::Incomplete, text));
    }
    if failed > 0 {
        return Err(Failure::new(Exit::TrialsFailed, format!("{failed} of {} trials failed", job.runs.len())));
    }
    Ok(())
}
