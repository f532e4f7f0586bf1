//! Waiting for a job, and where its trials stand meanwhile.
//!
//! Invariant: when [`SlurmBackend::wait_for_job`] returns, every trial has an outcome, whatever happened to its task.

use std::collections::BTreeMap;
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use expctl_ledger::{
    AttemptDir, Cause, JobArrays, JobDir, JobRecord, LedgerError, Outcome, RankExit, RankStatus, TrialState, TrialTask,
    write_json,
};
use expctl_settings::Trial;
use slurm_client::{JobId, PollInterval, Queue, Task};

use super::array_task::{TrialOutcome, job_id, trial_outcome};
use super::backend::SlurmBackend;
use super::usage::collect_usage;
use crate::exit::Failure;
use crate::launch::attempt::{conclude, stage_exactly};
use crate::project::Project;

/// Time for the outcome.json of a task to appear here once Slurm says that the task is over: network file systems show
/// the files of other machines late.
const GRACE: Duration = Duration::from_secs(10);
/// Grace for a task that was cancelled before it wrote anything.
const GRACE_UNSTARTED: Duration = Duration::from_secs(2);
/// Grace for a task that the controller has forgotten while the accounting still takes it for alive.
const GRACE_CONTRADICTION: Duration = Duration::from_secs(60);
/// Time that the controller may be away. Jobs go on without it.
const MAX_SILENCE: Duration = Duration::from_secs(600);

/// Progress of a trial, for somebody who waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialProgress {
    /// It has an outcome.
    Ended(TrialState),
    /// It has no outcome yet, and Slurm says this of its task.
    Active(Task),
    /// It has no outcome yet, and Slurm does not know its task.
    Unknown,
}

/// Progress of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitProgress {
    /// The trials, in the order of the job.
    pub trials: Vec<TrialProgress>,
    /// Why Slurm could not be asked this time, if so.
    pub trouble: Option<String>,
}

impl fmt::Display for WaitProgress {
    /// One line: `2 of 6 trials ended, 1 running, 3 waiting (Resources)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |pick: &dyn Fn(&TrialProgress) -> bool| self.trials.iter().filter(|t| pick(t)).count();
        let ended = count(&|t| matches!(t, TrialProgress::Ended(_)));
        let failed = count(&|t| matches!(t, TrialProgress::Ended(TrialState::Failed)));
        let running = count(&|t| matches!(t, TrialProgress::Active(task) if !task.state.is_waiting()));
        write!(f, "{ended} of {} trials ended", self.trials.len())?;
        if failed > 0 {
            write!(f, " ({failed} failed)")?;
        }
        if running > 0 {
            write!(f, ", {running} running")?;
        }
        let mut waiting = self.trials.iter().filter_map(|t| match t {
            TrialProgress::Active(task) if task.state.is_waiting() => Some(task),
            _ => None,
        });
        if let Some(first) = waiting.next() {
            write!(f, ", {} waiting", 1 + waiting.count())?;
            if !first.detail.is_empty() {
                write!(f, " ({})", first.detail)?;
            }
        }
        self.trouble.iter().try_for_each(|trouble| write!(f, "; {trouble}"))
    }
}

impl SlurmBackend {
    /// Look up where the trials of `jobs` stand. Slurm is asked once, and only about trials without a final outcome.
    ///
    /// # Errors
    /// A file of the ledger cannot be read. A Slurm that does not answer is no error.
    pub fn standings(&self, jobs: &[(JobDir, JobRecord)]) -> Result<Standings, Failure> {
        Standings::from_queue(jobs, |arrays| self.client().queued(arrays).map_err(|e| e.to_string()))
    }

    /// Wait until every trial of job `id` has an outcome. A task that ended without writing one (cancelled, lost with
    /// its node, …) gets one that quotes Slurm. Calls `progress` after each look.
    ///
    /// # Errors
    /// The job is not in the ledger, the ledger cannot be written, or the controller is away for ten minutes (exit 4).
    pub fn wait_for_job(
        &self,
        project: &Project,
        id: u64,
        progress: &mut dyn FnMut(WaitProgress),
    ) -> Result<(), Failure> {
        self.wait_for_trials(project, id, None, progress)
    }

    /// [`SlurmBackend::wait_for_job`] until the trials `only` (indices in the job) have an outcome, or all.
    ///
    /// # Errors
    /// As [`SlurmBackend::wait_for_job`].
    pub fn wait_for_trials(
        &self,
        project: &Project,
        id: u64,
        only: Option<&[u32]>,
        progress: &mut dyn FnMut(WaitProgress),
    ) -> Result<(), Failure> {
        let job = project.job(id);
        let trials = job.record()?.trials;
        let arrays = JobArrays::load(&job, id, trials.len())?;
        let tasks = arrays.newest_tasks(trials.len());
        // A retry may add arrays meanwhile.
        let watched: Vec<u64> = arrays.arrays.iter().map(|array| array.id).collect();
        let mut interval = PollInterval::new().for_tasks(trials.len());
        let mut last: Option<WaitProgress> = None;
        let mut over_since: Vec<Option<Instant>> = vec![None; trials.len()];
        let mut silent_since: Option<Instant> = None;
        let mut outcomes = vec![TrialOutcome::Pending; trials.len()];
        let is_open = |state: &TrialOutcome| !matches!(state, TrialOutcome::Final(_));
        loop {
            // Final outcomes are not read again: a ledger may be on a network file system.
            for ((outcome, trial), task) in outcomes.iter_mut().zip(&trials).zip(&tasks) {
                if is_open(outcome) {
                    *outcome = trial_outcome(&job, trial, task.as_ref())?;
                }
            }
            let open: Vec<JobId> = tasks
                .iter()
                .zip(&outcomes)
                .filter(|(_, outcome)| is_open(outcome))
                .filter_map(|(task, _)| Some(job_id(&arrays, task.as_ref()?.array)))
                .collect();
            let (queued, trouble) = match self.client().queued(&open) {
                Ok(tasks) => {
                    silent_since = None;
                    (Some(tasks), None)
                }
                Err(e) => {
                    let since = *silent_since.get_or_insert_with(Instant::now);
                    let trouble = e.to_string();
                    if since.elapsed() > MAX_SILENCE {
                        return Err(Failure::from(e).hint(format_args!("job {id} may go on; wait for it again later")));
                    }
                    (None, Some(trouble))
                }
            };
            let mut now = WaitProgress { trials: Vec::new(), trouble };
            // Asked at most once a look, and only for tasks that the controller has forgotten.
            let mut accounted: Option<Queue> = None;
            for (index, (trial, outcome)) in trials.iter().zip(&outcomes).enumerate() {
                if let TrialOutcome::Final(outcome) = outcome {
                    now.trials.push(TrialProgress::Ended(outcome.state));
                    continue;
                }
                let (Some(queued), Some(assigned)) = (&queued, &tasks[index]) else {
                    now.trials.push(TrialProgress::Unknown);
                    continue;
                };
                let in_queue = queued.get(&assigned.key()).cloned();
                let task = in_queue.clone().or_else(|| {
                    let accounted = accounted.get_or_insert_with(|| {
                        self.client().accounted(&open).unwrap_or_else(|e| {
                            tracing::debug!("no accounting: {e}");
                            Queue::new()
                        })
                    });
                    accounted.get(&assigned.key()).cloned()
                });
                let mut attempts = job.attempts(&trial.id)?;
                attempts.retain(|found| found.number() >= assigned.attempt);
                let Some(grace) = grace(in_queue.is_some(), task.as_ref(), attempts.is_empty()) else {
                    over_since[index] = None;
                    now.trials.extend(task.map(TrialProgress::Active));
                    continue;
                };
                let since = *over_since[index].get_or_insert_with(Instant::now);
                if since.elapsed() < grace {
                    now.trials.push(task.map_or(TrialProgress::Unknown, TrialProgress::Active));
                    continue;
                }
                let outcome = match outcome {
                    // Slurm has not run it again.
                    TrialOutcome::Provisional(outcome) => Some(outcome.clone()),
                    _ => close(&job, trial, assigned, attempts.into_iter().next_back(), task.as_ref())?,
                };
                now.trials.push(match outcome {
                    Some(outcome) => TrialProgress::Ended(outcome.state),
                    None => task.map_or(TrialProgress::Unknown, TrialProgress::Active),
                });
            }
            let asked_for = |index: usize| only.is_none_or(|only| only.iter().any(|o| *o as usize == index));
            let done =
                now.trials.iter().enumerate().all(|(i, t)| !asked_for(i) || matches!(t, TrialProgress::Ended(_)));
            // Ask often while something happens, seldom while nothing does.
            let changed = last.as_ref() != Some(&now) || over_since.iter().any(Option::is_some);
            last = Some(now.clone());
            progress(now);
            if done {
                if only.is_none() {
                    JobArrays::close(&job, id, trials.len(), &watched)?;
                }
                return collect_usage(self.client(), &job, id, true);
            }
            sleep(interval.next(changed));
        }
    }
}

/// Time to wait for the outcome of a task; `None` while the task may still write it.
fn grace(in_queue: bool, task: Option<&Task>, no_attempt: bool) -> Option<Duration> {
    match task {
        Some(task) if task.state.is_over() && task.state.is_cancelled() && no_attempt => Some(GRACE_UNSTARTED),
        Some(task) if task.state.is_over() => Some(GRACE),
        Some(_) if in_queue => None,
        Some(_) => Some(GRACE_CONTRADICTION),
        None => Some(GRACE),
    }
}

/// Write the outcome that a task did not write itself. `None` if another process is about to.
fn close(
    job: &JobDir,
    trial: &Trial,
    assigned: &TrialTask,
    attempt: Option<AttemptDir>,
    task: Option<&Task>,
) -> Result<Option<Outcome>, Failure> {
    if let Some(outcome) = attempt.as_ref().map(AttemptDir::outcome).transpose()?.flatten() {
        // It appeared just now.
        return Ok(Some(outcome));
    }
    let said = task.map_or_else(|| "no longer knows the task".to_owned(), |task| format!("says {task}"));
    // A task that was cancelled while it waited may leave no trace: its row leaves the queue at once.
    let cancelled = task.is_some_and(|task| task.state.is_cancelled());
    let unbuilt = cancelled && task.is_some_and(|task| task.detail == "DependencyNeverSatisfied");
    let never_started = attempt.is_none();
    // The task got as far as a node and died there, or its node did: nobody asked for that.
    let died = unbuilt || task.is_some_and(|task| task.state.is_over() && !task.state.is_cancelled());
    let status = if died { RankStatus::Killed } else { RankStatus::Interrupted };
    let attempt = match attempt {
        Some(attempt) => attempt,
        None => {
            let Some(attempt) = stage_exactly(job, trial, assigned.attempt)? else { return Ok(None) };
            for rank in 0..trial.settings.launch.ranks {
                write_json(&attempt.exit_path(rank), &never_ran(rank, status))?;
            }
            attempt
        }
    };
    let mut outcome = conclude(&attempt, trial, attempt.started(), &[], cancelled && !unbuilt)?;
    if outcome.state == TrialState::Completed {
        return Ok(Some(outcome));
    }
    if let Some(cause) = task.and_then(|task| Cause::from_slurm(&task.state.to_string(), &task.detail)) {
        outcome.cause = Some(cause);
    }
    let own_words = outcome.ranks.iter().find(|r| r.status == RankStatus::Failed).map(|r| r.message.clone());
    outcome.message = match own_words {
        Some(message) => format!("{message}; Slurm {said}"),
        None if unbuilt => "the data could not be built; see build.log".to_owned(),
        None if never_started && died => {
            format!("the task ended before it had an attempt; Slurm {said}; see {}", assigned.log())
        }
        None if never_started => format!("the trial never started; Slurm {said}"),
        None => format!("the task ended without writing its outcome; Slurm {said}"),
    };
    if never_started {
        // No rank is to blame.
        outcome.failed_rank = None;
    }
    outcome.save(&attempt)?;
    Ok(Some(outcome))
}

/// The exit record of a rank that never ran.
fn never_ran(rank: u32, status: RankStatus) -> RankExit {
    RankExit {
        rank,
        status,
        message: format!("rank {rank} never started"),
        lost_peer: None,
        steps: 0,
        parameters_digest: None,
        exit_code: None,
        signal: None,
    }
}

/// State of a trial, as the ledger and Slurm say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its newest attempt has an outcome.
    Ended,
    /// Its task is in the queue or runs.
    Active(Task),
    /// Its task runs another trial first.
    Later(Task),
    /// Its task is over and left no outcome; what Slurm says of the task.
    Gone(String),
    /// Slurm could not be asked.
    Unknown,
}

/// States of the trials of several jobs.
#[derive(Clone, Debug, Default)]
pub struct Standings {
    /// By the id of the job and the index of the trial in it.
    pub trials: BTreeMap<(u64, usize), Standing>,
    /// Why Slurm could not be asked, if so.
    pub trouble: Option<String>,
}

impl Standings {
    /// Add the trials of other jobs.
    pub fn extend(&mut self, other: Self) {
        self.trials.extend(other.trials);
        self.trouble = self.trouble.take().or(other.trouble);
    }
}

impl Standings {
    /// Look up where the trials of `jobs` stand; `ask` returns what Slurm knows of arrays, or why it cannot be asked.
    /// It is asked only about trials without a final outcome.
    ///
    /// # Errors
    /// A file of the ledger cannot be read.
    pub fn from_queue(
        jobs: &[(JobDir, JobRecord)],
        ask: impl FnOnce(&[JobId]) -> Result<Queue, String>,
    ) -> Result<Self, Failure> {
        let mut standings = Standings::default();
        let mut open = Vec::new();
        let arrays = parallel_map::map(jobs, |(folder, record)| -> Result<_, LedgerError> {
            let arrays = JobArrays::load(folder, record.job, record.trials.len())?;
            let tasks = arrays.newest_tasks(record.trials.len());
            Ok((arrays, tasks))
        });
        let arrays = arrays.into_iter().collect::<Result<Vec<_>, _>>()?;
        // Of all jobs together: one may have too few trials for several threads.
        let mut trials = Vec::new();
        for ((folder, record), (arrays, tasks)) in jobs.iter().zip(&arrays) {
            let of_job = record.trials.iter().zip(tasks).enumerate();
            let key = |index: usize| (record.job, index);
            trials.extend(of_job.map(|(index, (trial, task))| (folder, key(index), arrays, trial, task.as_ref())));
        }
        let seen = parallel_map::map(&trials, |(folder, (job, index), arrays, trial, task)| -> Result<_, Failure> {
            let outcome = trial_outcome(folder, trial, *task)?;
            let Some(task) = task.filter(|_| !matches!(outcome, TrialOutcome::Final(_))) else {
                return Ok((outcome, None));
            };
            let begun = has_begun(folder, trial, task)?;
            let (array, has_outcome) = (job_id(arrays, task.array), outcome != TrialOutcome::Pending);
            let (job, index, task) = (*job, *index, task.clone());
            Ok((outcome, Some(OpenTrial { job, index, array, task, outcome: has_outcome, begun })))
        });
        for ((_, key, ..), seen) in trials.iter().zip(seen) {
            match seen? {
                (TrialOutcome::Final(_), _) => drop(standings.trials.insert(*key, Standing::Ended)),
                (_, Some(trial)) => open.push(trial),
                (_, None) => {
                    standings.trials.insert(*key, Standing::Gone("no array runs it".to_owned()));
                }
            }
        }
        let arrays: Vec<_> = open.iter().map(|open| open.array.clone()).collect();
        let queue = match ask(&arrays) {
            Ok(queue) => Some(queue),
            Err(why) => {
                standings.trouble = Some(why);
                None
            }
        };
        for OpenTrial { job, index, task, outcome, begun, .. } in open {
            let queued = queue.as_ref().map(|queue| queue.get(&task.key()));
            let standing = match queued {
                Some(Some(task)) if !task.state.is_over() => match begun || task.state.is_waiting() {
                    true => Standing::Active(task.clone()),
                    false => Standing::Later(task.clone()),
                },
                // Slurm does not run it again: its outcome is final.
                Some(_) if outcome => Standing::Ended,
                None => Standing::Unknown,
                Some(Some(task)) => Standing::Gone(format!("Slurm says {task}")),
                Some(None) => Standing::Gone("Slurm no longer knows its task".to_owned()),
            };
            standings.trials.insert((job, index), standing);
        }
        Ok(standings)
    }
}

/// A trial whose state only Slurm knows.
struct OpenTrial {
    job: u64,
    index: usize,
    array: JobId,
    task: TrialTask,
    /// It has an outcome that need not be final.
    outcome: bool,
    /// Its newest attempt has begun.
    begun: bool,
}

/// Whether the attempt that `task` makes has begun.
fn has_begun(folder: &JobDir, trial: &Trial, task: &TrialTask) -> Result<bool, Failure> {
    Ok(folder.attempts(&trial.id)?.last().is_some_and(|last| last.number() >= task.attempt))
}
