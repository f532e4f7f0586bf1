use crate::{AttemptDir, RecordError, StepRecord};

/// The steps of `rank` over the attempts of a trial, oldest first: one row a step, as if it had run at once.
///
/// The last attempt counts. Where it went on from a checkpoint, its first steps come from the attempts before it, each
/// up to the step at which the later one went on; what an attempt did beyond that was done again and is left out. An
/// attempt that started at step 0 ends the search.
///
/// # Errors
/// A file cannot be read, or a step is in no attempt.
pub fn joined_steps(attempts: &[AttemptDir], rank: u32) -> Result<Vec<StepRecord>, RecordError> {
    let Some((last, earlier)) = attempts.split_last() else { return Ok(Vec::new()) };
    let mut joined = last.steps(rank)?;
    for attempt in earlier.iter().rev() {
        let Some(first) = joined.first().map(|record| record.step).filter(|step| *step > 0) else { break };
        let mut part = attempt.steps(rank)?;
        part.retain(|record| record.step < first);
        if let Some(end) = part.last().map(|record| record.step + 1).filter(|end| *end < first) {
            return Err(gap(attempt, rank, end, first));
        }
        part.append(&mut joined);
        joined = part;
    }
    match joined.first().map(|record| record.step) {
        Some(first) if first > 0 => Err(gap(last, rank, 0, first)),
        _ => Ok(joined),
    }
}

/// The steps `from..to` of `rank` as `attempts`, oldest first, did them last: what an attempt that goes on at `to` starts from.
///
/// # Errors
/// A file cannot be read, or a step is in no attempt.
pub fn steps_before(attempts: &[AttemptDir], rank: u32, from: u64, to: u64) -> Result<Vec<StepRecord>, RecordError> {
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

fn gap(attempt: &AttemptDir, rank: u32, from: u64, to: u64) -> RecordError {
    let reason = format!("steps {from} to {} of rank {rank} are in no attempt", to - 1);
    RecordError::Parquet { path: attempt.steps_path(rank), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobDir, Journal};

    type Rows = Result<Vec<(u64, u64)>, RecordError>;

    fn join(attempts: &[(u64, u64)]) -> Rows {
        of(attempts, |attempts| joined_steps(attempts, 0))
    }

    /// Attempts with these steps, from and to; a row's `samples` says which attempt it is of.
    fn of(attempts: &[(u64, u64)], join: impl FnOnce(&[AttemptDir]) -> Result<Vec<StepRecord>, RecordError>) -> Rows {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path());
        for &(first, end) in attempts {
            let attempt = job.next_attempt("t").unwrap();
            let mut journal = Journal::create(&attempt.journal_path(0)).unwrap();
            for step in first..end {
                let samples = u64::from(attempt.number());
                journal.append(&StepRecord { step, samples, ..StepRecord::default() }).unwrap();
            }
        }
        let joined = join(&job.attempts("t").unwrap())?;
        Ok(joined.iter().map(|r| (r.step, r.samples)).collect())
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
