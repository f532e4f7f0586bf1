//! One look at a job, as `--json` prints it and the others draw it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::exit::Failure;
use crate::launch::life::{Follow, Pace, State, TrialStatus, arrays, estimated_s_left};

/// A job at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// When, seconds since the epoch.
    pub time: i64,
    /// The job.
    pub job: u64,
    /// Name of its config.
    pub config: String,
    /// "slurm" or "local".
    pub backend: String,
    /// Slurm's numbers of its arrays, oldest first.
    pub arrays: Vec<u64>,
    /// Submitted, seconds since the epoch.
    pub submitted: i64,
    /// Seconds from then to the end, or to now.
    pub elapsed_s: i64,
    /// Whether nothing will change any more.
    pub ended: bool,
    /// Number of trials in each state that occurs.
    pub trials: Vec<Count>,
    /// Estimated seconds to the end of the job; none where there is nothing to go by.
    pub estimated_s_left: Option<f64>,
    /// Why Slurm could not be asked.
    pub trouble: Option<String>,
    /// Trials that run.
    pub running: Vec<Running>,
    /// Trials that completed since the job is watched.
    pub completed: Vec<Completed>,
    /// Trials that wait, by reason.
    pub waiting: Vec<Waiting>,
    /// Trials that ended otherwise than complete, or are lost.
    pub failures: Vec<Failed>,
}

/// Trials in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The state.
    pub state: State,
    /// How many.
    pub trials: usize,
}

/// A trial that runs.
#[derive(Clone, Debug, Serialize)]
pub struct Running {
    /// Its place in the job.
    pub task: usize,
    /// The trial.
    pub trial: String,
    /// Its attempt.
    pub attempt: u32,
    /// What Slurm says of its task, if that is not that it runs.
    pub reason: String,
    /// Seconds since the attempt began.
    pub since_s: f64,
    /// How it goes; none before it has a folder.
    #[serde(flatten)]
    pub pace: Option<Pace>,
}

/// A trial that completed, with its rates over all measured steps: those of the note.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Completed {
    /// The trial.
    pub trial: String,
    /// Steps per second of the slowest rank; none of a trial whose steps cannot be read.
    pub it_per_s: Option<f64>,
    /// Samples per second of all ranks together.
    pub samples_per_s: Option<f64>,
}

/// Trials that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Slurm's reason; may be empty.
    pub reason: String,
    /// How many.
    pub trials: usize,
}

/// A trial that did not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// The trial.
    pub trial: String,
    /// What became of it.
    pub state: State,
    /// Why, in one line.
    pub reason: String,
}

/// Number of the attempt that runs. Before it has a folder, the last one has an outcome.
fn attempt(trial: &TrialStatus) -> u32 {
    let last = trial.attempt.as_ref().map_or(0, expctl_record::AttemptDir::number);
    if last == 0 || trial.outcome.is_some() { last + 1 } else { last }
}

impl View {
    /// What `job` shows now, with what is new in the ranks' journals.
    ///
    /// # Errors
    /// A file of the ledger cannot be read.
    pub fn of(job: &mut Follow) -> Result<Self, Failure> {
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
                State::Running => {
                    let (pace, since_s) = paces.remove(&task).unzip();
                    running.push(Running {
                        task,
                        trial: trial.trial.id.clone(),
                        attempt: attempt(trial),
                        reason: trial.reason.clone(),
                        since_s: since_s.unwrap_or_default(),
                        pace,
                    });
                }
                State::Waiting => *waiting.entry(&trial.reason).or_insert(0) += 1,
                State::Failed | State::Interrupted | State::Lost | State::NotStarted => failures.push(Failed {
                    trial: trial.trial.id.clone(),
                    state: trial.state,
                    reason: trial.reason.lines().next().unwrap_or_default().to_owned(),
                }),
                State::Completed | State::Unknown => {}
            }
        }
        let ended = job.ended();
        let last = status.trials.iter().filter_map(|t| Some(t.outcome.as_ref()?.ended)).max();
        let end = last.filter(|_| ended).unwrap_or(now);
        let record = &status.record;
        Ok(Self {
            time: now,
            job: record.job,
            config: record.config.clone(),
            backend: record.backend.clone(),
            arrays: arrays(&status.folder, record)?,
            submitted: record.submitted,
            elapsed_s: (end - record.submitted).max(0),
            ended,
            trials: status.counts().into_iter().map(|(state, trials)| Count { state, trials }).collect(),
            estimated_s_left,
            trouble: job.trouble().map(str::to_owned),
            running,
            completed: rates
                .iter()
                .map(|(task, rates)| Completed {
                    trial: status.trials[*task].trial.id.clone(),
                    it_per_s: rates.map(|rates| rates.it_per_s),
                    samples_per_s: rates.map(|rates| rates.samples_per_s),
                })
                .collect(),
            waiting: waiting
                .into_iter()
                .map(|(reason, trials)| Waiting { reason: reason.to_owned(), trials })
                .collect(),
            failures,
        })
    }

    /// All trials.
    pub fn total(&self) -> usize {
        self.trials.iter().map(|count| count.trials).sum()
    }

    /// Trials that nothing will happen to any more.
    pub fn over(&self) -> usize {
        self.trials.iter().filter(|count| !count.state.is_active()).map(|count| count.trials).sum()
    }

    /// `2 completed, 1 running, 3 waiting (Resources)`.
    pub fn summary(&self) -> String {
        let words = self.trials.iter().map(|count| {
            let reasons: Vec<&str> = match count.state {
                State::Waiting => self.waiting.iter().map(|w| w.reason.as_str()).filter(|r| !r.is_empty()).collect(),
                _ => Vec::new(),
            };
            let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
            format!("{} {}{reasons}", count.trials, count.state.name())
        });
        words.collect::<Vec<_>>().join(", ")
    }
}
