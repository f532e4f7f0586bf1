//! [`RankLog`]: what a rank of a program has reported, and its files in the ledger.

use std::time::Instant;

use expctl_ledger::{AttemptDir, Journal, LastWords, LedgerError, RankStatus, StepRecord};
use expctl_settings::Trial;

use super::protocol::{EndRecord, RunRecord, StepLine};

/// Why a record of a rank is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It contradicts an earlier record.
    #[error("{0}")]
    Record(String),
    /// The ledger cannot be written to.
    #[error("{0}")]
    Ledger(#[from] LedgerError),
}

/// The records of one rank so far, and its files in the ledger.
///
/// Invariant: its steps are those from 0 on, without a gap, and none begins before the one before it has ended.
pub struct RankLog {
    pub rank: u32,
    /// Its run record, once it arrived.
    pub run: Option<RunRecord>,
    /// Its end record, once it arrived.
    pub end: Option<EndRecord>,
    /// Number of steps in the journal.
    pub steps: u64,
    /// Steps of the trial, warm-up included.
    pub total: u64,
    /// Ticks since its last record, or since it was started.
    pub ticks: u64,
    /// When its connection closed.
    pub closed: Option<Instant>,
    warmup: u64,
    end_ns: u64,
    journal: Journal,
    last_words: LastWords,
}

impl RankLog {
    /// The log of `rank`, which has just started.
    ///
    /// # Errors
    /// Its journal cannot be created.
    pub fn new(attempt: &AttemptDir, trial: &Trial, rank: u32) -> Result<Self, LedgerError> {
        let measure = &trial.settings.measure;
        Ok(Self {
            rank,
            run: None,
            end: None,
            steps: 0,
            total: measure.warmup.saturating_add(measure.steps),
            ticks: 0,
            closed: None,
            warmup: measure.warmup,
            end_ns: 0,
            journal: Journal::create(&attempt.journal_path(rank))?,
            last_words: LastWords::new(attempt.clone(), rank),
        })
    }

    /// Whether it has all its steps.
    pub fn complete(&self) -> bool {
        self.run.is_some() && self.steps == self.total
    }

    /// Take a step.
    ///
    /// # Errors
    /// [`Refused`] if it is not the next step, or cannot be written.
    pub fn step(&mut self, line: &StepLine) -> Result<(), Refused> {
        if self.end.is_some() {
            return Err(Refused::Record("a step after the end record".to_owned()));
        }
        if line.step != self.steps {
            return Err(Refused::Record(format!("step {}, where step {} was due", line.step, self.steps)));
        }
        if line.step >= self.total {
            let total = self.total;
            return Err(Refused::Record(format!("step {} is one too many: the trial has {total}", line.step)));
        }
        if line.start_ns < self.end_ns {
            let (start, end) = (line.start_ns, self.end_ns);
            return Err(Refused::Record(format!(
                "the step begins at {start} ns, before the last one ended ({end} ns)"
            )));
        }
        self.journal.append(&StepRecord {
            step: line.step,
            epoch: line.epoch,
            measured: line.step >= self.warmup,
            start_ns: line.start_ns,
            wall_ns: line.wall_ns,
            samples: line.samples,
            bytes_read: line.bytes_read,
            bytes_batch: line.bytes_batch,
            bytes_to_device: line.bytes_to_device,
            loss: line.loss,
            busy: line.busy.0,
            exposed: line.exposed.0,
            device: None,
            copy_ns: None,
            operations: Vec::new(),
        })?;
        self.end_ns = line.start_ns + line.wall_ns;
        self.steps += 1;
        self.last_words.step_done();
        Ok(())
    }

    /// Its progress in words: `after 5 of 8 steps`.
    pub fn progress(&self) -> String {
        match (&self.run, self.steps) {
            (None, _) => "before it called expctl.Run() (no run record)".to_owned(),
            (Some(_), 0) => "before its first step".to_owned(),
            (Some(_), steps) => format!("after {steps} of {} steps", self.total),
        }
    }

    /// Replace the journal by the table, and write the exit record. False if one of them cannot be written.
    pub fn close(&self, trial: &Trial, status: RankStatus, message: &str, lost_peer: Option<u32>) -> bool {
        let table = self.last_words.write_table(trial);
        if let Err(e) = &table {
            // The journal stays, and the launcher makes a table of it.
            tracing::error!("rank {}: {e}", self.rank);
        }
        self.last_words.say(status, message, lost_peer, None) && table.is_ok()
    }
}
