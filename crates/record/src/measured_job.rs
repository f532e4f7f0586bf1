use std::ops::Range;

use expctl_record::{
    AttemptDir, DataRead, DroppedPages, Environment, HardwareSample, JobDir, JobRecord, LearningRecord, Outcome,
    RankUsage, RecordError, ShuffleQuality, SlurmUsage, StepRecord, Trial, TrialState, is_measured, joined_learning,
    joined_steps,
};

use crate::parallel;

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
    /// A file of the last attempt is damaged; which, and why.
    Unreadable(String),
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
            Self::Unreadable(_) => "unreadable",
            Self::NotStarted => "not started",
        }
    }

    /// The word, with the reason where there is one.
    pub fn words(&self) -> String {
        match self {
            Self::Failed(reason) | Self::Unreadable(reason) => format!("{}: {reason}", self.name()),
            other => other.name().to_owned(),
        }
    }
}

/// An attempt whose steps count in a run, with what it recorded beside them.
#[derive(Clone, Debug)]
pub struct RunPart {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Numbers of the steps that come from it; empty for an attempt that has done none.
    pub steps: Range<u64>,
    /// Where it ran.
    pub environment: Option<Environment>,
    /// What it read; none of an attempt that is older than this record, or whose loader was never set up.
    pub data: Option<DataRead>,
    /// What each rank used beside time, by rank; fewer or none where ranks did not reach their last step, and of programs of the
    /// user's.
    pub usage: Vec<RankUsage>,
    /// Hardware samples, by rank; empty of ranks without any.
    pub samples: Vec<Vec<HardwareSample>>,
}

impl RunPart {
    fn load(attempt: &AttemptDir, steps: Range<u64>, ranks: u32) -> Result<Self, RecordError> {
        Ok(Self {
            attempt: attempt.number(),
            steps,
            environment: attempt.environment()?,
            // These add to the steps; without them they are as good as ever.
            data: attempt.data_read().unwrap_or_else(without),
            usage: (0..ranks).filter_map(|rank| attempt.usage(rank).unwrap_or_else(without)).collect(),
            samples: (0..ranks)
                .map(|rank| attempt.samples(rank).map_or_else(without, Some).unwrap_or_default())
                .collect(),
        })
    }

    /// Names of its nodes, each once, in the order of ranks; empty where they are not known.
    pub fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = Vec::new();
        for rank in self.environment.iter().flat_map(|environment| &environment.ranks) {
            if !rank.host.is_empty() && !hosts.contains(&rank.host.as_str()) {
                hosts.push(&rank.host);
            }
        }
        hosts
    }
}

/// One trial with what its attempts left, as far as the last one built on them.
#[derive(Clone, Debug)]
pub struct Run {
    /// Number of the job that it is of.
    pub job: u64,
    /// The trial, as the last attempt was told; as submitted, where there is none.
    pub trial: Trial,
    /// Number of attempts on disk.
    pub attempts: usize,
    /// How it stands.
    pub state: RunState,
    /// The attempts whose steps count, oldest first: more than one where the trial went on from a checkpoint. The last one is the
    /// trial's last attempt, also where it has no step yet.
    pub parts: Vec<RunPart>,
    /// How well the rows of an array were shuffled; none where samples of a graph were read.
    pub shuffle: Option<ShuffleQuality>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// What training had come to at the end of each epoch; empty without epochs.
    pub learning: Vec<LearningRecord>,
    /// What Slurm measured of the last attempt.
    pub slurm: Option<SlurmUsage>,
    /// Steps of each rank, warm-up included; joined over the attempts where the last one went on from a checkpoint.
    pub ranks: Vec<Vec<StepRecord>>,
}

impl Run {
    /// True if its figures count.
    pub fn completed(&self) -> bool {
        self.state == RunState::Completed
    }

    /// True if it went on from a checkpoint: its steps come from several attempts.
    pub fn resumed(&self) -> bool {
        self.parts.len() > 1
    }

    /// Where and with what the attempts ran whose steps count, oldest first.
    pub fn environments(&self) -> impl Iterator<Item = &Environment> {
        self.parts.iter().filter_map(|part| part.environment.as_ref())
    }

    /// What the last attempt read.
    pub fn data(&self) -> Option<&DataRead> {
        self.parts.last()?.data.as_ref()
    }

    /// What was dropped from the page caches of its nodes before the first steps, in all attempts whose steps count; none where no rank
    /// wrote it down.
    pub fn dropped(&self) -> Option<DroppedPages> {
        let usage = self.parts.iter().flat_map(|part| &part.usage);
        usage.filter_map(|rank| rank.dropped).reduce(DroppedPages::plus)
    }

    /// The steps of a rank that come from `part`.
    pub fn steps_of(&self, part: &RunPart, rank: usize) -> &[StepRecord] {
        let Some(steps) = self.ranks.get(rank) else { return &[] };
        let place = |step: u64| steps.partition_point(|record| record.step < step);
        &steps[place(part.steps.start)..place(part.steps.end)]
    }

    /// Steps of a rank that would count as measured, had an attempt not begun its warm-up with a checkpoint.
    pub fn warm_up_after_checkpoints(&self, rank: usize) -> usize {
        let warmup = self.trial.settings.measure.warmup;
        let warm_up =
            |part: &RunPart, step: u64| is_measured(step, 0, warmup) && !is_measured(step, part.steps.start, warmup);
        let of_part =
            |part: &RunPart| self.steps_of(part, rank).iter().filter(|record| warm_up(part, record.step)).count();
        self.parts.iter().map(of_part).sum()
    }

    /// The epoch, from 1, after which training ended for want of better figures; none if it did not.
    pub fn stopped_after(&self) -> Option<u64> {
        self.learning.last().filter(|last| last.stopped).map(|last| last.epoch + 1)
    }

    fn load(dir: &JobDir, job: u64, planned: &Trial) -> Self {
        let mut run = Self {
            job,
            trial: planned.clone(),
            attempts: 0,
            state: RunState::NotStarted,
            parts: Vec::new(),
            shuffle: None,
            outcome: None,
            learning: Vec::new(),
            slurm: None,
            ranks: Vec::new(),
        };
        let attempts = match dir.attempts(&planned.id) {
            Ok(attempts) => attempts,
            Err(e) => return Self { state: RunState::Unreadable(e.to_string()), ..run },
        };
        run.attempts = attempts.len();
        if attempts.is_empty() {
            return run;
        }
        // One damaged file must not hide the other trials of the job.
        if let Err(e) = run.read(&attempts) {
            run.ranks.clear();
            run.state = match run.state {
                // It counts for nothing either way; why it failed must stay to be seen.
                RunState::Failed(reason) => RunState::Failed(format!("{reason}; {e}")),
                _ => RunState::Unreadable(e.to_string()),
            };
        }
        run
    }

    fn read(&mut self, attempts: &[AttemptDir]) -> Result<(), RecordError> {
        let Some(attempt) = attempts.last() else { return Ok(()) };
        self.state = RunState::Unfinished;
        self.outcome = attempt.outcome()?;
        if let Some(outcome) = &self.outcome {
            self.state = match outcome.state {
                TrialState::Completed => RunState::Completed,
                TrialState::Failed => RunState::Failed(outcome.message.clone()),
                TrialState::Interrupted => RunState::Interrupted,
            };
        }
        if attempt.trial_path().exists() {
            self.trial = attempt.trial()?;
        }
        let (ranks, warmup) = (self.trial.settings.launch.ranks, self.trial.settings.measure.warmup);
        let joined = (0..ranks).map(|rank| joined_steps(attempts, rank, warmup)).collect::<Result<Vec<_>, _>>();
        // A checkpoint is of all ranks, so all of them have the same parts, but for one that left no step at all.
        let parts = joined.iter().flatten().map(|of_rank| &of_rank.parts).find(|parts| !parts.is_empty());
        self.parts = match parts {
            Some(parts) => {
                let of = |number: u32| attempts.iter().find(|attempt| attempt.number() == number);
                let found = parts.iter().filter_map(|part| Some((of(part.attempt)?, part.steps.clone())));
                found.map(|(attempt, steps)| RunPart::load(attempt, steps, ranks)).collect::<Result<_, _>>()?
            }
            None => vec![RunPart::load(attempt, 0..0, ranks)?],
        };
        // The same in every attempt: it follows from the settings.
        self.shuffle = attempt.shuffle().unwrap_or_else(without);
        self.learning = joined_learning(attempts).map_or_else(without, Some).unwrap_or_default();
        self.slurm = attempt.slurm_usage().unwrap_or_else(without);
        self.ranks = joined?.into_iter().map(|of_rank| of_rank.steps).collect();
        let lost = self.ranks.iter().position(Vec::is_empty);
        if let (RunState::Completed, Some(rank)) = (&self.state, lost) {
            self.state = RunState::Unreadable(format!("the steps of rank {rank} are gone"));
        }
        Ok(())
    }
}

/// Nothing, in the place of a damaged file that can be done without.
fn without<T>(error: RecordError) -> Option<T> {
    tracing::warn!("{error}");
    None
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
    /// Read a job with all the steps of the last attempt of each trial. A trial with a damaged file is
    /// [`RunState::Unreadable`].
    ///
    /// # Errors
    /// A `job.json` that cannot be read.
    pub fn load(dir: &JobDir) -> Result<Self, RecordError> {
        let record = dir.record()?;
        let runs = parallel::map(&record.trials, |trial| Run::load(dir, record.job, trial));
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

    /// The variant that the config names as baseline, if the job has no trial of it (`--only`).
    pub fn baseline_not_run(&self) -> Option<&str> {
        let name = self.record.baseline.as_deref()?;
        (!self.record.trials.iter().any(|trial| trial.variant == name)).then_some(name)
    }

    /// Trials that did not complete.
    pub fn incomplete(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|r| !r.completed())
    }
}
