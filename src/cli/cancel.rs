//! `expctl cancel`.

use expctl_ledger::{JobDir, Ledger};

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

impl CancelArgs {
    /// The job.
    pub fn job(&self) -> u64 {
        self.job.job
    }
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
        if let Some(steps) = steps_on_disk(&folder, &trial.trial.id)? {
            say(format!("  {} {}, {steps} steps are on disk", trial.trial.name(), trial.state.name()));
        }
    }
    let again = match record.search {
        Some(_) => "the search runs the others again once it goes on".to_owned(),
        None => format!("`expctl retry {}` runs the others again", project.job_name(id)),
    };
    say(format!("  hint: reports count completed trials only; {again}"));
    Ok(())
}

/// Steps of the attempt of a trial that got furthest; `None` if it never started.
fn steps_on_disk(folder: &JobDir, trial: &str) -> Result<Option<usize>, Failure> {
    let mut most = None;
    for attempt in folder.attempts(trial)? {
        most = most.max(Some(attempt.steps(0)?.len()));
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::{StepRecord, StepsTable, write_steps};

    #[test]
    fn the_attempt_that_got_furthest_counts() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobDir::new(dir.path().join("7"));
        folder.create().unwrap();
        assert_eq!(steps_on_disk(&folder, "lazy-r1-0a1b2c").unwrap(), None);
        // The attempt after a retry was stopped before its first step.
        for steps in [9, 3, 0] {
            let attempt = folder.next_attempt("lazy-r1-0a1b2c").unwrap();
            let steps = (0..steps).map(|step| StepRecord { step, ..StepRecord::default() }).collect();
            let table = StepsTable { trial: "lazy-r1-0a1b2c".to_owned(), rank: 0, world_size: 1, steps };
            write_steps(&attempt.steps_path(0), &table).unwrap();
        }
        assert_eq!(steps_on_disk(&folder, "lazy-r1-0a1b2c").unwrap(), Some(9));
    }
}
