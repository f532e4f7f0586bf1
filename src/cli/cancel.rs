//! `expctl cancel`.

use expctl_ledger::Ledger;

use super::JobName;
use crate::console::say;
use crate::exit::Failure;
use crate::launch::backend_for_job;
use crate::launch::status::JobStatus;
use crate::project::Project;

/// Arguments of `expctl cancel`.
#[derive(Debug, clap::Args)]
pub struct CancelArgs {
    /// The job, or on Slurm one trial of it: 12, 12_3
    #[arg(value_name = "JOB[_TASK]")]
    job: JobName,
}

/// Stop a job, wait until it has stopped, and say which steps are on disk.
pub fn run(project: &Project, args: &CancelArgs) -> Result<(), Failure> {
    let id = args.job.job;
    let folder = Ledger::open(project)?.measured(id)?;
    let record = folder.record()?;
    let only = args.job.index(&record)?;
    let only = only.map(|index| u32::try_from(index).map_err(Failure::internal)).transpose()?;
    let stopped = backend_for_job(&record.backend)?.cancel(project, &record, only)?;
    let (job, _) = JobStatus::load(&folder)?;
    if !stopped {
        say(format!("job {id} does not run: {}", job.summary()));
        return Ok(());
    }
    say(format!("job {id} is cancelled: {}", job.summary()));
    for trial in job.trials.iter().filter(|trial| !trial.state.is_active()) {
        let mut steps: Option<usize> = None;
        for attempt in folder.attempts(&trial.trial.id)? {
            steps = steps.max(Some(attempt.steps(0)?.len()));
        }
        if let Some(steps) = steps {
            say(format!("  {} {}, {steps} steps are on disk", trial.trial.name(), trial.state.name()));
        }
    }
    say(format!("  hint: reports count completed trials only; `expctl retry {id}` runs the others again"));
    Ok(())
}
