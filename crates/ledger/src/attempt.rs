//! [`Attempt`]: what each attempt of a job's trials was asked for, how far it came, and why it ended.

use expctl_settings::Trial;
use serde::Serialize;

use crate::{
    AttemptDir, Cause, JobArrays, JobDir, JobRecord, LedgerError, Outcome, SubmittedArray, TrialState, read_learning,
    stopped_early,
};

/// State of an attempt, or of a trial by its last attempt, as seen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Every rank did all its steps.
    Completed,
    /// A rank failed, or Slurm ended the trial.
    Failed,
    /// It was stopped on request.
    Interrupted,
    /// Its ranks are at work.
    Running,
    /// Waiting: a task or launcher will run it.
    Waiting,
    /// It began, left no outcome, and nothing runs it any more.
    Lost,
    /// Never started, and no task or launcher will run it.
    NotStarted,
    /// It cannot be seen from here.
    Unknown,
}

impl AttemptState {
    /// The word used in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Lost => "lost",
            Self::NotStarted => "not started",
            Self::Unknown => "unknown",
        }
    }

    /// Whether something runs the trial or will, or may do so.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Waiting | Self::Unknown)
    }
}

impl From<TrialState> for AttemptState {
    fn from(state: TrialState) -> Self {
        match state {
            TrialState::Completed => Self::Completed,
            TrialState::Failed => Self::Failed,
            TrialState::Interrupted => Self::Interrupted,
        }
    }
}

/// One attempt of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// The job.
    pub job: u64,
    /// Index of the trial in the job.
    pub task: usize,
    /// The trial.
    pub trial: String,
    /// Its swept settings; empty without a sweep.
    pub point: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The task that made it, as Slurm names it (`392_4`); `None` on this machine.
    pub slurm_task: Option<String>,
    /// Its state.
    pub state: AttemptState,
    /// The cause of its end, where that is known.
    pub cause: Option<Cause>,
    /// Steps of the trial that are done after it, as rank 0 saw it; those before a checkpoint included.
    pub steps: u64,
    /// Steps of the trial.
    pub steps_total: u64,
    /// The first step after the checkpoint that it resumed from; `None` if it began with step 0.
    pub resumed_from: Option<u64>,
    /// Start, seconds since the epoch.
    pub started: i64,
    /// End, seconds since the epoch.
    pub ended: Option<i64>,
    /// Nodes, in the order of ranks.
    pub nodes: Vec<String>,
    /// Requested memory, MiB; `None` where that was left to the cluster, or on this machine.
    pub memory_mib: Option<u64>,
    /// Requested time limit, minutes; `None` where that was left to the partition, or on this machine.
    pub time_min: Option<u64>,
    /// Why it is in that state; may be empty.
    pub reason: String,
}

/// The attempts of all trials of a job, in the order of the trials, oldest first. `seen` gives state and reason of a trial (by its index) whose
/// last attempt has no outcome; without it such an attempt is [`AttemptState::Unknown`].
///
/// # Errors
/// The list of arrays or a folder of the ledger cannot be read. A damaged file of an attempt is named in its reason.
pub fn read_attempts(
    folder: &JobDir,
    record: &JobRecord,
    seen: &(dyn Fn(usize) -> Option<(AttemptState, String)> + Sync),
) -> Result<Vec<Attempt>, LedgerError> {
    let arrays = JobArrays::of_job(folder, record)?;
    let tasks = arrays.as_ref().map(|arrays| arrays.tasks_of_trials(record.trials.len()));
    let trials: Vec<(usize, &Trial)> = record.trials.iter().enumerate().collect();
    let of_trials = parallel_map::map(&trials, |(task, trial)| -> Result<Vec<Attempt>, LedgerError> {
        let attempts = folder.attempts(&trial.id)?;
        let last = attempts.len().saturating_sub(1);
        let row = |(index, attempt): (usize, &AttemptDir)| {
            let by = tasks.as_ref().and_then(|tasks| tasks.get(*task)?.that_made(attempt.number()));
            let mut row = Attempt::read(record.job, *task, trial, attempt, by);
            if row.ended.is_none() && index < last {
                row.state = AttemptState::Lost;
            } else if row.ended.is_none()
                && let Some(seen) = seen(*task)
            {
                (row.state, row.reason) = seen;
            }
            row
        };
        Ok(attempts.iter().enumerate().map(row).collect())
    });
    Ok(of_trials.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

impl Attempt {
    /// Read the files of an attempt, which the task with this index `by` this array made.
    fn read(job: u64, task: usize, trial: &Trial, attempt: &AttemptDir, by: Option<(&SubmittedArray, u32)>) -> Self {
        let mut damaged = Vec::new();
        let outcome: Option<Outcome> = read_or_default(attempt.outcome(), &mut damaged);
        let steps = read_or_default(attempt.totals(0), &mut damaged).done;
        let environment = read_or_default(attempt.environment(), &mut damaged).unwrap_or_default();
        // All steps are read only where they may begin after a checkpoint.
        let resumes = trial.settings.can_resume() && attempt.number() > 1;
        let all = if resumes { read_or_default(attempt.steps(0), &mut damaged) } else { Vec::new() };
        let mut nodes: Vec<String> = environment.ranks.into_iter().map(|rank| rank.host).collect();
        nodes.dedup();
        let measure = &trial.settings.measure;
        let completed = outcome.as_ref().is_some_and(|outcome| outcome.state == TrialState::Completed);
        let trains = completed && trial.settings.train.epochs > 0;
        let stopped = trains && stopped_early(&read_or_default(read_learning(&attempt.learning_path()), &mut damaged));
        let message = outcome.as_ref().map(|outcome| outcome.message.clone()).unwrap_or_default();
        let words = Some(message).filter(|message| !message.is_empty()).into_iter().chain(damaged);
        Self {
            job,
            task,
            trial: trial.id.clone(),
            point: trial.point_words(),
            attempt: attempt.number(),
            slurm_task: by.map(|(array, task)| format!("{}_{task}", array.id)),
            state: outcome.as_ref().map_or(AttemptState::Unknown, |outcome| outcome.state.into()),
            cause: outcome.as_ref().and_then(|outcome| outcome.cause),
            steps,
            // Training that stopped early misses no step.
            steps_total: if stopped { steps } else { measure.warmup.saturating_add(measure.steps) },
            resumed_from: all.first().map(|step| step.step).filter(|step| *step > 0),
            started: outcome.as_ref().map_or_else(|| attempt.started(), |outcome| outcome.started),
            ended: outcome.as_ref().map(|outcome| outcome.ended),
            nodes,
            memory_mib: by.map(|(array, _)| array.memory_mib).filter(|memory| *memory > 0),
            time_min: by.map(|(array, _)| array.time_min).filter(|time| *time > 0),
            reason: words.collect::<Vec<_>>().join("; "),
        }
    }
}

/// The value that was read; the default and an entry in `damaged` if it cannot be read.
fn read_or_default<T: Default>(read: Result<T, LedgerError>, damaged: &mut Vec<String>) -> T {
    read.unwrap_or_else(|e| {
        damaged.push(e.to_string());
        T::default()
    })
}
