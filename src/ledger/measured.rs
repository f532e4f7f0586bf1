use expctl_record::{AttemptDir, Environment, JobDir, JobRecord, Outcome, RecordError, StepRecord, Trial, TrialState};

/// How a trial of a measured job stands, by its last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Every rank did all its steps.
    Completed,
    /// A rank failed; the reason.
    Failed(String),
    /// Stopped on request.
    Interrupted,
    /// The attempt has no outcome: it still runs, or was lost with its node.
    Unfinished,
    /// No attempt was made yet.
    NotStarted,
}

impl RunState {
    /// The word used in tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Completed => TrialState::Completed.name(),
            Self::Failed(_) => TrialState::Failed.name(),
            Self::Interrupted => TrialState::Interrupted.name(),
            Self::Unfinished => "running or lost",
            Self::NotStarted => "not started",
        }
    }
}

/// One trial with what its last attempt left.
#[derive(Clone, Debug)]
pub struct Run {
    /// The trial, as the last attempt was told; as submitted, where there is none.
    pub trial: Trial,
    /// Number of attempts on disk.
    pub attempts: usize,
    /// How it stands.
    pub state: RunState,
    /// Where it ran.
    pub environment: Option<Environment>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Steps of each rank, warm-up included.
    pub ranks: Vec<Vec<StepRecord>>,
}

impl Run {
    /// True if its figures count.
    pub fn completed(&self) -> bool {
        self.state == RunState::Completed
    }

    fn load(dir: &JobDir, planned: &Trial) -> Result<Self, RecordError> {
        let attempts = dir.attempts(&planned.id)?;
        let Some(last) = attempts.last() else {
            return Ok(Self {
                trial: planned.clone(),
                attempts: 0,
                state: RunState::NotStarted,
                environment: None,
                outcome: None,
                ranks: Vec::new(),
            });
        };
        let trial = if last.trial_path().exists() { last.trial()? } else { planned.clone() };
        let outcome = last.outcome()?;
        let state = match &outcome {
            None => RunState::Unfinished,
            Some(o) => match o.state {
                TrialState::Completed => RunState::Completed,
                TrialState::Failed => RunState::Failed(o.message.clone()),
                TrialState::Interrupted => RunState::Interrupted,
            },
        };
        let ranks = steps(last, trial.settings.launch.ranks)?;
        Ok(Self { environment: last.environment()?, attempts: attempts.len(), trial, state, outcome, ranks })
    }
}

fn steps(attempt: &AttemptDir, ranks: u32) -> Result<Vec<Vec<StepRecord>>, RecordError> {
    (0..ranks).map(|rank| attempt.steps(rank)).collect()
}

/// A job of this ledger: `results/runs/<job>`.
#[derive(Clone, Debug)]
pub struct MeasuredJob {
    /// What was submitted.
    pub record: JobRecord,
    /// Its trials, in the order of array tasks.
    pub runs: Vec<Run>,
}

impl MeasuredJob {
    /// Read a job with all the steps of the last attempt of each trial.
    pub fn load(dir: &JobDir) -> Result<Self, RecordError> {
        let record = dir.record()?;
        let runs = record.trials.iter().map(|trial| Run::load(dir, trial)).collect::<Result<_, _>>()?;
        Ok(Self { record, runs })
    }

    /// Runs by label (variant and swept settings), in the order of their first trial.
    pub fn by_label(&self) -> Vec<(String, Vec<&Run>)> {
        let mut groups: Vec<(String, Vec<&Run>)> = Vec::new();
        for run in &self.runs {
            let label = run.trial.label();
            match groups.iter_mut().find(|(l, _)| *l == label) {
                Some((_, runs)) => runs.push(run),
                None => groups.push((label, vec![run])),
            }
        }
        groups
    }

    /// Trials that did not complete.
    pub fn incomplete(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|r| !r.completed())
    }
}
