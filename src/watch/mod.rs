//! The views of a job in `expctl watch`: a [`View`] per look, as JSON, as lines ([`Lines`]), on a terminal ([`frame()`], [`Screen`]) or as
//! metrics ([`JobMetrics`]).

mod frame;
mod lines;
mod metrics;
mod screen;
mod text;

use std::collections::BTreeMap;

use expctl_ledger::{AttemptDir, AttemptState, JobArrays};
use expctl_settings::Mode;
use serde::Serialize;

pub use self::frame::frame;
pub use self::lines::Lines;
pub use self::metrics::JobMetrics;
pub use self::screen::Screen;
use crate::exit::Failure;
use crate::launch::status::{Follow, Pace, TrialStatus, estimated_s_left};

/// One look at a job, as `--json` prints it and the others draw it.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// Time of the look, seconds since the epoch.
    pub time: i64,
    /// The job.
    pub job: u64,
    /// Name of its config.
    pub config: String,
    /// "slurm" or "local".
    pub backend: String,
    /// Slurm's ids of its arrays, oldest first.
    pub arrays: Vec<u64>,
    /// Time of submission, seconds since the epoch.
    pub submitted: i64,
    /// Seconds from then to the end, or to now.
    pub elapsed_s: i64,
    /// Whether nothing will change any more.
    pub ended: bool,
    /// Number of trials in each state that occurs.
    pub trials: Vec<StateCount>,
    /// Estimated seconds to the end of the job; `None` before a trial has ended or made a step.
    pub estimated_s_left: Option<f64>,
    /// Why Slurm could not be asked, if so.
    pub trouble: Option<String>,
    /// Trials that run.
    pub running: Vec<RunningTrial>,
    /// Trials that completed since the job is watched.
    pub completed: Vec<CompletedTrial>,
    /// Trials that wait, by reason.
    pub waiting: Vec<WaitingTrials>,
    /// Trials that ended otherwise than complete, or are lost.
    pub failures: Vec<FailedTrial>,
}

/// Trials in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateCount {
    /// The state.
    pub state: AttemptState,
    /// Number of trials.
    pub trials: usize,
}

/// A trial that runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunningTrial {
    /// Its index in the job.
    pub task: usize,
    /// The trial.
    pub trial: String,
    /// Its swept settings; empty without a sweep.
    pub point: String,
    /// Its attempt.
    pub attempt: u32,
    /// Slurm's state of its task, if other than running.
    pub reason: String,
    /// Seconds since the attempt began.
    pub since_s: f64,
    /// Whether its steps wait in the place of an accelerator (`train.mode = "emulate"`): its rates are of no model.
    pub emulated: bool,
    /// Its pace; `None` before its attempt has a folder.
    #[serde(flatten)]
    pub pace: Option<Pace>,
}

/// A trial that completed, with its rates over all measured steps: those of the note.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompletedTrial {
    /// The trial.
    pub trial: String,
    /// Its swept settings; empty without a sweep.
    pub point: String,
    /// Steps per second of the slowest rank; `None` if the steps cannot be read.
    pub it_per_s: Option<f64>,
    /// Samples per second of all ranks together.
    pub samples_per_s: Option<f64>,
    /// Whether its steps waited in the place of an accelerator: its rates are of no model.
    pub emulated: bool,
}

/// Trials that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingTrials {
    /// Slurm's reason; may be empty.
    pub reason: String,
    /// Number of trials.
    pub trials: usize,
}

/// A trial that did not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedTrial {
    /// The trial.
    pub trial: String,
    /// Its swept settings; empty without a sweep.
    pub point: String,
    /// Its state.
    pub state: AttemptState,
    /// Why, in one line.
    pub reason: String,
}

fn is_emulated(trial: &TrialStatus) -> bool {
    trial.trial.settings.train.mode == Mode::Emulate
}

/// Number of the running attempt: one more than the last on disk if that has an outcome.
fn attempt(trial: &TrialStatus) -> u32 {
    let last = trial.attempt.as_ref().map_or(0, AttemptDir::number);
    if last == 0 || trial.outcome.is_some() { last + 1 } else { last }
}

impl View {
    /// Look at `job` now; reads what is new in the ranks' journals.
    ///
    /// # Errors
    /// A file of the ledger cannot be read.
    pub fn new(job: &mut Follow) -> Result<Self, Failure> {
        let mut paces = job.paces();
        let rates = job.completed().clone();
        let (status, now) = (job.status(), jiff::Timestamp::now().as_second());
        let by_pace: Vec<(&Pace, f64)> = paces.values().map(|(pace, since)| (pace, *since)).collect();
        let estimated_s_left = estimated_s_left(status, &by_pace);
        let mut running = Vec::new();
        let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
        let mut failures = Vec::new();
        for (task, trial) in status.trials.iter().enumerate() {
            match trial.state {
                AttemptState::Running => {
                    let (pace, since_s) = paces.remove(&task).unzip();
                    running.push(RunningTrial {
                        task,
                        trial: trial.trial.id.clone(),
                        point: trial.trial.point_words(),
                        attempt: attempt(trial),
                        reason: trial.reason.clone(),
                        since_s: since_s.unwrap_or_default(),
                        emulated: is_emulated(trial),
                        pace,
                    });
                }
                AttemptState::Waiting => *waiting.entry(&trial.reason).or_insert(0) += 1,
                AttemptState::Failed | AttemptState::Interrupted | AttemptState::Lost | AttemptState::NotStarted => {
                    failures.push(FailedTrial {
                        trial: trial.trial.id.clone(),
                        point: trial.trial.point_words(),
                        state: trial.state,
                        reason: trial.reason.lines().next().unwrap_or_default().to_owned(),
                    })
                }
                AttemptState::Completed | AttemptState::Unknown => {}
            }
        }
        let ended = job.ended();
        let last = status.trials.iter().filter_map(|t| Some(t.outcome.as_ref()?.ended)).max();
        let end = last.filter(|_| ended).unwrap_or(now);
        let record = &status.record;
        let arrays = JobArrays::of_job(&status.folder, record)?
            .unwrap_or_default()
            .arrays
            .iter()
            .map(|array| array.id)
            .collect();
        Ok(Self {
            time: now,
            job: record.job,
            config: record.config.clone(),
            backend: record.backend.clone(),
            arrays,
            submitted: record.submitted,
            elapsed_s: (end - record.submitted).max(0),
            ended,
            trials: status.counts().into_iter().map(|(state, trials)| StateCount { state, trials }).collect(),
            estimated_s_left,
            trouble: job.trouble().map(str::to_owned),
            running,
            completed: rates
                .iter()
                .map(|(task, rates)| CompletedTrial {
                    trial: status.trials[*task].trial.id.clone(),
                    point: status.trials[*task].trial.point_words(),
                    it_per_s: rates.map(|rates| rates.it_per_s),
                    samples_per_s: rates.map(|rates| rates.samples_per_s),
                    emulated: is_emulated(&status.trials[*task]),
                })
                .collect(),
            waiting: waiting
                .into_iter()
                .map(|(reason, trials)| WaitingTrials { reason: reason.to_owned(), trials })
                .collect(),
            failures,
        })
    }

    /// Number of trials.
    pub fn total(&self) -> usize {
        self.trials.iter().map(|count| count.trials).sum()
    }

    /// Number of trials that nothing will happen to any more.
    pub fn over(&self) -> usize {
        self.trials.iter().filter(|count| !count.state.is_active()).map(|count| count.trials).sum()
    }

    /// `2 completed, 1 running, 3 waiting (Resources)`.
    pub fn summary(&self) -> String {
        let words = self.trials.iter().map(|count| {
            let reasons: Vec<&str> = match count.state {
                AttemptState::Waiting => {
                    self.waiting.iter().map(|w| w.reason.as_str()).filter(|r| !r.is_empty()).collect()
                }
                _ => Vec::new(),
            };
            let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
            format!("{} {}{reasons}", count.trials, count.state.name())
        });
        words.collect::<Vec<_>>().join(", ")
    }
}
