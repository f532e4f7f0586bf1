//! `learning.jsonl` of an attempt: loss and validation of each epoch, appended by rank 0, and joined over the attempts of a trial.
//! Invariant: after the join each epoch is there once: the record of the last attempt that did it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{AttemptDir, LedgerError};

/// One line of `learning.jsonl`: figures of training at the end of an epoch. Rank 0 writes it for all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearningRecord {
    /// The epoch that ended, from 0.
    pub epoch: u64,
    /// Steps done since the start of training.
    pub step: u64,
    /// Learning rate of the epoch.
    pub learning_rate: f64,
    /// Mean loss over the samples of the epoch, all ranks.
    pub train_loss: f64,
    /// Figures of the validation set. `None`: the epoch was not validated.
    pub validation: Option<Validation>,
    /// Whether it is the best epoch so far.
    pub best: bool,
    /// Whether training stopped early here, because the figures no longer improved.
    pub stopped: bool,
}

/// Figures over a whole validation set, gathered from all ranks, each sample counted once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Samples.
    pub samples: u64,
    /// Mean loss of the predictions, in the units that training sees.
    pub loss: f64,
    /// Mean squared error, in the units of the labels.
    pub mse: f64,
    /// Pearson correlation of predictions and labels. `None`: either is constant.
    pub pearson: Option<f64>,
    /// Spearman rank correlation, ties at their mean rank. `None`: either is constant.
    pub spearman: Option<f64>,
    /// Duration of the validation, seconds. It is part of no step.
    pub seconds: f64,
}

/// Append a line to the file. It is on disk when this returns.
///
/// # Errors
/// The file cannot be written.
pub fn append_learning(path: &Path, record: &LearningRecord) -> Result<(), LedgerError> {
    let mut line = serde_json::to_vec(record).map_err(LedgerError::json(path))?;
    line.push(b'\n');
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(LedgerError::io("open", path))?;
    file.write_all(&line).and_then(|()| file.sync_data()).map_err(LedgerError::io("write", path))
}

/// Read the lines of the file; a file that does not exist has none. An incomplete last line, of a killed writer, is left out.
///
/// # Errors
/// The file cannot be read, or a whole line is not a record.
pub fn read_learning(path: &Path) -> Result<Vec<LearningRecord>, LedgerError> {
    let text = match std::fs::read(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(LedgerError::io("read", path))?,
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).map_err(LedgerError::json(path))).collect()
}

/// Join the epochs of a trial over its attempts, oldest first. An epoch that a later attempt did again counts once.
///
/// # Errors
/// A file cannot be read.
pub fn joined_learning(attempts: &[AttemptDir]) -> Result<Vec<LearningRecord>, LedgerError> {
    let mut joined: Vec<LearningRecord> = Vec::new();
    for attempt in attempts {
        let part = read_learning(&attempt.learning_path())?;
        // An attempt that went on from a checkpoint starts after it, another one at the beginning.
        match part.first() {
            Some(first) => joined.retain(|record| record.epoch < first.epoch),
            // Its steps are only read where there are epochs that they may replace: most trials have none.
            None if !joined.is_empty() && begins_anew(attempt)? => joined.clear(),
            None => {}
        }
        joined.extend(part);
    }
    Ok(joined)
}

/// Whether an attempt without an epoch began with step 0: epochs before it do not count.
fn begins_anew(attempt: &AttemptDir) -> Result<bool, LedgerError> {
    Ok(attempt.step_times(0)?.first().is_some_and(|record| record.step == 0))
}

/// Whether training stopped early with these epochs.
pub fn stopped_early(records: &[LearningRecord]) -> bool {
    records.last().is_some_and(|last| last.stopped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobDir, Journal, StepRecord};

    fn record(epoch: u64, train_loss: f64) -> LearningRecord {
        LearningRecord { epoch, step: 10 * (epoch + 1), train_loss, ..LearningRecord::default() }
    }

    #[test]
    fn attempts_join_and_half_a_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path());
        let write = |records: &[LearningRecord]| {
            let path = job.next_attempt("t").unwrap().learning_path();
            records.iter().for_each(|r| append_learning(&path, r).unwrap());
            path
        };
        let path = write(&[record(0, 3.0), record(1, 2.0), record(2, 1.5)]);
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"epoch\":3,").unwrap();
        write(&[record(2, 1.4), record(3, 1.0)]);
        let joined = joined_learning(&job.attempts("t").unwrap()).unwrap();
        let losses: Vec<f64> = joined.iter().map(|r| r.train_loss).collect();
        assert_eq!(losses, [3.0, 2.0, 1.4, 1.0]);
    }

    #[test]
    fn an_attempt_that_began_anew_counts_even_before_its_first_epoch_ended() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path());
        let losses = || -> Vec<f64> {
            joined_learning(&job.attempts("t").unwrap()).unwrap().iter().map(|r| r.train_loss).collect()
        };
        let stepping_from = |step: u64| {
            let attempt = job.next_attempt("t").unwrap();
            let mut journal = Journal::create(&attempt.journal_path(0)).unwrap();
            journal.append(&StepRecord { step, ..StepRecord::default() }).unwrap();
        };
        let first = job.next_attempt("t").unwrap();
        append_learning(&first.learning_path(), &record(0, 3.0)).unwrap();
        // It went on from a checkpoint in the second epoch, and did not end it.
        stepping_from(12);
        assert_eq!(losses(), [3.0]);
        stepping_from(0);
        assert!(losses().is_empty());
    }
}
