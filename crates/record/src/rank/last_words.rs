use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{AttemptDir, RankExit, RankStatus, write_json};

/// Writes `rank-<r>.exit.json`. Invariant: only the first word counts, whichever thread says it.
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

    /// Note that another step is in the journal.
    pub fn step_done(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Steps done so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Say how the rank ended. False if it cannot be written down.
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
}
