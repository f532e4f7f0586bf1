//! How an attempt ended: the last words of each rank, and the outcome that the launcher makes of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use expctl_settings::Trial;
use serde::{Deserialize, Serialize};

use crate::{AttemptDir, LedgerError, close_step_journal, write_json};

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// Every rank did all its steps.
    Completed,
    /// A rank ended with an error, or was killed.
    Failed,
    /// Stopped on request (Ctrl-C, cancel) before its end.
    Interrupted,
}

impl TrialState {
    /// The word used in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankStatus {
    /// All steps done.
    Completed,
    /// The rank itself met an error.
    Failed,
    /// The rank stopped because another one was gone.
    PeerLost,
    /// The rank was asked to stop.
    Interrupted,
    /// The rank ended without last words: killed by a signal, or crashed.
    Killed,
}

/// Exit code of a rank that failed.
pub const EXIT_FAILED: i32 = 1;
/// Exit code of a rank that was asked to stop.
pub const EXIT_INTERRUPTED: i32 = 3;
/// Exit code of a rank that stopped because another one was lost.
pub const EXIT_PEER_LOST: i32 = 4;
/// Exit code of a rank that could not write its records. Most likely its last words could not be written either.
pub const EXIT_STORAGE: i32 = 5;
/// Exit code of a rank whose own step did not end.
pub const EXIT_STUCK: i32 = 6;

/// `rank-<r>.exit.json`: the last words of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankExit {
    /// The rank.
    pub rank: u32,
    /// How it ended.
    pub status: RankStatus,
    /// Reason, as text; empty when completed.
    pub message: String,
    /// Rank whose loss made this one stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_peer: Option<u32>,
    /// Steps that are in its table.
    pub steps: u64,
    /// Digest over the bytes of all parameters after the last step; equal on all ranks of a sound run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_digest: Option<String>,
    /// Exit code of the process, from the launcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended the process, from the launcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// `outcome.json`: how an attempt ended, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub state: TrialState,
    /// Reason, in one line that names the rank; empty when completed.
    pub message: String,
    /// Why it did not complete. `None`: it completed, or the cause is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The rank that was at the root of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_rank: Option<u32>,
    /// Start, seconds since the epoch.
    pub started: i64,
    /// End, seconds since the epoch.
    pub ended: i64,
    /// Of a trial that runs side by side with others: the time for which these ran between `beside_from` and its end, summed over them, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_s: Option<i64>,
    /// Start of the time that `beside_s` is of: when its ranks began, seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_from: Option<i64>,
    /// Ids of the trials that ran for a tenth of this time or more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Each rank's end, in order.
    pub ranks: Vec<RankExit>,
}

impl Outcome {
    /// Write `outcome.json` of an attempt.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, attempt: &AttemptDir) -> Result<(), LedgerError> {
        write_json(&attempt.outcome_path(), self)
    }
}

/// Why an attempt ended before its last step, as far as that decides what another attempt needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A rank met an error and reported it: a defect, a setting, data. It would meet it again.
    Error,
    /// A process crashed, or something outside killed it.
    Killed,
    /// It used more memory than it had asked for.
    OutOfMemory,
    /// Its node was lost, or could not start it.
    Node,
    /// It reached its time limit.
    TimeLimit,
    /// It had to make room for another job.
    Preempted,
    /// It made no progress.
    Hang,
    /// The ledger could not be written.
    Storage,
    /// Its data could not be built.
    Data,
    /// Somebody stopped it.
    Cancelled,
}

impl Cause {
    /// The words in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Killed => "killed",
            Self::OutOfMemory => "out of memory",
            Self::Node => "node lost",
            Self::TimeLimit => "time limit",
            Self::Preempted => "preempted",
            Self::Hang => "hang",
            Self::Storage => "ledger not writable",
            Self::Data => "no data",
            Self::Cancelled => "cancelled",
        }
    }

    /// The cause that Slurm's state and reason of a task name. `None`: they name no cause (FAILED, COMPLETED).
    pub fn from_slurm(state: &str, reason: &str) -> Option<Self> {
        // sacct appends the user: `CANCELLED by 0`.
        let state = state.split_whitespace().next().unwrap_or_default();
        Some(match (state, reason) {
            ("OUT_OF_MEMORY", _) => Self::OutOfMemory,
            ("NODE_FAIL" | "BOOT_FAIL", _) | (_, "JobLaunchFailure" | "NodeDown") => Self::Node,
            ("TIMEOUT" | "DEADLINE", _) | (_, "TimeLimit") => Self::TimeLimit,
            ("PREEMPTED", _) => Self::Preempted,
            (_, "DependencyNeverSatisfied") => Self::Data,
            ("CANCELLED", _) => Self::Cancelled,
            _ => return None,
        })
    }
}

/// Writes `rank-<r>.exit.json` of a running rank. Invariant: only the first call of [`LastWords::say`] counts, whichever thread makes it.
#[derive(Debug)]
pub struct LastWords {
    attempt: AttemptDir,
    rank: u32,
    said: AtomicBool,
    steps: AtomicU64,
}

impl LastWords {
    /// The last words of `rank`, not yet said.
    pub fn new(attempt: AttemptDir, rank: u32) -> Self {
        Self { attempt, rank, said: AtomicBool::new(false), steps: AtomicU64::new(0) }
    }

    /// Count another step in the journal.
    pub fn step_done(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Steps done so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Write how the rank ended. False: it cannot be written, which is logged.
    pub fn say(
        &self,
        status: RankStatus,
        message: &str,
        lost_peer: Option<u32>,
        parameters_digest: Option<String>,
    ) -> bool {
        if self.said.swap(true, Ordering::SeqCst) {
            return true;
        }
        let exit = RankExit {
            rank: self.rank,
            status,
            message: message.to_owned(),
            lost_peer,
            steps: self.steps(),
            parameters_digest,
            exit_code: None,
            signal: None,
        };
        let written = write_json(&self.attempt.exit_path(self.rank), &exit);
        if let Err(e) = &written {
            // The launcher will find no last words and say so; the log has the reason.
            tracing::error!("{e}");
        }
        written.is_ok()
    }

    /// Replace the step journal of the rank by its table.
    ///
    /// # Errors
    /// The journal cannot be read, or the table not written; the journal stays then.
    pub fn write_table(&self, trial: &Trial) -> Result<(), LedgerError> {
        if self.attempt.is_closed() {
            // The launcher closed the attempt and wrote the tables of all ranks from their journals.
            return Ok(());
        }
        close_step_journal(&self.attempt, trial, self.rank, self.steps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_words_for_an_end() {
        assert_eq!(Cause::from_slurm("OUT_OF_MEMORY", "OutOfMemory"), Some(Cause::OutOfMemory));
        assert_eq!(Cause::from_slurm("NODE_FAIL", "None"), Some(Cause::Node));
        assert_eq!(Cause::from_slurm("FAILED", "JobLaunchFailure"), Some(Cause::Node));
        assert_eq!(Cause::from_slurm("TIMEOUT", "TimeLimit"), Some(Cause::TimeLimit));
        assert_eq!(Cause::from_slurm("CANCELLED", "DependencyNeverSatisfied"), Some(Cause::Data));
        assert_eq!(Cause::from_slurm("CANCELLED", "None"), Some(Cause::Cancelled));
        assert_eq!(Cause::from_slurm("FAILED", "NonZeroExitCode"), None);
    }
}
