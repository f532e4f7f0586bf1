//! `slurm.json`: what Slurm measured of each attempt (nodes, times, memory, exit codes).
//!
//! Invariant: it only adds to the ledger. Where Slurm does not answer or knows nothing, the figures are missing and
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, Cause, JobArrays, JobDir, JobRecord, SlurmStep, SlurmTry, SlurmUsage, TrialState};
use slurm_client::{Availability, JobId, JobStep, LastRun, Slurm, TaskRun, TaskRuns};

use super::array_task::job_id;
use crate::exit::Failure;
use crate::project::Project;

/// Time to wait for rows of the accounting: they appear some seconds after a task's end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two questions to the accounting.
const PAUSE: Duration = Duration::from_secs(1);
/// Seconds by which the clock here may be ahead of Slurm's.
const MAX_CLOCK_LEAD: i64 = 60;

/// An array task: the id of its array, and its index.
type TaskKey = (u64, u32);

/// Slurm's knowledge of a task.
struct KnownRuns {
    /// The command that said so.
    source: &'static str,
    /// Its runs, oldest first.
    runs: Vec<SlurmTry>,
    /// Number of runs before these.
    earlier: u32,
}

/// Write what Slurm measured of one of its jobs that nobody waited for, if a Slurm answers here.
///
/// # Errors
/// The ledger cannot be read or written.
pub fn collect_missing_usage(project: &Project, job: u64) -> Result<(), Failure> {
    let slurm = Slurm::from_environment();
    if slurm.availability() != Availability::Ready {
        return Ok(());
    }
    collect_usage(&slurm, &project.job(job), job, false)
}

/// Write `slurm.json` of the ended attempts of job `id` that have none. `patient` waits for late rows of the
/// accounting.
///
/// # Errors
/// The ledger cannot be read or written. A Slurm that does not answer is no error.
pub fn collect_usage(slurm: &Slurm, folder: &JobDir, id: u64, patient: bool) -> Result<(), Failure> {
    let trials = folder.record()?.trials;
    let arrays = JobArrays::load(folder, id, trials.len())?;
    let mut attempts = Vec::new();
    for (trial, tasks) in trials.iter().zip(arrays.tasks_of_trials(trials.len())) {
        for attempt in folder.attempts(&trial.id)? {
            let by = tasks.that_made(attempt.number());
            attempts.extend(by.map(|(array, task)| (job_id(&arrays, array.id), task, attempt)));
        }
    }
    let arrays: Vec<JobId> = arrays.arrays.iter().map(|array| job_id(&arrays, array.id)).collect();
    record(slurm, if patient { PATIENCE } else { Duration::ZERO }, folder, &arrays, &attempts)
}

/// Write `slurm.json` of those `attempts` (each with its array and the index of its task) that belong to `arrays` and
/// have none from the accounting yet. Tasks with an attempt that still runs are left out, so all attempts of a task are
/// to be given. Waits up to
/// `patience` for late rows of the accounting. Where Slurm does not answer or no longer knows a task, there is no file.
///
/// # Errors
/// The ledger cannot be read or written. A Slurm that does not answer is no error.
fn record(
    slurm: &Slurm,
    patience: Duration,
    folder: &JobDir,
    arrays: &[JobId],
    attempts: &[(JobId, u32, AttemptDir)],
) -> Result<(), Failure> {
    let mut tasks: BTreeMap<TaskKey, Vec<&AttemptDir>> = BTreeMap::new();
    for (array, task, attempt) in attempts.iter().filter(|(array, ..)| arrays.contains(array)) {
        tasks.entry((array.id, *task)).or_default().push(attempt);
    }
    tasks.retain(|_, attempts| {
        attempts.iter().any(|attempt| lacks_usage(attempt))
            && !attempts.iter().any(|attempt| is_running(attempt, attempts))
    });
    let wanted: BTreeSet<u64> = tasks.keys().map(|(array, _)| *array).collect();
    let asked: Vec<&JobId> = arrays.iter().filter(|array| wanted.contains(&array.id)).collect();
    if asked.is_empty() {
        return Ok(());
    }
    let since = folder.record()?.submitted - MAX_CLOCK_LEAD;
    let known = known_runs(slurm, &asked, &tasks.keys().copied().collect(), since, patience);
    let tasks: Vec<(TaskKey, Vec<&AttemptDir>)> = tasks.into_iter().collect();
    // Each file that is written is waited for until it is on disk: a thousand one after another take ten seconds.
    parallel_map::map(&tasks, |(key, attempts)| {
        known.get(key).map_or(Ok(()), |known| write_usage(*key, known, attempts))
    })
    .into_iter()
    .collect()
}

/// Ask Slurm for the runs of those `tasks` of `arrays` that are over.
fn known_runs(
    slurm: &Slurm,
    arrays: &[&JobId],
    tasks: &BTreeSet<TaskKey>,
    since: i64,
    patience: Duration,
) -> BTreeMap<TaskKey, KnownRuns> {
    let begun = Instant::now();
    let mut accounted = TaskRuns::new();
    loop {
        match slurm.accounted_runs(arrays.iter().copied(), since) {
            Ok(runs) => accounted = runs,
            Err(e) => {
                tracing::debug!("no accounting: {e}");
                break;
            }
        }
        let late = tasks.iter().any(|task| !accounted.get(task).is_some_and(|runs| is_complete(runs)));
        if !late || begun.elapsed() >= patience {
            break;
        }
        sleep(PAUSE);
    }
    accounted.retain(|task, runs| tasks.contains(task) && is_complete(runs));
    let mut known: BTreeMap<TaskKey, KnownRuns> = accounted
        .into_iter()
        .map(|(task, runs)| {
            let runs = runs.into_iter().map(ledger_try).collect();
            (task, KnownRuns { source: "sacct", runs, earlier: 0 })
        })
        .collect();
    for array in arrays {
        let missing = |task: &TaskKey| task.0 == array.id && !known.contains_key(task);
        let missing: Vec<TaskKey> = tasks.iter().copied().filter(missing).collect();
        if missing.is_empty() {
            continue;
        }
        match slurm.remembered_runs(array) {
            Ok(mut remembered) => known.extend(missing.into_iter().filter_map(|task| {
                let LastRun { run, restarts } = remembered.remove(&task.1)?;
                let complete = is_complete(std::slice::from_ref(&run));
                let runs = vec![ledger_try(run)];
                complete.then_some((task, KnownRuns { source: "scontrol", runs, earlier: restarts }))
            })),
            Err(e) => tracing::debug!("what ran in array {} is not known: {e}", array.id),
        }
    }
    known
}

/// Write what is known of a task into the folders of its attempts, where that is new.
fn write_usage(key: TaskKey, known: &KnownRuns, attempts: &[&AttemptDir]) -> Result<(), Failure> {
    let mut attempts = attempts.to_vec();
    attempts.sort_by_cached_key(|attempt| (attempt.started(), attempt.number()));
    for (attempt, usage, last) in usages(key, known, &attempts) {
        if !lacks_usage(attempt) {
            continue;
        }
        // Without accounting the controller may say the same again.
        if !attempt.slurm_usage().is_ok_and(|written| written.as_ref() == Some(&usage)) {
            usage.save(attempt)?;
        }
        // The other attempts ended before the run of the task did.
        if last {
            amend_outcome(attempt, &usage)?;
        }
    }
    Ok(())
}

/// Add to the outcome of an attempt what only Slurm knows: why it was stopped. Its script got no more than a signal.
fn amend_outcome(attempt: &AttemptDir, usage: &SlurmUsage) -> Result<(), Failure> {
    let Some(mut outcome) = attempt.outcome()? else { return Ok(()) };
    let state = &usage.usage.state;
    let cause = Cause::from_slurm(state, usage.usage.reason.as_deref().unwrap_or_default());
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

/// Whether Slurm may know more about an attempt than its `slurm.json`.
fn lacks_usage(attempt: &AttemptDir) -> bool {
    // A file that cannot be read is written again.
    !attempt.slurm_usage().is_ok_and(|usage| usage.is_some_and(|usage| usage.source == "sacct"))
}

/// Seconds after the end of a job during which its accounting may still come.
const ACCOUNTING_DELAY_S: i64 = 3600;

/// Whether Slurm may still say more of a job that has ended: attempts have no figures from the accounting, and it ended not long ago.
///
/// # Errors
/// The ledger cannot be read.
pub fn awaits_usage(folder: &JobDir, job: &JobRecord) -> Result<bool, Failure> {
    let (mut lacks, mut ended) = (false, job.submitted);
    for trial in &job.trials {
        for attempt in folder.attempts(&trial.id)? {
            lacks |= lacks_usage(&attempt);
            ended = attempt.outcome()?.map_or(ended, |outcome| ended.max(outcome.ended));
        }
    }
    Ok(lacks && jiff::Timestamp::now().as_second() - ended < ACCOUNTING_DELAY_S)
}

/// Whether an attempt is not over. A requeued attempt may have no outcome, but has a successor.
fn is_running(attempt: &AttemptDir, all: &[&AttemptDir]) -> bool {
    let succeeds =
        |other: &AttemptDir| other.path().parent() == attempt.path().parent() && other.number() > attempt.number();
    !attempt.outcome_path().exists() && !all.iter().any(|other| succeeds(other))
}

/// Whether a task is over and Slurm has recorded when. Its last row may still be that of an earlier run.
fn is_complete(runs: &[TaskRun]) -> bool {
    runs.last().is_some_and(|last| last.state.is_over() && last.ended.is_some())
}

/// Seconds before the end of a task within which a trial of it ended with it: Slurm gives the others KillWait to end.
const ENDED_WITH_TASK: i64 = 60;

/// Whether an attempt that ended at `ended` did so together with the run of its task.
fn ended_with(run: &SlurmTry, ended: i64) -> bool {
    run.ended.is_some_and(|end| ended + ENDED_WITH_TASK >= end)
}

/// The usage of each of a task's attempts, and whether the attempt ended with its run: of trials one after another the last one, of trials
/// side by side each that ended then.
fn usages<'a>(key: TaskKey, known: &KnownRuns, attempts: &[&'a AttemptDir]) -> Vec<(&'a AttemptDir, SlurmUsage, bool)> {
    let times: Vec<i64> = attempts.iter().map(|attempt| attempt.started()).collect();
    let matched = match_runs(&known.runs, &times);
    // Steps that run at the same time are not in the order of the attempts.
    let is_packed = |attempt: &&AttemptDir| attempt.trial().is_ok_and(|trial| trial.settings.slurm.pack > 1);
    let packed = attempts.len() > 1 && attempts.iter().any(is_packed);
    let mut found = Vec::new();
    for (position, (attempt, index)) in attempts.iter().zip(&matched).enumerate() {
        let Some(index) = *index else { continue };
        let beside = matched.iter().filter(|other| **other == Some(index)).count();
        let before = matched[..position].iter().filter(|other| **other == Some(index)).count();
        let others = known.runs.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, other)| other.clone());
        let usage = SlurmUsage {
            source: known.source.to_owned(),
            array: key.0,
            task: key.1,
            try_number: known.earlier.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)).saturating_add(1),
            attempts_in_try: u32::try_from(beside).unwrap_or(u32::MAX),
            usage: if packed { known.runs[index].clone() } else { share_of_run(&known.runs[index], before, beside) },
            other_tries: others.collect(),
        };
        let run = &known.runs[index];
        let last = match packed {
            true => {
                attempt.outcome().is_ok_and(|outcome| outcome.is_some_and(|outcome| ended_with(run, outcome.ended)))
            }
            false => before + 1 == beside,
        };
        found.push((*attempt, usage, last));
    }
    found
}

/// Seconds by which the clocks of controller, node and file server may differ; Slurm's times are whole seconds.
const SKEW: i64 = 2;

/// For each attempt of one array task, in order, the index of its run; `None` if Slurm knows none. `started` are the
/// starts of the attempts, seconds since the epoch. A run may have several attempts, and a run that ended early has
/// none.
fn match_runs(runs: &[SlurmTry], started: &[i64]) -> Vec<Option<usize>> {
    let in_time: Vec<Option<usize>> = started.iter().map(|s| runs.iter().rposition(|t| runs_at(t, *s))).collect();
    if in_time.iter().all(Option::is_some) {
        return in_time;
    }
    // The clocks may be far apart; or the attempt was staged afterwards, for a task that never came to stage it.
    let possible = |t: &SlurmTry, s: i64| t.submitted.is_none_or(|submitted| submitted <= s + SKEW);
    if runs.len() == started.len() && runs.iter().zip(started).all(|(t, s)| possible(t, *s)) {
        return (0..runs.len()).map(Some).collect();
    }
    let begun = |s: i64| runs.iter().rposition(|t| t.started.is_some_and(|start| start <= s + SKEW));
    in_time.into_iter().zip(started).map(|(found, s)| found.or_else(|| begun(*s))).collect()
}

fn runs_at(one: &SlurmTry, moment: i64) -> bool {
    let begun = one.started.is_some_and(|start| start <= moment + SKEW);
    begun && one.ended.is_none_or(|end| moment <= end + SKEW)
}

/// The share of a run that belongs to attempt `position` of the `attempts` in it: where each has a step of its own (one
/// `srun` after the other), that step. Otherwise the whole run belongs to all of them.
fn share_of_run(run: &SlurmTry, position: usize, attempts: usize) -> SlurmTry {
    let is_srun = |step: &&SlurmStep| step.step.parse::<u32>().is_ok();
    if attempts < 2 || run.steps.iter().filter(is_srun).count() != attempts {
        return run.clone();
    }
    let steps: Vec<SlurmStep> = run.steps.iter().filter(is_srun).nth(position).cloned().into_iter().collect();
    SlurmTry {
        max_rss_bytes: steps.iter().filter_map(|s| s.max_rss_bytes).max(),
        cpu_s: steps.iter().find_map(|s| s.cpu_s),
        steps,
        ..run.clone()
    }
}

/// A run as the ledger keeps it.
fn ledger_try(run: TaskRun) -> SlurmTry {
    SlurmTry {
        state: run.state.to_string(),
        exit_code: run.exit_code,
        signal: run.signal,
        reason: run.reason,
        waited_for: run.waited_for,
        submitted: run.submitted,
        started: run.started,
        ended: run.ended,
        elapsed_s: run.elapsed_s,
        time_limit_s: run.time_limit_s,
        nodes: run.nodes,
        cpus: run.cpus,
        cpu_s: run.cpu_s,
        memory_bytes: run.memory_bytes,
        max_rss_bytes: run.max_rss_bytes,
        steps: run.steps.into_iter().map(ledger_step).collect(),
    }
}

fn ledger_step(step: JobStep) -> SlurmStep {
    SlurmStep {
        step: step.step,
        state: step.state.to_string(),
        exit_code: step.exit_code,
        signal: step.signal,
        started: step.started,
        ended: step.ended,
        elapsed_s: step.elapsed_s,
        nodes: step.nodes,
        tasks: step.tasks,
        max_rss_bytes: step.max_rss_bytes,
        max_rss_node: step.max_rss_node,
        max_rss_task: step.max_rss_task,
        mean_rss_bytes: step.mean_rss_bytes,
        cpu_s: step.cpu_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(spans: &[(i64, i64)]) -> Vec<SlurmTry> {
        let one = |(start, end): &(i64, i64)| SlurmTry {
            submitted: Some(start - 5),
            started: Some(*start),
            ended: Some(*end),
            ..SlurmTry::default()
        };
        spans.iter().map(one).collect()
    }

    #[test]
    fn attempts_are_found_by_time() {
        assert_eq!(match_runs(&runs(&[(100, 200), (210, 300)]), &[101, 212]), [Some(0), Some(1)]);
        // The first try ended before it could make an attempt; the second ran two trials.
        assert_eq!(match_runs(&runs(&[(100, 101), (210, 300)]), &[211, 250]), [Some(1), Some(1)]);
    }

    #[test]
    fn clocks_that_are_apart_leave_the_order() {
        assert_eq!(match_runs(&runs(&[(100, 200), (210, 300)]), &[600, 710]), [Some(0), Some(1)]);
        // Slurm's own job of that number, submitted long after ours.
        assert_eq!(match_runs(&runs(&[(90_000, 90_010)]), &[100]), [None]);
    }

    #[test]
    fn an_attempt_that_was_made_afterwards_gets_the_try_that_made_none() {
        let cancelled = SlurmTry { submitted: Some(90), ended: Some(95), ..SlurmTry::default() };
        assert_eq!(match_runs(&[cancelled], &[400]), [Some(0)]);
        assert_eq!(match_runs(&runs(&[(100, 200), (210, 220)]), &[110, 160, 400]), [Some(0), Some(0), Some(1)]);
    }

    #[test]
    fn a_try_that_the_controller_has_forgotten_has_no_attempt() {
        assert_eq!(match_runs(&runs(&[(210, 300)]), &[101, 212]), [None, Some(0)]);
    }

    #[test]
    fn all_trials_that_ended_with_their_task_ended_for_its_reason() {
        let run = runs(&[(1000, 2000)]).remove(0);
        assert_eq!([1400, 1939, 1940, 2001].map(|ended| ended_with(&run, ended)), [false, false, true, true]);
    }

    #[test]
    fn trials_that_ran_one_after_the_other_have_a_step_each() {
        let step = |name: &str, rss| SlurmStep {
            step: name.into(),
            max_rss_bytes: Some(rss),
            cpu_s: Some(rss as f64),
            ..SlurmStep::default()
        };
        let steps = vec![step("batch", 5), step("extern", 1), step("0", 30), step("1", 40)];
        let whole = SlurmTry { max_rss_bytes: Some(40), cpu_s: Some(76.0), steps, ..SlurmTry::default() };
        let first = share_of_run(&whole, 0, 2);
        assert_eq!((first.max_rss_bytes, first.steps.len(), first.steps[0].step.as_str()), (Some(30), 1, "0"));
        let second = share_of_run(&whole, 1, 2);
        assert_eq!((second.max_rss_bytes, first.cpu_s, second.cpu_s), (Some(40), Some(30.0), Some(40.0)));
        assert_eq!(share_of_run(&whole, 0, 1), whole);
        assert_eq!(share_of_run(&whole, 2, 3), whole);
    }
}
