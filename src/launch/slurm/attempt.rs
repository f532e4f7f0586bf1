//! The attempt folder as the batch script and the launcher see it.

use std::time::UNIX_EPOCH;

use expctl_record::{AttemptDir, Cause, JobDir, Outcome, Trial, TrialState, write_json};

use super::arrays::{Arrays, Turn};
use crate::exit::Failure;
use crate::launch::conclude;

/// The next attempt of an array task: in the list of its trials the first one from place `turn` on that has neither completed nor failed by an error of its own.
/// Creates the folder with its `trial.json`; returns it with the place after it. None at the end of the list.
///
/// # Errors
/// If the job has no such task, or the ledger cannot be read or written.
pub fn stage_task(job: &JobDir, array: u64, task: u32, turn: usize) -> Result<Option<(usize, AttemptDir)>, Failure> {
    let record = job.record()?;
    let arrays = Arrays::load(job, record.job, record.trials.len())?;
    let turns = arrays
        .turns(array, task)
        .ok_or_else(|| Failure::internal(format!("{} has no task {array}_{task}", job.path().display())))?;
    for (place, Turn(index, first)) in turns.iter().enumerate().skip(turn) {
        let Some(trial) = record.trials.get(*index as usize) else { continue };
        let mut done = false;
        for earlier in job.attempts(&trial.id)?.into_iter().filter(|earlier| earlier.number() >= *first) {
            // This task is requeued, and has been here before.
            let outcome = match earlier.outcome()? {
                Some(outcome) => outcome,
                None => cut_short(&earlier)?,
            };
            // One that met an error of its own would meet it again.
            done |= outcome.state == TrialState::Completed || outcome.cause == Some(Cause::Error);
        }
        if !done {
            return Ok(Some((place + 1, stage(job, trial)?)));
        }
    }
    Ok(None)
}

/// The outcome of an attempt whose task Slurm took off its node and put back into the queue.
fn cut_short(attempt: &AttemptDir) -> Result<Outcome, Failure> {
    let mut outcome = conclude(attempt, &attempt.trial()?, started(attempt), &[], true)?;
    if outcome.state != TrialState::Completed {
        outcome.state = TrialState::Interrupted;
        "Slurm put the task back into the queue, and it ended without a word".clone_into(&mut outcome.message);
        outcome.save(attempt)?;
    }
    Ok(outcome)
}

/// Create the next attempt of a trial of a job, with its `trial.json`.
///
/// # Errors
/// If the ledger cannot be written.
pub fn stage(job: &JobDir, trial: &Trial) -> Result<AttemptDir, Failure> {
    let attempt = job.next_attempt(&trial.id)?;
    write_json(&attempt.trial_path(), trial)?;
    Ok(attempt)
}

/// The same for attempt `number`, and for no other; none if it is there already.
///
/// # Errors
/// If the ledger cannot be written.
pub(super) fn stage_exactly(job: &JobDir, trial: &Trial, number: u32) -> Result<Option<AttemptDir>, Failure> {
    let Some(attempt) = job.new_attempt(&trial.id, number)? else { return Ok(None) };
    write_json(&attempt.trial_path(), trial)?;
    Ok(Some(attempt))
}

/// When an attempt started, in seconds since the epoch: the age of its `trial.json`; now, if it has none.
pub fn started(attempt: &AttemptDir) -> i64 {
    let written = attempt.trial_path().metadata().and_then(|m| m.modified()).ok();
    written
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .and_then(|age| i64::try_from(age.as_secs()).ok())
        .unwrap_or_else(|| jiff::Timestamp::now().as_second())
}
