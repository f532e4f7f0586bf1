use super::{MeasuredJob, RunState};
use crate::exit::{Exit, Failure};

impl MeasuredJob {
    /// Whether every trial completed; if not, the failure with its documented exit code: incomplete before failed,
    /// because a trial that has not ended may still fail.
    ///
    /// # Errors
    /// [`Exit::Incomplete`] if trials did not end or cannot be read, [`Exit::TrialsFailed`] if some failed; both name
    /// them.
    pub fn verdict(&self) -> Result<(), Failure> {
        let of = |which: fn(&RunState) -> bool| -> Vec<&str> {
            self.incomplete().filter(|run| which(&run.state)).map(|run| run.trial.id.as_str()).collect()
        };
        let failed = of(|state| matches!(state, RunState::Failed(_)));
        let damaged = of(|state| matches!(state, RunState::Unreadable(_)));
        let unended = of(|state| !matches!(state, RunState::Failed(_) | RunState::Unreadable(_)));
        verdict(self.runs.len(), &unended, &damaged, &failed)
    }
}

/// The verdict on a job of `trials` trials, of which these did not end, cannot be read, and failed.
///
/// # Errors
/// As [`MeasuredJob::verdict`].
pub fn verdict(trials: usize, unended: &[&str], damaged: &[&str], failed: &[&str]) -> Result<(), Failure> {
    let said = |names: &[&str], what: &str| format!("{} of {trials} trials {what}: {}", names.len(), names.join(", "));
    let mut incomplete = Vec::new();
    if !unended.is_empty() {
        incomplete.push(said(unended, "did not end"));
    }
    if !damaged.is_empty() {
        incomplete.push(said(damaged, "cannot be read"));
    }
    if !incomplete.is_empty() {
        return Err(Failure::new(Exit::Incomplete, incomplete.join("; ")));
    }
    if !failed.is_empty() {
        return Err(Failure::new(Exit::TrialsFailed, said(failed, "failed")));
    }
    Ok(())
}
