use super::out;
use crate::console::say;
use crate::exit::Failure;
use crate::launch::slurm;
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
    let folder = project.job(args.job);
    if folder.record_path().exists()
        && let Err(failure) = slurm::collect_usage(project, &folder.record()?)
    {
        // The ledger may be a colleague's, where nothing can be written. The note goes without those figures.
        say(format!("what Slurm measured is not in the note: {}", failure.message));
    }
    let (path, job) = report::write_note(project, args.job)?;
    out(path.display());
    job.verdict()
}
