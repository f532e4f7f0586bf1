use expctl_record::JobRecord;

use super::{data, say, submit};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::life::{JobStatus, State, TrialStatus};
use crate::launch::slurm::{Adjustment, Programs, Slurm};
use crate::launch::{local, worker_binary};
use crate::ledger::Ledger;
use crate::project::Project;

/// Arguments of `expctl retry`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job
    #[arg(value_name = "JOB")]
    job: u64,
    /// Stay until the job has ended, then write its note
    #[arg(long)]
    wait: bool,
}

/// Give the trials that did not complete another attempt.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let folder = Ledger::open(project)?.measured(args.job)?;
    let (mut job, trouble) = JobStatus::of(&folder)?;
    if let Some(trouble) = trouble {
        return Err(Failure::new(
            Exit::Cluster,
            format!("nobody knows what of job {} still runs: {trouble}", args.job),
        ));
    }
    let slurm = job.record.backend == "slurm";
    if slurm && job.trials.iter().any(|trial| matches!(trial.state, State::Lost | State::NotStarted)) {
        // An outcome may only be late; where none comes, it gets one that says what Slurm said.
        Slurm::from_environment().wait_for(project, args.job, Some(&indices(&job)), &mut |_| {})?;
        (job, _) = JobStatus::of(&folder)?;
    }
    if job.trials.iter().all(|trial| trial.state == State::Completed) {
        say(format!("nothing to retry: job {} is complete", args.job));
        return Ok(());
    }
    // On Slurm the trials of a job are independent; here one launcher runs them all.
    if if slurm { !job.trials.iter().any(again) } else { job.is_active() } {
        let message = format!("job {} has not ended: {}", args.job, job.summary());
        return Err(Failure::new(Exit::Incomplete, message).hint(format!("expctl cancel {}", args.job)));
    }
    worker_binary()?;
    let interrupt = Interrupt::listen()?;
    for trial in job.trials.iter().filter(|trial| again(trial)) {
        data::ensure(project, &trial.trial.settings.data, &interrupt)?;
        say(format!("{} {}: another attempt", trial.trial.id, trial.state.name()));
    }
    if slurm {
        retry_slurm(project, args, &job, interrupt)
    } else {
        retry_local(project, args, &job.record, &interrupt)
    }
}

/// Array tasks of the trials that get another attempt.
fn indices(job: &JobStatus) -> Vec<u32> {
    (0..).zip(&job.trials).filter(|(_, trial)| again(trial)).map(|(index, _)| index).collect()
}

fn again(trial: &TrialStatus) -> bool {
    trial.state != State::Completed && !trial.state.is_active()
}

fn retry_local(project: &Project, args: &Args, job: &JobRecord, interrupt: &Interrupt) -> Result<(), Failure> {
    local::check(job)?;
    if args.wait {
        return submit::finish(project, job.job, local::run(project, job, interrupt));
    }
    submit::start_in_background(project, job)
}

fn retry_slurm(project: &Project, args: &Args, job: &JobStatus, interrupt: Interrupt) -> Result<(), Failure> {
    let id = job.record.job;
    let which: Vec<_> = indices(job).into_iter().map(|index| (index, Adjustment::default())).collect();
    let arrays = Slurm::from_environment().retry(project, id, &which, &Programs::find()?)?;
    let arrays: Vec<String> = arrays.iter().map(u64::to_string).collect();
    say(format!("job {id} goes on as Slurm's job {}", arrays.join(", ")));
    if args.wait { submit::wait_for_slurm(project, id, interrupt) } else { Ok(()) }
}
