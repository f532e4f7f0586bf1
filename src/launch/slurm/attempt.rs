//! The attempt folder as the batch script and the launcher see it.

use std::time::UNIX_EPOCH;

use expctl_record::{AttemptDir, JobDir, write_json};

use crate::exit::Failure;

/// Create the next attempt of the trial that the array task `index` runs, with its `trial.json`.
///
/// # Errors
/// If the job has no such task, or the ledger cannot be written.
pub fn stage(job: &JobDir, index: u32) -> Result<AttemptDir, Failure> {
    let record = job.record()?;
    let trial = record
        .trials
        .get(index as usize)
        .ok_or_else(|| Failure::internal(format!("{} has no trial number {index}", job.record_path().display())))?;
    let attempt = job.next_attempt(&trial.id)?;
    write_json(&attempt.trial_path(), trial)?;
    Ok(attempt)
}

/// When an attempt started, in seconds since the epoch: the age of its `trial.json`; now, if it has none.
pub fn started(attempt: &AttemptDir) -> i64 {
    let written = attempt.trial_path().metadata().and_then(|m| m.modified()).ok();
    written
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .and_then(|age| i64::try_from(age.as_secs()).ok())
        .unwrap_or_else(|| jiff::Timestamp::now().as_second())
}
