use serde::{Deserialize, Serialize};

use crate::Cause;

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
    /// The rank ended without a word: killed by a signal, or crashed.
    Killed,
}

/// Exit code of a rank that failed.
pub const EXIT_FAILED: i32 = 1;
/// Exit code of a rank that was asked to stop.
pub const EXIT_INTERRUPTED: i32 = 3;
/// Exit code of a rank that stopped because another one was lost.
pub const EXIT_PEER_LOST: i32 = 4;
/// Exit code of a rank that could not write its records. Its last words could not be written either, most likely.
pub const EXIT_STORAGE: i32 = 5;
/// Exit code of a rank whose own step did not end.
pub const EXIT_STUCK: i32 = 6;

/// Last words of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankExit {
    /// The rank.
    pub rank: u32,
    /// How it ended.
    pub status: RankStatus,
    /// Why, for a reader; empty when completed.
    pub message: String,
    /// Rank whose loss made this one stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_peer: Option<u32>,
    /// Steps that are in its table.
    pub steps: u64,
    /// Digest over the bytes of all parameters after the last step; equal on all ranks of a sound run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_digest: Option<String>,
    /// Exit code of the process, as the launcher saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended the process, as the launcher saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// `outcome.json`: how an attempt ended, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How.
    pub state: TrialState,
    /// Why, in one line that names the rank; empty when completed.
    pub message: String,
    /// What made it so, where that is known; none when completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The rank that was at the root of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_rank: Option<u32>,
    /// Start, seconds since the epoch.
    pub started: i64,
    /// End, seconds since the epoch.
    pub ended: i64,
    /// Each rank's end, in order.
    pub ranks: Vec<RankExit>,
}
