//! The steps of a trial over its attempts: one that goes on from a checkpoint builds on the attempts before it.

use std::ops::Range;

use crate::{AttemptDir, LedgerError, StepRecord, TableError};

/// The steps of one rank over all attempts of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JoinedSteps {
    /// One record a step, in order, as if the trial had run in one attempt.
    pub steps: Vec<StepRecord>,
    /// Attempts that the steps come from, oldest first; empty without steps.
    pub parts: Vec<JoinedPart>,
}

/// The steps of a trial that come from one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedPart {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Numbers of these steps.
    pub steps: Range<u64>,
}

/// Whether a step counts in rates, in an attempt whose first step is `first`.
///
/// The warm-up is the first `warmup` steps of every attempt: an attempt that goes on from a checkpoint starts with cold caches and an empty
/// loader, as the first one did.
pub const fn is_measured(step: u64, first: u64, warmup: u64) -> bool {
    step >= first.saturating_add(warmup)
}

/// Join the steps of `rank` over the attempts of a trial, oldest first.
///
/// The last attempt counts. If it went on from a checkpoint, earlier steps come from the attempts before it, each up to the step at which the
/// next one went on; later steps of an attempt were done again and are left out. An attempt that started at step 0 ends the search.
///
/// The first `warmup` steps of an attempt that went on from a checkpoint do not count as measured ([`is_measured`]), even if its table says
/// so, as older tables do. The table of an attempt that began at step 0 is taken as it is.
///
/// # Errors
/// A file cannot be read, or a step is in no attempt.
pub fn joined_steps(attempts: &[AttemptDir], rank: u32, warmup: u64) -> Result<JoinedSteps, LedgerError> {
    join_with(attempts, rank, warmup, AttemptDir::steps)
}

/// [`joined_steps()`] of the times of the steps alone ([`AttemptDir::step_times`]).
///
/// # Errors
/// As [`joined_steps()`].
pub(crate) fn joined_step_times(attempts: &[AttemptDir], rank: u32, warmup: u64) -> Result<JoinedSteps, LedgerError> {
    join_with(attempts, rank, warmup, AttemptDir::step_times)
}

fn join_with(
    attempts: &[AttemptDir],
    rank: u32,
    warmup: u64,
    read: impl Fn(&AttemptDir, u32) -> Result<Vec<StepRecord>, LedgerError>,
) -> Result<JoinedSteps, LedgerError> {
    let Some(last) = attempts.last() else { return Ok(JoinedSteps::default()) };
    let mut joined = JoinedSteps::default();
    let mut begin: Option<u64> = None;
    for attempt in attempts.iter().rev() {
        let mut rows = read(attempt, rank)?;
        if let Some(first) = rows.first().map(|record| record.step).filter(|first| *first > 0) {
            rows.iter_mut().for_each(|record| record.measured &= is_measured(record.step, first, warmup));
        }
        rows.retain(|record| begin.is_none_or(|begin| record.step < begin));
        if let Some((first, end)) = rows.first().zip(rows.last()).map(|(first, last)| (first.step, last.step + 1)) {
            if let Some(begin) = begin.filter(|begin| end < *begin) {
                return Err(gap(attempt, rank, end, begin));
            }
            joined.parts.insert(0, JoinedPart { attempt: attempt.number(), steps: first..end });
            rows.append(&mut joined.steps);
            joined.steps = rows;
            begin = Some(first);
        }
        // Without steps of the last attempt nothing counts yet.
        if begin.is_none_or(|begin| begin == 0) {
            break;
        }
    }
    match begin {
        Some(first) if first > 0 => Err(gap(last, rank, 0, first)),
        _ => Ok(joined),
    }
}

/// The steps `from..to` of `rank`, each from the last of `attempts` (oldest first) that did it: an attempt that goes on at `to` starts from
/// these.
///
/// # Errors
/// A file cannot be read, or a step is in no attempt.
pub fn steps_before(attempts: &[AttemptDir], rank: u32, from: u64, to: u64) -> Result<Vec<StepRecord>, LedgerError> {
    let mut steps: Vec<StepRecord> = Vec::new();
    let mut end = to;
    for attempt in attempts.iter().rev() {
        if end <= from {
            break;
        }
        let mut part = attempt.steps(rank)?;
        part.retain(|record| (from..end).contains(&record.step));
        let Some((first, last)) = part.first().zip(part.last()).map(|(first, last)| (first.step, last.step)) else {
            continue;
        };
        if last + 1 < end {
            return Err(gap(attempt, rank, last + 1, end));
        }
        end = first;
        part.append(&mut steps);
        steps = part;
    }
    match attempts.last() {
        Some(last) if end > from => Err(gap(last, rank, from, end)),
        _ => Ok(steps),
    }
}

fn gap(attempt: &AttemptDir, rank: u32, from: u64, to: u64) -> LedgerError {
    LedgerError::table(&attempt.steps_path(rank), TableError::NoSteps { rank, first: from, last: to - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobDir, Journal};

    const WARMUP: u64 = 3;

    type Rows = Result<Vec<(u64, u64)>, LedgerError>;

    fn join(attempts: &[(u64, u64)]) -> Rows {
        of(attempts, |attempts| Ok(joined_steps(attempts, 0, 0)?.steps))
    }

    /// Attempts with these steps, from and to; a row's `samples` says which attempt it is of.
    fn of(attempts: &[(u64, u64)], join: impl FnOnce(&[AttemptDir]) -> Result<Vec<StepRecord>, LedgerError>) -> Rows {
        let joined = with(attempts, join)?;
        Ok(joined.iter().map(|r| (r.step, r.samples)).collect())
    }

    /// What `join` makes of attempts with these steps. The tables say `measured` as older ones do: from step 3 on.
    fn with<T>(attempts: &[(u64, u64)], join: impl FnOnce(&[AttemptDir]) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path());
        for &(first, end) in attempts {
            let attempt = job.next_attempt("t").unwrap();
            let mut journal = Journal::create(&attempt.journal_path(0)).unwrap();
            for step in first..end {
                let samples = u64::from(attempt.number());
                let measured = step >= WARMUP;
                journal.append(&StepRecord { step, samples, measured, ..StepRecord::default() }).unwrap();
            }
        }
        join(&job.attempts("t").unwrap())
    }

    /// The steps that count as measured.
    fn measured(attempts: &[(u64, u64)]) -> Vec<u64> {
        let joined = with(attempts, |attempts| joined_steps(attempts, 0, WARMUP)).unwrap();
        joined.steps.iter().filter(|record| record.measured).map(|record| record.step).collect()
    }

    fn rows(parts: &[(u64, u64, u64)]) -> Vec<(u64, u64)> {
        parts.iter().flat_map(|&(first, end, attempt)| (first..end).map(move |s| (s, attempt))).collect()
    }

    #[test]
    fn attempts_join_without_gap_or_overlap() {
        assert_eq!(join(&[]).unwrap(), []);
        assert_eq!(join(&[(0, 3)]).unwrap(), rows(&[(0, 3, 1)]));
        // Attempt 1 went beyond its checkpoint; that part was done again.
        assert_eq!(join(&[(0, 7), (5, 9)]).unwrap(), rows(&[(0, 5, 1), (5, 9, 2)]));
        // Attempt 2 made no checkpoint, and attempt 3 none of its steps.
        assert_eq!(join(&[(0, 7), (5, 6), (5, 5), (5, 9)]).unwrap(), rows(&[(0, 5, 1), (5, 9, 4)]));
        assert_eq!(join(&[(0, 4), (3, 7), (6, 9)]).unwrap(), rows(&[(0, 3, 1), (3, 6, 2), (6, 9, 3)]));
        // A start from the beginning replaces what was before it.
        assert_eq!(join(&[(0, 9), (0, 4), (2, 6)]).unwrap(), rows(&[(0, 2, 2), (2, 6, 3)]));
        assert_eq!(join(&[(0, 9), (0, 0)]).unwrap(), []);
    }

    #[test]
    fn each_part_names_its_attempt() {
        let parts = |attempts: &[(u64, u64)]| -> Vec<(u32, Range<u64>)> {
            let joined = with(attempts, |attempts| joined_steps(attempts, 0, WARMUP)).unwrap();
            joined.parts.into_iter().map(|part| (part.attempt, part.steps)).collect()
        };
        assert_eq!(parts(&[]), []);
        assert_eq!(parts(&[(0, 9), (0, 4)]), [(2, 0..4)]);
        // Attempt 2 did nothing that counts.
        assert_eq!(parts(&[(0, 7), (5, 6), (5, 9)]), [(1, 0..5), (3, 5..9)]);
        assert_eq!(parts(&[(0, 9), (0, 4), (3, 7), (6, 9)]), [(2, 0..3), (3, 3..6), (4, 6..9)]);
        assert_eq!(parts(&[(0, 9), (5, 5)]), []);
    }

    #[test]
    fn the_first_steps_after_a_checkpoint_are_warm_up() {
        assert_eq!(measured(&[(0, 6)]), [3, 4, 5]);
        assert_eq!(measured(&[(0, 6), (6, 11)]), [3, 4, 5, 9, 10]);
        // What was done again was warm-up the second time; steps of the first attempt beyond step 6 are left out.
        assert_eq!(measured(&[(0, 9), (6, 11)]), [3, 4, 5, 9, 10]);
        assert_eq!(measured(&[(0, 6), (6, 11), (11, 16)]), [3, 4, 5, 9, 10, 14, 15]);
        // Attempt 2 ended within its warm-up: none of its steps counts, and attempt 3 has a warm-up, too.
        assert_eq!(measured(&[(0, 6), (6, 8), (8, 13)]), [3, 4, 5, 11, 12]);
        // A checkpoint within the warm-up makes it longer.
        assert_eq!(measured(&[(0, 2), (2, 7)]), [5, 6]);
        // A start from step 0 replaces all before it, and has the usual warm-up.
        assert_eq!(measured(&[(0, 6), (6, 11), (0, 5)]), [3, 4]);
    }

    #[test]
    fn a_table_that_leaves_steps_out_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = JobDir::new(dir.path()).next_attempt("t").unwrap();
        let mut journal = Journal::create(&attempt.journal_path(0)).unwrap();
        journal.append(&StepRecord { step: 0, measured: false, ..StepRecord::default() }).unwrap();
        journal.append(&StepRecord { step: 1, measured: true, ..StepRecord::default() }).unwrap();
        let joined = joined_steps(&[attempt], 0, 0).unwrap();
        assert_eq!(joined.steps.iter().map(|record| record.measured).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn the_steps_before_a_checkpoint_are_those_of_whoever_did_them_last() {
        let before = |attempts: &[_], from, to| of(attempts, |attempts| steps_before(attempts, 0, from, to));
        assert_eq!(before(&[(0, 7)], 2, 5).unwrap(), rows(&[(2, 5, 1)]));
        assert_eq!(before(&[(0, 7), (3, 6), (6, 6)], 2, 6).unwrap(), rows(&[(2, 3, 1), (3, 6, 2)]));
        assert_eq!(before(&[(0, 7), (6, 9)], 2, 5).unwrap(), rows(&[(2, 5, 1)]));
        assert_eq!(before(&[(0, 7)], 5, 5).unwrap(), []);
        assert!(before(&[(0, 4), (6, 9)], 2, 8).unwrap_err().to_string().contains("steps 4 to 5 of rank 0"));
        assert!(before(&[(3, 9)], 2, 8).unwrap_err().to_string().contains("steps 2 to 2 of rank 0"));
    }

    #[test]
    fn a_step_that_is_in_no_attempt_is_an_error() {
        let message = join(&[(0, 3), (5, 9)]).unwrap_err().to_string();
        assert!(message.contains("steps 3 to 4 of rank 0 are in no attempt"), "{message}");
        let message = join(&[(0, 0), (5, 9)]).unwrap_err().to_string();
        assert!(message.contains("steps 0 to 4 of rank 0"), "{message}");
    }
}
