//! A job of this ledger, read back: its trials with the steps of all attempts that count.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use expctl_settings::Trial;

use crate::joined_steps::joined_step_times;
use crate::{
    AttemptDir, DataRead, DroppedPages, Environment, HardwareSample, JobDir, JobRecord, LearningRecord, LedgerError,
    Outcome, RankUsage, ShuffleQuality, SlurmUsage, StepRecord, TrialState, is_measured, joined_learning, joined_steps,
};

/// What is read of the trials of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunRecords {
    /// All that a report shows.
    All,
    /// All but the hardware samples, which no comparison needs.
    WithoutSamples,
    /// What rates rest on: outcome, environment and the times of steps.
    StepTimes,
}

/// State of a trial of a measured job, from its last attempt.
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
    /// A file of the last attempt is damaged; the file and the reason.
    Unreadable(String),
    /// No attempt was made yet.
    NotStarted,
}

impl RunState {
    /// The word in tables.
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

    /// The word, with the reason if there is one.
    pub fn words(&self) -> String {
        match self {
            Self::Failed(reason) | Self::Unreadable(reason) => format!("{}: {reason}", self.name()),
            other => other.name().to_owned(),
        }
    }
}

/// An attempt whose steps count in a run, with its other records.
#[derive(Clone, Debug)]
pub struct RunPart {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Numbers of the steps that come from it; empty if it did none.
    pub steps: Range<u64>,
    /// Hardware and software that it ran with.
    pub environment: Option<Environment>,
    /// Data that it read. `None`: the attempt is older than this record, or its loader was never set up.
    pub data: Option<DataRead>,
    /// Memory and requests of each rank, by rank; ranks that did not reach their last step and the user's own programs have none.
    pub usage: Vec<RankUsage>,
    /// Hardware samples, by rank; empty for ranks without any, and where they were not read.
    pub samples: Vec<Vec<HardwareSample>>,
}

impl RunPart {
    fn load(attempt: &AttemptDir, steps: Range<u64>, ranks: u32, records: RunRecords) -> Result<Self, LedgerError> {
        let environment = attempt.environment()?;
        if records == RunRecords::StepTimes {
            let (usage, samples) = (Vec::new(), Vec::new());
            return Ok(Self { attempt: attempt.number(), steps, environment, data: None, usage, samples });
        }
        Ok(Self {
            attempt: attempt.number(),
            steps,
            environment,
            // The steps are usable without these.
            data: attempt.data_read().unwrap_or_else(log_damaged),
            usage: (0..ranks).filter_map(|rank| attempt.usage(rank).unwrap_or_else(log_damaged)).collect(),
            samples: match records {
                RunRecords::All => (0..ranks)
                    .map(|rank| attempt.samples(rank).map_or_else(log_damaged, Some).unwrap_or_default())
                    .collect(),
                RunRecords::WithoutSamples | RunRecords::StepTimes => Vec::new(),
            },
        })
    }

    /// Names of its nodes, each once, in the order of ranks; empty if they are not known.
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

/// One trial with the records of its attempts, as far as the last one builds on them.
#[derive(Clone, Debug)]
pub struct Run {
    /// Number of its job.
    pub job: u64,
    /// The trial, from the last attempt; as submitted, if there is none.
    pub trial: Trial,
    /// Number of attempts on disk.
    pub attempts: usize,
    /// Its state.
    pub state: RunState,
    /// The attempts whose steps count, oldest first; several if the trial went on from a checkpoint. The last one is the trial's last attempt,
    /// even if it has no step yet.
    pub parts: Vec<RunPart>,
    /// How well the rows of an array were shuffled. `None`: samples of a graph were read.
    pub shuffle: Option<ShuffleQuality>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Figures of training at the end of each epoch; empty without epochs.
    pub learning: Vec<LearningRecord>,
    /// Slurm's own measurements of the last attempt.
    pub slurm: Option<SlurmUsage>,
    /// Steps of each rank, including warm-up, joined over the attempts.
    pub ranks: Vec<Vec<StepRecord>>,
}

impl Run {
    /// Whether its figures count.
    pub fn completed(&self) -> bool {
        self.state == RunState::Completed
    }

    /// Whether its steps come from several attempts, because it went on from a checkpoint.
    pub fn resumed(&self) -> bool {
        self.parts.len() > 1
    }

    /// Environments of the attempts whose steps count, oldest first.
    pub fn environments(&self) -> impl Iterator<Item = &Environment> {
        self.parts.iter().filter_map(|part| part.environment.as_ref())
    }

    /// Data that the last attempt read.
    pub fn data(&self) -> Option<&DataRead> {
        self.parts.last()?.data.as_ref()
    }

    /// Files that were dropped from the page caches of its nodes before the first steps, in all attempts whose steps count. `None`: no rank
    /// recorded it.
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

    /// Number of steps of a rank that do not count as measured only because an attempt that went on from a checkpoint has a warm-up.
    pub fn warm_up_after_checkpoints(&self, rank: usize) -> usize {
        let warmup = self.trial.settings.measure.warmup;
        let warm_up =
            |part: &RunPart, step: u64| is_measured(step, 0, warmup) && !is_measured(step, part.steps.start, warmup);
        let of_part =
            |part: &RunPart| self.steps_of(part, rank).iter().filter(|record| warm_up(part, record.step)).count();
        self.parts.iter().map(of_part).sum()
    }

    /// The epoch, from 1, after which training stopped early. `None`: it did not.
    pub fn stopped_after(&self) -> Option<u64> {
        self.learning.last().filter(|last| last.stopped).map(|last| last.epoch + 1)
    }

    /// Read a trial of job `job`, as it was planned, with all the steps that count. One with a damaged file is
    /// [`RunState::Unreadable`].
    pub fn load(dir: &JobDir, job: u64, planned: &Trial, records: RunRecords) -> Self {
        let found = dir.attempts(&planned.id);
        // A copy of a trial has some hundred texts: none is made of one that is not used.
        let own = found.as_ref().ok().and_then(|attempts| attempts.last()?.own_trial().transpose());
        let (trial, damage) = match own {
            Some(Ok(trial)) => (trial, None),
            Some(Err(error)) => (planned.clone(), Some(error)),
            None => (planned.clone(), None),
        };
        let mut run = Self {
            job,
            trial,
            attempts: 0,
            state: RunState::NotStarted,
            parts: Vec::new(),
            shuffle: None,
            outcome: None,
            learning: Vec::new(),
            slurm: None,
            ranks: Vec::new(),
        };
        let attempts = match found {
            Ok(attempts) => attempts,
            Err(e) => return Self { state: RunState::Unreadable(e.to_string()), ..run },
        };
        run.attempts = attempts.len();
        if attempts.is_empty() {
            return run;
        }
        // One damaged file must not hide the other trials of the job.
        if let Err(e) = run.read(&attempts, records, damage) {
            run.ranks.clear();
            run.state = match run.state {
                // Its figures do not count either way; the reason of the failure must stay visible.
                RunState::Failed(reason) => RunState::Failed(format!("{reason}; {e}")),
                _ => RunState::Unreadable(e.to_string()),
            };
        }
        run
    }

    /// Reads all but the trial; `damage` is why that cannot be read.
    fn read(
        &mut self,
        attempts: &[AttemptDir],
        records: RunRecords,
        damage: Option<LedgerError>,
    ) -> Result<(), LedgerError> {
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
        if let Some(error) = damage {
            return Err(error);
        }
        let (ranks, warmup) = (self.trial.settings.launch.ranks, self.trial.settings.measure.warmup);
        let join = if records == RunRecords::StepTimes { joined_step_times } else { joined_steps };
        let joined = (0..ranks).map(|rank| join(attempts, rank, warmup)).collect::<Result<Vec<_>, _>>();
        // A checkpoint is of all ranks, so all of them have the same parts, but for one that left no step at all.
        let parts = joined.iter().flatten().map(|of_rank| &of_rank.parts).find(|parts| !parts.is_empty());
        self.parts = match parts {
            Some(parts) => {
                let of = |number: u32| attempts.iter().find(|attempt| attempt.number() == number);
                let found = parts.iter().filter_map(|part| Some((of(part.attempt)?, part.steps.clone())));
                found.map(|(attempt, steps)| RunPart::load(attempt, steps, ranks, records)).collect::<Result<_, _>>()?
            }
            None => vec![RunPart::load(attempt, 0..0, ranks, records)?],
        };
        if records != RunRecords::StepTimes {
            // The same in every attempt: it follows from the settings.
            self.shuffle = attempt.shuffle().unwrap_or_else(log_damaged);
            self.learning = joined_learning(attempts).map_or_else(log_damaged, Some).unwrap_or_default();
            self.slurm = attempt.slurm_usage().unwrap_or_else(log_damaged);
        }
        self.ranks = joined?.into_iter().map(|of_rank| of_rank.steps).collect();
        let lost = self.ranks.iter().position(Vec::is_empty);
        if let (RunState::Completed, Some(rank)) = (&self.state, lost) {
            self.state = RunState::Unreadable(format!("the steps of rank {rank} are gone"));
        }
        Ok(())
    }
}

/// `None` for a damaged record that is not needed, which is logged.
fn log_damaged<T>(error: LedgerError) -> Option<T> {
    tracing::warn!("{error}");
    None
}

/// A job of this ledger: `results/runs/<job>`.
#[derive(Clone, Debug)]
pub struct MeasuredJob {
    /// The job as it was submitted.
    pub record: JobRecord,
    /// Its trials, in the order of array tasks. They stay as they were read.
    pub runs: Vec<Run>,
    /// Labels, each with the indices of its runs, once [`MeasuredJob::by_label`] was called: a report asks for them again and again.
    labels: OnceLock<Vec<(String, Vec<usize>)>>,
}

impl MeasuredJob {
    /// Read a job with all the steps of the last attempt of each trial. A trial with a damaged file is
    /// [`RunState::Unreadable`].
    ///
    /// # Errors
    /// A `job.json` that cannot be read.
    pub fn load(dir: &JobDir) -> Result<Self, LedgerError> {
        Self::load_records(dir, RunRecords::All)
    }

    /// [`MeasuredJob::load`] without the hardware samples.
    ///
    /// # Errors
    /// A `job.json` that cannot be read.
    pub fn load_without_samples(dir: &JobDir) -> Result<Self, LedgerError> {
        Self::load_records(dir, RunRecords::WithoutSamples)
    }

    fn load_records(dir: &JobDir, records: RunRecords) -> Result<Self, LedgerError> {
        let record = dir.record()?;
        let runs = parallel_map::map(&record.trials, |trial| Run::load(dir, record.job, trial, records));
        Ok(Self { record, runs, labels: OnceLock::new() })
    }

    /// What the rates of a job rest on, of the trials that are `selected`: outcome, environment and the times of their steps. Stages, hardware
    /// samples, figures of training and what Slurm measured are not read. `record` is that of the folder.
    pub fn load_step_times(dir: &JobDir, record: JobRecord, selected: impl Fn(&Trial) -> bool) -> Self {
        let trials: Vec<&Trial> = record.trials.iter().filter(|trial| selected(trial)).collect();
        let runs = parallel_map::map(&trials, |trial| Run::load(dir, record.job, trial, RunRecords::StepTimes));
        Self { record, runs, labels: OnceLock::new() }
    }

    /// Runs by label (variant and swept settings), in the order of their first trial.
    pub fn by_label(&self) -> Vec<(String, Vec<&Run>)> {
        let labels = self.labels.get_or_init(|| {
            let mut labels: Vec<(String, Vec<usize>)> = Vec::new();
            let mut group_of: BTreeMap<String, usize> = BTreeMap::new();
            for (index, label) in parallel_map::map(&self.runs, |run| run.trial.label()).into_iter().enumerate() {
                match group_of.get(&label) {
                    Some(group) => labels[*group].1.push(index),
                    None => {
                        group_of.insert(label.clone(), labels.len());
                        labels.push((label, vec![index]));
                    }
                }
            }
            labels
        });
        let group = |(label, indices): &(String, Vec<usize>)| {
            let runs: Vec<&Run> = indices.iter().map(|index| &self.runs[*index]).collect();
            (label.clone(), runs)
        };
        labels.iter().map(group).collect()
    }

    /// The variant that the config names as baseline, if the job has no trial of it.
    pub fn baseline_not_run(&self) -> Option<&str> {
        let name = self.record.baseline.as_deref()?;
        (!self.record.trials.iter().any(|trial| trial.variant == name)).then_some(name)
    }

    /// Trials that did not complete.
    pub fn incomplete(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|r| !r.completed())
    }

    /// Whether every trial completed. If not, trials that are incomplete come before failed ones, because a trial that has not ended may
    /// still fail.
    ///
    /// # Errors
    /// A trial did not end, cannot be read, or failed.
    pub fn verdict(&self) -> Result<(), JobVerdictError> {
        let names = |which: fn(&RunState) -> bool| -> Vec<String> {
            self.incomplete().filter(|run| which(&run.state)).map(|run| run.trial.name()).collect()
        };
        let failed = names(|state| matches!(state, RunState::Failed(_)));
        let damaged = names(|state| matches!(state, RunState::Unreadable(_)));
        let unended = names(|state| !matches!(state, RunState::Failed(_) | RunState::Unreadable(_)));
        JobVerdictError::check(self.runs.len(), unended, damaged, failed)
    }
}

/// Why a job is not complete, with the names of its trials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobVerdictError {
    /// Trials did not end, or cannot be read.
    Incomplete {
        /// Number of trials of the job.
        trials: usize,
        /// Trials that did not end.
        unended: Vec<String>,
        /// Trials with damaged files.
        damaged: Vec<String>,
    },
    /// Trials failed.
    Failed {
        /// Number of trials of the job.
        trials: usize,
        /// Trials that failed.
        failed: Vec<String>,
    },
}

impl JobVerdictError {
    /// The verdict on a job of `trials` trials, given the names of those that did not end, cannot be read, or failed.
    ///
    /// # Errors
    /// A trial did not end, cannot be read, or failed.
    pub fn check(trials: usize, unended: Vec<String>, damaged: Vec<String>, failed: Vec<String>) -> Result<(), Self> {
        if !unended.is_empty() || !damaged.is_empty() {
            return Err(Self::Incomplete { trials, unended, damaged });
        }
        if !failed.is_empty() {
            return Err(Self::Failed { trials, failed });
        }
        Ok(())
    }
}

impl std::fmt::Display for JobVerdictError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |trials: &usize, ids: &[String], state: &str| {
            (!ids.is_empty()).then(|| format!("{} of {trials} trials {state}: {}", ids.len(), ids.join(", ")))
        };
        let parts = match self {
            Self::Incomplete { trials, unended, damaged } => {
                [part(trials, unended, "did not end"), part(trials, damaged, "cannot be read")]
            }
            Self::Failed { trials, failed } => [part(trials, failed, "failed"), None],
        };
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
    }
}

impl std::error::Error for JobVerdictError {}
