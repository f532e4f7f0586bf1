//! `expctl retry`: further attempts of trials that did not complete, in the folder of their job.
//! Trials that would only fail again are named and skipped. The round of a search is refused: the search runs again what it lost, and a trial
//! that somebody else ran would change a race that has gone on from there.

use expctl_ledger::{AttemptState, JobArrays, JobRecord, Ledger, SearchRound};
use expctl_settings::Trial;

use super::{data, run_plan};
use crate::console::say;
use crate::data::StoredForm;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::slurm::{Adjustment, SlurmBackend};
use crate::launch::status::{JobStatus, TrialStatus};
use crate::launch::{Remedy, backend_for_job, last_lines_of_program, remedy};
use crate::program::needed_worker_of_this_version;
use crate::project::Project;
use crate::search::quoted;

/// Arguments of `expctl retry`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl retry 12 --wait\n  expctl retry 12 --all")]
pub struct RetryArgs {
    /// The job
    #[arg(value_name = "JOB")]
    job: u64,
    /// Also retry trials that failed with their own error (they fail again unless you fixed it)
    #[arg(long)]
    all: bool,
    /// Wait for the job, then write its report
    #[arg(long)]
    wait: bool,
}

impl RetryArgs {
    /// The job.
    pub fn job(&self) -> u64 {
        self.job
    }
}

/// Give the trials that did not complete another attempt.
pub fn run(project: &Project, args: &RetryArgs) -> Result<(), Failure> {
    let folder = Ledger::open(project)?.measured(args.job)?;
    refuse_round(project, &folder.record()?)?;
    let (mut job, trouble) = JobStatus::load(&folder)?;
    if let Some(trouble) = trouble {
        return Err(Failure::new(
            Exit::Cluster,
            format!("nobody knows what of job {} still runs: {trouble}", args.job),
        ));
    }
    let slurm = job.record.on_slurm();
    if slurm && job.trials.iter().any(|trial| matches!(trial.state, AttemptState::Lost | AttemptState::NotStarted)) {
        // An outcome may be late. A trial without one gets an outcome with Slurm's reason.
        SlurmBackend::for_job(&job.record.backend)?.wait_for_trials(
            project,
            args.job,
            Some(&open_indices(&job)),
            &mut |_| {},
        )?;
        (job, _) = JobStatus::load(&folder)?;
    }
    if job.trials.iter().all(|trial| trial.state == AttemptState::Completed) {
        say(format!("nothing to retry: job {} is complete", args.job));
        return Ok(());
    }
    // On Slurm the trials of a job are independent; on this machine one launcher runs them all.
    if if slurm { !job.trials.iter().any(is_open) } else { job.is_active() } {
        let message = format!("job {} has not ended: {}", args.job, job.summary());
        return Err(
            Failure::new(Exit::Incomplete, message).hint(format!("expctl cancel {}", project.job_name(args.job)))
        );
    }
    let (again, left) = choose(args, &job)?;
    say_left(&left);
    if again.is_empty() {
        let message = format!("nothing is retried: {} trial(s) would fail again", left.len());
        return Err(Failure::new(Exit::TrialsFailed, message)
            .hint(format!("once the reason is gone: expctl retry {} --all", project.job_name(args.job))));
    }
    needed_worker_of_this_version(again.iter().map(|again| &again.trial.trial))?;
    let interrupt = Interrupt::listen()?;
    for RetriedTrial { trial, words, .. } in &again {
        let settings = &trial.trial.settings;
        if let Some(form) = StoredForm::from_settings(settings) {
            data::ensure(project, &settings.data, form, settings.array.file_count, &interrupt)?;
        }
        let words = if words.is_empty() { String::new() } else { format!(", {words}") };
        say(format!("{} {}: another attempt{words}", trial.trial.name(), trial.state.name()));
    }
    let which: Vec<_> = again.into_iter().map(|again| (again.index, again.adjustment)).collect();
    let record = JobRecord { trials: without(&job.record, &left), ..job.record.clone() };
    let backend = backend_for_job(&record.backend)?;
    backend.retry(project, &record, &which)?;
    run_plan::wait_or_detach(project, backend.as_ref(), &record, args.wait, &interrupt)
}

/// Refuse the job of a search, whether the search runs, was stopped or has ended.
fn refuse_round(project: &Project, record: &JobRecord) -> Result<(), Failure> {
    let Some(SearchRound { round, .. }) = record.search else { return Ok(()) };
    // A search is of one variant, and has to be told which where the config has several.
    let only = record.trials.first().map(|trial| format!(" --only {}", quoted(&trial.variant))).unwrap_or_default();
    let set: String = record.overrides.iter().map(|set| format!(" --set {}", quoted(set))).collect();
    let search = format!("expctl search {}{}{only}{set}", record.config_path.display(), project.on_machine());
    let message = format!("job {} is round {round} of a search, which runs again itself what it lost", record.job);
    Err(Failure::new(Exit::Refused, message)
        .hint(format!("to go on with the search: {search}"))
        .hint(format!("to begin it again, once a reason to fail is gone: {search} --again"))
        .hint(format!(
            "to run these trials once more, as a job of their own: expctl rerun {}",
            project.job_name(record.job)
        )))
}

/// Names the trials that would only fail again, those with the same reason together, with the last words of the first one's program.
fn say_left(left: &[&TrialStatus]) {
    let mut by_reason: Vec<(&str, Vec<&TrialStatus>)> = Vec::new();
    for trial in left.iter().copied() {
        match by_reason.iter_mut().find(|(reason, _)| *reason == trial.reason) {
            Some((_, trials)) => trials.push(trial),
            None => by_reason.push((&trial.reason, vec![trial])),
        }
    }
    for (reason, trials) in by_reason {
        let names: Vec<String> = trials.iter().map(|trial| trial.trial.name()).collect();
        say(match names.as_slice() {
            [name] => format!("{name} failed by itself: {reason}"),
            names => format!("{} trials failed by themselves: {reason}\n    {}", names.len(), names.join(", ")),
        });
        let first =
            trials.first().and_then(|first| Some((first.attempt.as_ref()?, &first.trial, first.outcome.as_ref()?)));
        let last_lines = first.map(|(attempt, trial, outcome)| last_lines_of_program(attempt, trial, outcome));
        last_lines.into_iter().flatten().for_each(|line| say(format!("    | {line}")));
    }
}

/// A trial that gets another attempt.
struct RetriedTrial<'a> {
    index: u32,
    trial: &'a TrialStatus,
    adjustment: Adjustment,
    /// What is different in this attempt.
    words: String,
}

/// The trials to retry, and those that would only fail again.
fn choose<'a>(args: &RetryArgs, job: &'a JobStatus) -> Result<(Vec<RetriedTrial<'a>>, Vec<&'a TrialStatus>), Failure> {
    let arrays = JobArrays::of_job(&job.folder, &job.record)?;
    let (mut again, mut left) = (Vec::new(), Vec::new());
    for (index, trial) in (0..).zip(&job.trials).filter(|(_, trial)| is_open(trial)) {
        let outcome = trial.attempt.as_ref().map(|attempt| attempt.outcome()).transpose()?.flatten();
        let array = arrays.as_ref().and_then(|arrays| arrays.newest(index));
        match remedy(&trial.trial, trial.attempt.as_ref(), outcome.as_ref(), array)? {
            Remedy::NotByItself if !args.all => left.push(trial),
            Remedy::NotByItself => {
                again.push(RetriedTrial { index, trial, adjustment: Adjustment::default(), words: String::new() });
            }
            Remedy::Again(adjustment, words) => again.push(RetriedTrial { index, trial, adjustment, words }),
        }
    }
    Ok((again, left))
}

/// The trials of a job except `left`.
fn without(record: &JobRecord, left: &[&TrialStatus]) -> Vec<Trial> {
    let left: Vec<&str> = left.iter().map(|trial| trial.trial.id.as_str()).collect();
    record.trials.iter().filter(|trial| !left.contains(&trial.id.as_str())).cloned().collect()
}

/// Array tasks of the trials that have neither completed nor run.
fn open_indices(job: &JobStatus) -> Vec<u32> {
    (0..).zip(&job.trials).filter(|(_, trial)| is_open(trial)).map(|(index, _)| index).collect()
}

fn is_open(trial: &TrialStatus) -> bool {
    trial.state != AttemptState::Completed && !trial.state.is_active()
}
