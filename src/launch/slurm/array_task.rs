//! An array task on its node, as the batch script runs it: [`stage_task`] gives it its next trial, [`conclude_task`] writes how that ended.

use expctl_ledger::{AttemptDir, Cause, JobArrays, JobDir, Outcome, RecordedTrials, TaskTrial, TrialState, TrialTask};
use expctl_settings::Trial;
use slurm_client::{JobId, Slurm};

use crate::exit::{Exit, Failure};
use crate::launch::attempt::{ProcessEnd, conclude, last_lines_of_program, stage};
use crate::launch::pack::Beside;

/// Slurm's job `id`, on the cluster of the job that has `arrays`.
pub fn job_id(arrays: &JobArrays, id: u64) -> JobId {
    JobId { id, cluster: arrays.cluster.clone() }
}

/// The outcome of a trial's newest attempt, as far as the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// It will not change.
    Final(Outcome),
    /// Slurm may run the trial again by itself.
    Provisional(Outcome),
    /// There is none yet.
    Pending,
}

/// The outcome of a trial's last attempt; pending while the attempt that `task` makes is still to come.
pub fn trial_outcome(job: &JobDir, trial: &Trial, task: Option<&TrialTask>) -> Result<TrialOutcome, Failure> {
    let attempt = task.map_or(1, |task| task.attempt);
    let last = job.attempts(&trial.id)?.pop().filter(|last| last.number() >= attempt);
    let Some(outcome) = last.map(|last| last.outcome()).transpose()?.flatten() else {
        return Ok(TrialOutcome::Pending);
    };
    let requeue = task.is_some_and(|task| task.requeue);
    Ok(if requeue && outcome.state != TrialState::Completed {
        TrialOutcome::Provisional(outcome)
    } else {
        TrialOutcome::Final(outcome)
    })
}

/// The trials of a task that run one after another, where several run side by side: every `of`-th one, from the `number`-th on.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Number of the lane, from 0.
    pub number: usize,
    /// Number of lanes of the task.
    pub of: usize,
}

impl Lane {
    fn has(self, position: usize) -> bool {
        position % self.of.max(1) == self.number
    }
}

/// Stage the next attempt in a lane of an array task: of its first trial in the task's list, from position `turn` on, that has
/// neither completed nor failed by an error of its own. Creates the attempt's folder with `trial.json`; returns it with
/// the position behind the trial. `None` at the end of the list.
///
/// # Errors
/// The job has no such task, or the ledger cannot be read or written.
pub fn stage_task(
    job: &JobDir,
    array: u64,
    task: u32,
    turn: usize,
    lane: Lane,
) -> Result<Option<(usize, AttemptDir)>, Failure> {
    let record = RecordedTrials::read(job)?;
    let arrays = JobArrays::load(job, record.job, record.count())?;
    let trials = arrays
        .trials_of_task(array, task)
        .ok_or_else(|| Failure::internal(format!("{} has no task {array}_{task}", job.path().display())))?;
    for (position, TaskTrial(index, first)) in trials.iter().enumerate().skip(turn) {
        // What another lane runs is none of its attempts that were left behind.
        if !lane.has(position) {
            continue;
        }
        let Some(trial) = record.trial(job, *index)? else { continue };
        let mut done = false;
        for earlier in job.attempts(&trial.id)?.into_iter().filter(|earlier| earlier.number() >= *first) {
            // The task was requeued, and made this attempt in an earlier run.
            let outcome = match earlier.outcome()? {
                Some(outcome) => outcome,
                None => conclude_requeued(&earlier)?,
            };
            // A trial that met an error of its own would meet it again.
            done |= outcome.state == TrialState::Completed || outcome.cause == Some(Cause::Error);
        }
        if !done {
            return Ok(Some((position + 1, stage(job, &trial)?)));
        }
    }
    Ok(None)
}

/// Conclude an attempt whose task Slurm requeued while it ran.
fn conclude_requeued(attempt: &AttemptDir) -> Result<Outcome, Failure> {
    let mut outcome = conclude(attempt, &attempt.trial()?, attempt.started(), &[], true)?;
    if outcome.state != TrialState::Completed {
        outcome.state = TrialState::Interrupted;
        "Slurm put the task back into the queue, and it ended without a word".clone_into(&mut outcome.message);
        outcome.save(attempt)?;
    }
    Ok(outcome)
}

/// An array task that was told to stop.
#[derive(Clone, Copy, Debug)]
pub struct TaskStop<'a> {
    /// The task, `JOB_INDEX`; Slurm is asked why.
    pub task: &'a str,
    /// The time limit is near, and the task goes back into the queue.
    pub requeue: bool,
}

/// Write the outcome of an attempt whose `srun` ended with `exit_code` and printed `srun_log`. `beside`: the task, `JOB_INDEX`, whose other
/// trials may have run at the same time.
///
/// # Errors
/// Exit 5 for a trial that did not complete, so that Slurm shows it as one; exit 70 if the ledger cannot be read or written.
pub fn conclude_task(
    attempt: &AttemptDir,
    exit_code: i32,
    srun_log: &str,
    stop: Option<TaskStop<'_>>,
    beside: Option<&str>,
) -> Result<(), Failure> {
    let trial = attempt.trial()?;
    if let Some(outcome) = attempt.outcome()? {
        // The attempt was closed while this node was out of reach. Others rely on the outcome that was written then.
        let message = format!("trial {} was closed as {}: {}", trial.id, outcome.state.name(), outcome.message);
        return if outcome.state == TrialState::Completed {
            Ok(())
        } else {
            Err(Failure::new(Exit::TrialsFailed, message))
        };
    }
    let ends = process_ends(srun_log, exit_code, trial.settings.launch.ranks);
    let mut outcome = conclude(attempt, &trial, attempt.started(), &ends, stop.is_some())?;
    if stop.is_some_and(|stop| stop.requeue) && outcome.state == TrialState::Interrupted {
        outcome.cause = Some(Cause::TimeLimit);
        "the time limit is near: the task goes back into the queue".clone_into(&mut outcome.message);
        outcome.save(attempt)?;
    } else if let Some(reason) = stop.and_then(|stop| stop_reason(stop.task))
        && outcome.state == TrialState::Interrupted
    {
        // Nobody cancelled the trial, so it failed.
        outcome.state = TrialState::Failed;
        outcome.cause = Cause::from_slurm("", &reason).or(Some(Cause::Killed));
        outcome.message = format!("stopped by Slurm ({reason})");
        outcome.save(attempt)?;
    }
    if outcome.state == TrialState::Failed && out_of_memory(srun_log) {
        outcome.cause = Some(Cause::OutOfMemory);
        outcome.message = format!("{}; it ran out of memory", outcome.message);
        outcome.save(attempt)?;
    }
    if let Some(task) = beside {
        // The trial has its outcome, whether or not the times of others can be read.
        match beside_in_task(attempt, &trial, &outcome, task) {
            Ok(found) => {
                found.add_to(&mut outcome);
                outcome.save(attempt)?;
            }
            Err(e) => tracing::warn!("how long other trials ran beside {} is not known: {}", trial.id, e.message),
        }
    }
    match outcome.state {
        TrialState::Completed => Ok(()),
        state => {
            let message = format!("trial {} {}: {}", trial.id, state.name(), outcome.message);
            let last_lines = last_lines_of_program(attempt, &trial, &outcome);
            let shown: Vec<String> =
                std::iter::once(message).chain(last_lines.iter().map(|line| format!("    | {line}"))).collect();
            Err(Failure::new(Exit::TrialsFailed, shown.join("\n")))
        }
    }
}

/// What of the other trials of a task (`JOB_INDEX`) ran beside an attempt.
fn beside_in_task(attempt: &AttemptDir, trial: &Trial, outcome: &Outcome, task: &str) -> Result<Beside, Failure> {
    let unknown = || Failure::internal(format!("{} is no attempt of a task {task:?}", attempt.path().display()));
    let (array, index) = task_key(task).ok_or_else(unknown)?;
    let job = attempt.path().parent().and_then(std::path::Path::parent).map(JobDir::new).ok_or_else(unknown)?;
    let record = job.record()?;
    let arrays = JobArrays::load(&job, record.job, record.trials.len())?;
    let mut others = Vec::new();
    for TaskTrial(position, first) in arrays.trials_of_task(array, index).ok_or_else(unknown)? {
        let other = record.trials.get(*position as usize).filter(|other| other.id != trial.id);
        if let Some(other) = other {
            let attempts = job.attempts(&other.id)?;
            let of_task = attempts.into_iter().filter(|made| made.number() >= *first);
            others.extend(of_task.map(|made| (other.id.as_str(), made)));
        }
    }
    Ok(Beside::from_attempts(attempt, outcome.ended, &others)?)
}

/// The array and the index of a task, `JOB_INDEX`.
fn task_key(task: &str) -> Option<(u64, u32)> {
    let (array, index) = task.split_once('_')?;
    Some((array.parse().ok()?, index.parse().ok()?))
}

/// End of each rank's process, from what `srun` printed and its exit code; `None` for a rank that it does not
/// mention.
fn process_ends(srun_log: &str, exit_code: i32, ranks: u32) -> Vec<Option<ProcessEnd>> {
    let exits = slurm_client::process_exits(srun_log, exit_code, ranks).into_iter();
    exits.map(|exit| exit.map(|e| ProcessEnd { code: e.code, signal: e.signal, forced: e.by_srun })).collect()
}

/// Whether srun reports that the kernel killed a rank for its memory.
fn out_of_memory(srun_log: &str) -> bool {
    srun_log.contains("Out Of Memory") || srun_log.contains("oom_kill event") || srun_log.contains("oom-kill event")
}

/// Why Slurm itself stopped the array task `JOB_INDEX`: `TimeLimit`, for example. `None` if somebody cancelled it, or
/// Slurm does not say: a task that is being stopped has no time to ask twice.
fn stop_reason(task: &str) -> Option<String> {
    let (job, index) = task_key(task)?;
    let task = Slurm::from_environment().queued(&[JobId::new(job)]).ok()?.remove(&(job, index))?;
    (!task.detail.is_empty()).then_some(task.detail)
}
