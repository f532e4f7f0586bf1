use std::path::PathBuf;

use expctl_record::{AttemptDir, JobDir, JobRecord, Trial};

use super::TraceError;

/// The traces of a trial.
#[derive(Clone, Debug)]
pub struct Found {
    /// The trial, as its attempt was told.
    pub trial: Trial,
    /// The attempt that the traces are of: the last one that left any.
    pub attempt: AttemptDir,
    /// The files, by rank and then by cycle.
    pub files: Vec<PathBuf>,
    /// Ranks and cycles that were to be recorded and are not there.
    pub missing: Vec<(u32, u64)>,
}

/// The traces of the trials at these places of a job.
///
/// # Errors
/// [`TraceError::NotProfiled`] if none of them was to record a step, [`TraceError::Missing`] if one that was left no trace.
pub fn find(dir: &JobDir, record: &JobRecord, places: &[usize]) -> Result<Vec<Found>, TraceError> {
    let trials = places.iter().filter_map(|place| record.trials.get(*place));
    let profiled: Vec<&Trial> = trials.filter(|trial| trial.settings.profiles()).collect();
    if profiled.is_empty() {
        return Err(TraceError::NotProfiled { job: record.job });
    }
    profiled.into_iter().map(|trial| of_trial(dir, trial)).collect()
}

fn of_trial(dir: &JobDir, planned: &Trial) -> Result<Found, TraceError> {
    let missing = |state: String| TraceError::Missing { trial: planned.id.clone(), state };
    let attempts = dir.attempts(&planned.id).map_err(|e| missing(e.to_string()))?;
    for attempt in attempts.iter().rev() {
        // The settings of an attempt may be younger than the plan's, as those of a retry are.
        let trial = attempt.trial().unwrap_or_else(|_| planned.clone());
        let mut found = Found { trial, attempt: attempt.clone(), files: Vec::new(), missing: Vec::new() };
        for rank in 0..found.trial.settings.launch.ranks {
            for window in found.trial.settings.profile_windows(rank) {
                let path = attempt.trace_path(rank, window.cycle);
                if path.exists() { found.files.push(path) } else { found.missing.push((rank, window.cycle)) }
            }
        }
        if !found.files.is_empty() {
            return Ok(found);
        }
    }
    let state = match attempts.last().map(AttemptDir::outcome) {
        None => "it has not started".to_owned(),
        Some(Ok(None)) => "its last attempt has not ended".to_owned(),
        Some(Ok(Some(outcome))) => {
            let said = if outcome.message.is_empty() { String::new() } else { format!(": {}", outcome.message) };
            format!("its last attempt is {}{said}", outcome.state.name())
        }
        Some(Err(e)) => e.to_string(),
    };
    Err(missing(state))
}
