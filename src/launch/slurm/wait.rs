//! Waiting for a job. Invariant: when it returns, every trial has an outcome, whatever happened to its task.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, Cause, JobDir, Outcome, RankExit, RankStatus, Trial, TrialState, write_json};

use super::arrays::{Arrays, Place, Settled, settled};
use super::attempt::{stage_exactly, started};
use super::poll::Interval;
use super::submitted::Submitted;
use super::tasks::{Queue, Task};
use super::tools::Slurm;
use crate::exit::Failure;
use crate::launch::conclude;
use crate::project::Project;

/// Time for a task's own outcome.json to show up here once Slurm says that the task is over: network file systems show the
/// files of other machines late.
const GRACE: Duration = Duration::from_secs(10);
/// The same for a task that was cancelled before it wrote anything.
const GRACE_UNSTARTED: Duration = Duration::from_secs(2);
/// The same when the controller has forgotten the task while the accounting still takes it for alive.
const GRACE_CONTRADICTION: Duration = Duration::from_secs(60);
/// Longest that the controller may be away. Jobs go on without it.
const LONGEST_SILENCE: Duration = Duration::from_secs(600);

/// Where a trial stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialProgress {
    /// It has an outcome.
    Ended(TrialState),
    /// It has none yet, and Slurm says this of its task.
    Active(Task),
    /// It has none yet, and Slurm does not know its task.
    Unknown,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitProgress {
    /// Each trial, in the order of array tasks.
    pub trials: Vec<TrialProgress>,
    /// Why Slurm could not be asked this time.
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

impl Slurm {
    /// Wait until every trial of job `id` has an outcome. A task that ended without writing one (cancelled, lost with its
    /// node, …) gets one that says what Slurm said of it. `progress` is called after each look.
    ///
    /// # Errors
    /// If the job is not in the ledger, the ledger cannot be written, or the controller is away for ten minutes (exit 4).
    pub fn wait(&self, project: &Project, id: u64, progress: &mut dyn FnMut(WaitProgress)) -> Result<(), Failure> {
        self.wait_for(project, id, None, progress)
    }

    /// [`Slurm::wait`] until the array tasks `only` have an outcome, or all of them.
    ///
    /// # Errors
    /// As [`Slurm::wait`].
    pub fn wait_for(
        &self,
        project: &Project,
        id: u64,
        only: Option<&[u32]>,
        progress: &mut dyn FnMut(WaitProgress),
    ) -> Result<(), Failure> {
        let job = project.job(id);
        let trials = job.record()?.trials;
        let arrays = Arrays::load(&job, id, trials.len())?;
        let places = arrays.places(trials.len());
        // A retry may add to them meanwhile.
        let watched: Vec<u64> = arrays.arrays.iter().map(|array| array.id).collect();
        let mut interval = Interval::new().for_tasks(trials.len());
        let mut last: Option<WaitProgress> = None;
        let mut over_since: Vec<Option<Instant>> = vec![None; trials.len()];
        let mut silent_since: Option<Instant> = None;
        let mut states = vec![Settled::No; trials.len()];
        let unsettled = |state: &Settled| !matches!(state, Settled::Yes(_));
        loop {
            // What has the last word is not read again: a ledger may be on a network file system.
            for ((state, trial), place) in states.iter_mut().zip(&trials).zip(&places) {
                if unsettled(state) {
                    *state = settled(&job, trial, place.as_ref())?;
                }
            }
            let open: Vec<Submitted> = places
                .iter()
                .zip(&states)
                .filter(|(_, state)| unsettled(state))
                .filter_map(|(place, _)| Some(place.as_ref()?.array.clone()))
                .collect();
            let asked = self.queued(&open);
            let (queued, trouble) = match asked {
                Ok(tasks) => {
                    silent_since = None;
                    (Some(tasks), None)
                }
                Err(e) => {
                    let since = *silent_since.get_or_insert_with(Instant::now);
                    let trouble = e.to_string();
                    if since.elapsed() > LONGEST_SILENCE {
                        return Err(Failure::from(e).hint(format_args!("job {id} may go on; wait for it again later")));
                    }
                    (None, Some(trouble))
                }
            };
            let mut now = WaitProgress { trials: Vec::new(), trouble };
            // Asked at most once a look, and only for tasks that the controller has forgotten.
            let mut accounted: Option<Queue> = None;
            for (index, (trial, state)) in trials.iter().zip(&states).enumerate() {
                if let Settled::Yes(outcome) = state {
                    now.trials.push(TrialProgress::Ended(outcome.state));
                    continue;
                }
                let (Some(queued), Some(place)) = (&queued, &places[index]) else {
                    now.trials.push(TrialProgress::Unknown);
                    continue;
                };
                let in_queue = queued.get(&place.key()).cloned();
                let task = in_queue.clone().or_else(|| {
                    let accounted = accounted.get_or_insert_with(|| {
                        self.accounted(&open).unwrap_or_else(|e| {
                            tracing::debug!("no accounting: {e}");
                            Queue::new()
                        })
                    });
                    accounted.get(&place.key()).cloned()
                });
                let mut attempts = job.attempts(&trial.id)?;
                attempts.retain(|found| found.number() >= place.attempt);
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
                let outcome = match state {
                    // Slurm did not run it again.
                    Settled::Unless(outcome) => Some(outcome.clone()),
                    _ => close(&job, trial, place, attempts.into_iter().next_back(), task.as_ref())?,
                };
                now.trials.push(match outcome {
                    Some(outcome) => TrialProgress::Ended(outcome.state),
                    None => task.map_or(TrialProgress::Unknown, TrialProgress::Active),
                });
            }
            let asked_for = |index: usize| only.is_none_or(|only| only.iter().any(|o| *o as usize == index));
            let done =
                now.trials.iter().enumerate().all(|(i, t)| !asked_for(i) || matches!(t, TrialProgress::Ended(_)));
            // Look often while something happens, seldom while nothing does.
            let changed = last.as_ref() != Some(&now) || over_since.iter().any(Option::is_some);
            last = Some(now.clone());
            progress(now);
            if done {
                if only.is_none() {
                    Arrays::close(&job, id, trials.len(), &watched)?;
                }
                return self.collect_usage(&job, id, true);
            }
            sleep(interval.next(changed));
        }
    }
}

/// How long to wait for the outcome of a task; none while the task may still write it.
fn grace(in_queue: bool, task: Option<&Task>, no_attempt: bool) -> Option<Duration> {
    match task {
        Some(task) if task.state.is_over() && task.state.is_cancelled() && no_attempt => Some(GRACE_UNSTARTED),
        Some(task) if task.state.is_over() => Some(GRACE),
        Some(_) if in_queue => None,
        Some(_) => Some(GRACE_CONTRADICTION),
        None => Some(GRACE),
    }
}

/// Write the outcome that a task did not write itself. None if somebody else is about to.
fn close(
    job: &JobDir,
    trial: &Trial,
    place: &Place,
    attempt: Option<AttemptDir>,
    task: Option<&Task>,
) -> Result<Option<Outcome>, Failure> {
    if let Some(outcome) = attempt.as_ref().map(AttemptDir::outcome).transpose()?.flatten() {
        // It came just now.
        return Ok(Some(outcome));
    }
    let said = task.map_or_else(|| "no longer knows the task".to_owned(), |task| format!("says {task}"));
    // A task that was cancelled while it waited may be gone without a trace (its row leaves the queue at once).
    let cancelled = task.is_some_and(|task| task.state.is_cancelled());
    let unbuilt = cancelled && task.is_some_and(|task| task.detail == "DependencyNeverSatisfied");
    let never_started = attempt.is_none();
    // It got as far as a node and died there, or its node did: nobody asked for that.
    let died = unbuilt || task.is_some_and(|task| task.state.is_over() && !task.state.is_cancelled());
    let status = if died { RankStatus::Killed } else { RankStatus::Interrupted };
    let attempt = match attempt {
        Some(attempt) => attempt,
        None => {
            let Some(attempt) = stage_exactly(job, trial, place.attempt)? else { return Ok(None) };
            for rank in 0..trial.settings.launch.ranks {
                write_json(&attempt.exit_path(rank), &never_ran(rank, status))?;
            }
            attempt
        }
    };
    let mut outcome = conclude(&attempt, trial, started(&attempt), &[], cancelled && !unbuilt)?;
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
            format!("the task ended before it had an attempt; Slurm {said}; see {}", place.log())
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

/// Words for a rank that never ran.
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
