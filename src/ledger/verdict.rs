use super::{MeasuredJob, RunState};
use crate::exit::{Exit, Failure};

impl MeasuredJob {
    /// Whether every trial completed; if not, the failure with its documented exit code: incomplete before failed,
    /// because a trial that has not ended may still fail.
    ///
    /// # Errors
    /// [`Exit::Incomplete`] if trials did not end, [`Exit::TrialsFailed`] if some failed; both name them.
    pub fn verdict(&self) -> Result<(), Failure> {
        let all = self.runs.len();
        let (failed, unended): (Vec<_>, Vec<_>) =
            self.incomplete().partition(|run| matches!(run.state, RunState::Failed(_)));
        let names = |runs: &[&super::Run]| runs.iter().map(|r| r.trial.id.as_str()).collect::<Vec<_>>().join(", ");
        if !unended.is_empty() {
            let message = format!("{} of {all} trials did not end: {}", unended.len(), names(&unended));
            return Err(Failure::new(Exit::Incomplete, message));
        }
        if !failed.is_empty() {
            let message = format!("{} of {all} trials failed: {}", failed.len(), names(&failed));
            return Err(Failure::new(Exit::TrialsFailed, message));
        }
        Ok(())
    }
}
