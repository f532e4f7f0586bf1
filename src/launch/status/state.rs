use expctl_record::{AttemptDir, JobDir, JobRecord, Outcome, Trial, TrialState};

use crate::exit::Failure;
use crate::ledger;

/// Where a trial stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Every rank did all its steps.
    Completed,
    /// A rank failed, or Slurm ended the trial.
    Failed,
    /// Stopped on request.
    Interrupted,
    /// Its ranks are at work.
    Running,
    /// Something is there that will run it.
    Waiting,
    /// It began, left no outcome, and nothing runs it any more.
    Lost,
    /// It never began, and nothing is there that will run it.
    NotStarted,
    /// Nobody can say from here.
    Unknown,
}

impl State {
    /// The word used in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Lost => "lost",
            Self::NotStarted => "not started",
            Self::Unknown => "unknown",
        }
    }

    /// Whether something is, or may be, at work on the trial or about to be.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Waiting | Self::Unknown)
    }
}

impl From<TrialState> for State {
    fn from(state: TrialState) -> Self {
        match state {
            TrialState::Completed => Self::Completed,
            TrialState::Failed => Self::Failed,
            TrialState::Interrupted => Self::Interrupted,
        }
    }
}

/// A trial of a job, as it stands now.
#[derive(Clone, Debug)]
pub struct TrialStatus {
    /// The trial.
    pub trial: Trial,
    /// Where it stands.
    pub state: State,
    /// Its last attempt on disk.
    pub attempt: Option<AttemptDir>,
    /// Outcome of that attempt, if it has one.
    pub outcome: Option<Outcome>,
    /// Why it is in that state; may be empty.
    pub reason: String,
}

/// A job, as it stands now.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// What was submitted.
    pub record: JobRecord,
    /// Its folder.
    pub folder: JobDir,
    /// Its trials, in the order of array tasks.
    pub trials: Vec<TrialStatus>,
}

impl JobStatus {
    /// Number of trials in each state that occurs.
    pub fn counts(&self) -> Vec<(State, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for trial in &self.trials {
            *counts.entry(trial.state).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// The counts in words: `2 completed, 1 running`.
    pub fn summary(&self) -> String {
        let parts: Vec<String> = self.counts().iter().map(|(state, n)| format!("{n} {}", state.name())).collect();
        parts.join(", ")
    }

    /// Whether every trial completed; if not, the failure with its documented exit code, as for a job that was waited for.
    ///
    /// # Errors
    /// Exit 6 if trials did not end, 5 if some failed; both name them.
    pub fn verdict(&self) -> Result<(), Failure> {
        let of = |which: fn(State) -> bool| -> Vec<&str> {
            self.trials.iter().filter(|t| which(t.state)).map(|t| t.trial.id.as_str()).collect()
        };
        let failed = of(|state| state == State::Failed);
        let unended = of(|state| !matches!(state, State::Completed | State::Failed));
        ledger::verdict(self.trials.len(), &unended, &[], &failed)
    }

    /// Whether anything is, or may be, at work on the job.
    pub fn is_active(&self) -> bool {
        self.trials.iter().any(|trial| trial.state.is_active())
    }
}
