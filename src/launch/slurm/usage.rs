//! Asking Slurm about attempts that ended, and writing down what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, Cause, JobDir, SlurmTry, SlurmUsage, TrialState};

use super::match_tries::{match_tries, share};
use super::sacct::Tries;
use crate::exit::Failure;
use crate::launch::slurm::arrays::Arrays;
use crate::launch::slurm::attempt::started;
use crate::launch::slurm::submitted::Submitted;
use crate::launch::slurm::tasks::TaskState;
use crate::launch::slurm::tools::Slurm;
use crate::parallel;

/// Longest that rows of the accounting are waited for: they come some seconds after a task's end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two questions to the accounting.
const PAUSE: Duration = Duration::from_secs(1);
/// Seconds by which the clock here may be ahead of Slurm's.
const CLOCKS: i64 = 60;

/// An array task, as Slurm names it.
type Key = (u64, u32);

/// What is known of a task: from which command, its tries, and how many there were before the first of them.
struct Known {
    source: &'static str,
    tries: Vec<SlurmTry>,
    earlier: u32,
}

impl Slurm {
    /// Write `slurm.json` of those `attempts` (each with its array and its array task) that belong to `arrays` and have none
    /// from the accounting yet. Tasks of which an attempt still runs are left out, so all attempts of a task are to be given. Waits up to ten seconds for rows of the accounting that are late. Where Slurm does not
    /// answer or no longer knows a task, there is no file.
    ///
    /// # Errors
    /// A ledger that cannot be read or written. A Slurm that does not answer is no error.
    pub(in crate::launch::slurm) fn record_usage(
        &self,
        folder: &JobDir,
        arrays: &[Submitted],
        attempts: &[(Submitted, u32, AttemptDir)],
    ) -> Result<(), Failure> {
        self.record_usage_within(PATIENCE, folder, arrays, attempts)
    }

    fn record_usage_within(
        &self,
        patience: Duration,
        folder: &JobDir,
        arrays: &[Submitted],
        attempts: &[(Submitted, u32, AttemptDir)],
    ) -> Result<(), Failure> {
        let mut tasks: BTreeMap<Key, Vec<&AttemptDir>> = BTreeMap::new();
        for (array, task, attempt) in attempts.iter().filter(|(array, ..)| arrays.contains(array)) {
            tasks.entry((array.id, *task)).or_default().push(attempt);
        }
        tasks.retain(|_, attempts| {
            attempts.iter().any(|attempt| is_open(attempt))
                && !attempts.iter().any(|attempt| is_running(attempt, attempts))
        });
        let wanted: BTreeSet<u64> = tasks.keys().map(|(array, _)| *array).collect();
        let asked: Vec<&Submitted> = arrays.iter().filter(|array| wanted.contains(&array.id)).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let since = folder.record()?.submitted - CLOCKS;
        let known = self.known(&asked, &tasks.keys().copied().collect(), since, patience);
        let tasks: Vec<(Key, Vec<&AttemptDir>)> = tasks.into_iter().collect();
        // Each file that is written is waited for until it is on disk: a thousand one after another take ten seconds.
        parallel::map(&tasks, |(key, attempts)| known.get(key).map_or(Ok(()), |known| keep(*key, known, attempts)))
            .into_iter()
            .collect()
    }

    /// What Slurm knows of those of the `tasks` of `arrays` that are over.
    fn known(
        &self,
        arrays: &[&Submitted],
        tasks: &BTreeSet<Key>,
        since: i64,
        patience: Duration,
    ) -> BTreeMap<Key, Known> {
        let begun = Instant::now();
        let mut accounted = Tries::new();
        loop {
            match self.accounted_tries(arrays.iter().copied(), since) {
                Ok(tries) => accounted = tries,
                Err(e) => {
                    tracing::debug!("no accounting: {e}");
                    break;
                }
            }
            let late = tasks.iter().any(|task| !accounted.get(task).is_some_and(|tries| is_whole(tries)));
            if !late || begun.elapsed() >= patience {
                break;
            }
            sleep(PAUSE);
        }
        accounted.retain(|task, tries| tasks.contains(task) && is_whole(tries));
        let mut known: BTreeMap<Key, Known> =
            accounted.into_iter().map(|(task, tries)| (task, Known { source: "sacct", tries, earlier: 0 })).collect();
        for array in arrays {
            let missing = |task: &Key| task.0 == array.id && !known.contains_key(task);
            let missing: Vec<Key> = tasks.iter().copied().filter(missing).collect();
            if missing.is_empty() {
                continue;
            }
            match self.remembered_tries(array) {
                Ok(mut remembered) => known.extend(missing.into_iter().filter_map(|task| {
                    let (last, earlier) = remembered.remove(&task.1)?;
                    let tries = vec![last];
                    is_whole(&tries).then_some((task, Known { source: "scontrol", tries, earlier }))
                })),
                Err(e) => tracing::debug!("what ran in array {} is not known: {e}", array.id),
            }
        }
        known
    }

    /// Write `slurm.json` of the ended attempts of job `id` that have none: somebody may have submitted it and not waited.
    /// With `patient`, rows of the accounting that are late are waited for.
    ///
    /// # Errors
    /// A ledger that cannot be read or written. A Slurm that does not answer is no error.
    pub fn collect_usage(&self, folder: &JobDir, id: u64, patient: bool) -> Result<(), Failure> {
        let trials = folder.record()?.trials;
        let arrays = Arrays::load(folder, id, trials.len())?;
        let mut attempts = Vec::new();
        for (trial, made_by) in trials.iter().zip(arrays.tasks_of_trials(trials.len())) {
            for attempt in folder.attempts(&trial.id)? {
                // The newest array that was to make this attempt or an earlier one: later ones are for retries.
                let by = made_by.iter().rev().find(|(.., first)| *first <= attempt.number());
                attempts.extend(by.map(|(array, task, _)| (arrays.named(*array), *task, attempt)));
            }
        }
        let arrays: Vec<Submitted> = arrays.arrays.iter().map(|array| arrays.named(array.id)).collect();
        if patient {
            self.record_usage(folder, &arrays, &attempts)
        } else {
            self.record_usage_within(Duration::ZERO, folder, &arrays, &attempts)
        }
    }
}

/// Write what is known of a task into the folders of its attempts, where that is new.
fn keep(key: Key, known: &Known, attempts: &[&AttemptDir]) -> Result<(), Failure> {
    let mut attempts = attempts.to_vec();
    attempts.sort_by_cached_key(|attempt| (started(attempt), attempt.number()));
    for (attempt, usage, last) in usages(key, known, &attempts) {
        if !is_open(attempt) {
            continue;
        }
        // Without accounting the controller says the same again.
        if !attempt.slurm_usage().is_ok_and(|kept| kept.as_ref() == Some(&usage)) {
            usage.save(attempt)?;
        }
        // The others ended before the task did, each by itself.
        if last {
            amend(attempt, &usage)?;
        }
    }
    Ok(())
}

/// Let the outcome of an attempt say what only Slurm knows: why it was stopped. Its script heard no more than a signal.
fn amend(attempt: &AttemptDir, usage: &SlurmUsage) -> Result<(), Failure> {
    let Some(mut outcome) = attempt.outcome()? else { return Ok(()) };
    let state = &usage.usage.state;
    let cause = Cause::of_slurm(state, usage.usage.reason.as_deref().unwrap_or_default());
    let only_stopped = matches!(outcome.cause, None | Some(Cause::Killed | Cause::Cancelled));
    let Some(cause) = cause.filter(|cause| only_stopped && outcome.cause != Some(*cause)) else { return Ok(()) };
    if outcome.state == TrialState::Completed || cause == Cause::Cancelled {
        return Ok(());
    }
    // Nobody asked for it.
    outcome.state = TrialState::Failed;
    outcome.cause = Some(cause);
    outcome.message = format!("{}; Slurm says {state}", outcome.message);
    Ok(outcome.save(attempt)?)
}

/// Whether more is to be learnt of an attempt.
fn is_open(attempt: &AttemptDir) -> bool {
    // A file that cannot be read is written again.
    !attempt.slurm_usage().is_ok_and(|usage| usage.is_some_and(|usage| usage.source == "sacct"))
}

/// Whether an attempt is not over. One that was requeued may have no outcome, but has a successor.
fn is_running(attempt: &AttemptDir, all: &[&AttemptDir]) -> bool {
    let succeeds =
        |other: &AttemptDir| other.path().parent() == attempt.path().parent() && other.number() > attempt.number();
    !attempt.outcome_path().exists() && !all.iter().any(|other| succeeds(other))
}

/// Whether a task is over and Slurm has written down when. Its last row may still be that of an earlier try.
fn is_whole(tries: &[SlurmTry]) -> bool {
    tries.last().is_some_and(|last| TaskState::new(last.state.as_str()).is_over() && last.ended.is_some())
}

/// What is to be written for each of a task's attempts, and whether it is the last one of its try.
fn usages<'a>(key: Key, known: &Known, attempts: &[&'a AttemptDir]) -> Vec<(&'a AttemptDir, SlurmUsage, bool)> {
    let times: Vec<i64> = attempts.iter().map(|attempt| started(attempt)).collect();
    let matched = match_tries(&known.tries, &times);
    let mut found = Vec::new();
    for (place, (attempt, index)) in attempts.iter().zip(&matched).enumerate() {
        let Some(index) = *index else { continue };
        let beside = matched.iter().filter(|other| **other == Some(index)).count();
        let before = matched[..place].iter().filter(|other| **other == Some(index)).count();
        let others = known.tries.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, other)| other.clone());
        let usage = SlurmUsage {
            source: known.source.to_owned(),
            array: key.0,
            task: key.1,
            try_number: known.earlier.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)).saturating_add(1),
            attempts_in_try: u32::try_from(beside).unwrap_or(u32::MAX),
            usage: share(&known.tries[index], before, beside),
            other_tries: others.collect(),
        };
        found.push((*attempt, usage, before + 1 == beside));
    }
    found
}
