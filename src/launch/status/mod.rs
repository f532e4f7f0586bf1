//! The status of jobs: where their trials stand now, whichever backend runs them.
//!
//! Invariant: looking never writes into the ledger, and a trial is called running only if something that runs it was seen.

mod existing;
mod follow;
mod listed_jobs;
mod pace;

pub use existing::ExistingTrials;
use expctl_ledger::{AttemptDir, AttemptState, JobDir, JobRecord, JobVerdictError, Outcome};
use expctl_settings::Trial;
pub use follow::{Follow, estimated_s_left};
pub use listed_jobs::ListedJobs;
pub use pace::{Pace, RankPace, WINDOW_S};

use crate::exit::Failure;
use crate::launch::local::{Launcher, LauncherState};
use crate::launch::slurm::{SlurmBackend, Standing, Standings};
use crate::ledger::state_words;

/// A trial of a job, as seen now.
#[derive(Clone, Debug)]
pub struct TrialStatus {
    /// The trial.
    pub trial: Trial,
    /// Its state.
    pub state: AttemptState,
    /// Its last attempt on disk.
    pub attempt: Option<AttemptDir>,
    /// Outcome of that attempt, if it has one.
    pub outcome: Option<Outcome>,
    /// Why it is in that state; may be empty.
    pub reason: String,
}

/// A job, as seen now.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// The job as it was submitted.
    pub record: JobRecord,
    /// Its folder.
    pub folder: JobDir,
    /// Its trials, in the order of array tasks.
    pub trials: Vec<TrialStatus>,
}

impl JobStatus {
    /// Look at one job; also returns why Slurm could not be asked, if so.
    ///
    /// # Errors
    /// As [`JobStatuses::load`].
    pub fn load(folder: &JobDir) -> Result<(Self, Option<String>), Failure> {
        let mut seen = JobStatuses::load(std::slice::from_ref(folder))?;
        if let Some((_, failure)) = seen.unreadable.pop() {
            return Err(failure);
        }
        let job = seen.jobs.pop().ok_or_else(|| Failure::internal("a look at one job saw none"))?;
        Ok((job, seen.trouble))
    }

    /// Look at a job, of which Slurm said `standings`.
    fn from_standings(folder: JobDir, record: JobRecord, standings: &Standings) -> Result<Self, Failure> {
        let seen = Self::all_from_standings(vec![(folder, record)], standings).pop();
        let seen = seen.ok_or_else(|| Failure::internal("a look at one job saw none"))?;
        seen.map_err(|(_, failure)| failure)
    }

    /// Look at jobs, of which Slurm said `standings`. The trials of all of them are looked at together: one job may have too few for
    /// several threads.
    fn all_from_standings(
        jobs: Vec<(JobDir, JobRecord)>,
        standings: &Standings,
    ) -> Vec<Result<Self, (JobDir, Failure)>> {
        let sources = parallel_map::map(&jobs, |(folder, record)| StatusSource::new(folder, record, standings));
        let known = jobs.iter().zip(&sources).filter_map(|(job, source)| Some((job, source.as_ref().ok()?)));
        let trials: Vec<_> = known
            .flat_map(|((folder, record), source)| {
                record.trials.iter().enumerate().map(move |(index, trial)| (source, folder, index, trial))
            })
            .collect();
        let seen = parallel_map::map(&trials, |(source, folder, index, trial)| source.status(folder, *index, trial));
        let mut seen = seen.into_iter();
        let failures: Vec<Option<Failure>> = sources.into_iter().map(Result::err).collect();
        let of_job = |((folder, record), failure): ((JobDir, JobRecord), Option<Failure>)| {
            if let Some(failure) = failure {
                return Err((folder, failure));
            }
            // All of the job are taken, whichever of them cannot be read.
            let trials: Vec<Result<TrialStatus, Failure>> = seen.by_ref().take(record.trials.len()).collect();
            match trials.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(trials) => Ok(Self { record, folder, trials }),
                Err(failure) => Err((folder, failure)),
            }
        };
        jobs.into_iter().zip(failures).map(of_job).collect()
    }

    /// Number of trials in each state that occurs.
    pub fn counts(&self) -> Vec<(AttemptState, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for trial in &self.trials {
            *counts.entry(trial.state).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// The counts in words: `2 completed, 1 running`.
    pub fn summary(&self) -> String {
        state_words(&self.counts().into_iter().collect())
    }

    /// Whether every trial completed.
    ///
    /// # Errors
    /// Exit 6 if trials did not end, exit 5 if some failed; the message names them.
    pub fn verdict(&self) -> Result<(), Failure> {
        let names = |which: fn(AttemptState) -> bool| -> Vec<String> {
            self.trials.iter().filter(|t| which(t.state)).map(|t| t.trial.name()).collect()
        };
        let failed = names(|state| state == AttemptState::Failed);
        let unended = names(|state| !matches!(state, AttemptState::Completed | AttemptState::Failed));
        Ok(JobVerdictError::check(self.trials.len(), unended, Vec::new(), failed)?)
    }

    /// Whether something runs a trial of the job or will, or may do so.
    pub fn is_active(&self) -> bool {
        self.trials.iter().any(|trial| trial.state.is_active())
    }
}

/// Jobs, as seen now.
#[derive(Debug)]
pub struct JobStatuses {
    /// The jobs, in the order asked for.
    pub jobs: Vec<JobStatus>,
    /// Jobs that cannot be read, and why: one damaged file hides no other job.
    pub unreadable: Vec<(JobDir, Failure)>,
    /// Why Slurm could not be asked, if so.
    pub trouble: Option<String>,
}

impl JobStatuses {
    /// Look at jobs. Slurm is asked once for all of them, and only about trials without a final outcome.
    ///
    /// # Errors
    /// Slurm's answer cannot be understood.
    pub fn load(folders: &[JobDir]) -> Result<Self, Failure> {
        let (mut jobs, mut unreadable) = (Vec::new(), Vec::new());
        for (folder, record) in folders.iter().zip(parallel_map::map(folders, JobDir::record)) {
            match record {
                Ok(record) => jobs.push((folder.clone(), record)),
                Err(e) => unreadable.push((folder.clone(), e.into())),
            }
        }
        let mut standings = Standings::default();
        for backend in ["slurm", "slurmrest"] {
            let jobs: Vec<_> = jobs.iter().filter(|(_, record)| record.backend == backend).cloned().collect();
            if !jobs.is_empty() {
                standings.extend(standings_of(backend, &jobs)?);
            }
        }
        let trouble = standings.trouble.clone();
        let mut seen = Self { jobs: Vec::new(), unreadable, trouble };
        for job in JobStatus::all_from_standings(jobs, &standings) {
            match job {
                Ok(job) => seen.jobs.push(job),
                Err(unreadable) => seen.unreadable.push(unreadable),
            }
        }
        Ok(seen)
    }
}

/// Look up where jobs on Slurm stand. A slurmrestd without address or token counts as one that cannot be asked.
fn standings_of(backend: &str, jobs: &[(JobDir, JobRecord)]) -> Result<Standings, Failure> {
    match SlurmBackend::for_job(backend) {
        Ok(slurm) => slurm.standings(jobs),
        Err(failure) => Standings::from_queue(jobs, |_| Err(failure.message)),
    }
}

/// The source of the states of a job's trials.
enum StatusSource<'a> {
    /// The launcher on this machine, and whether it runs; `None` if there was none.
    Launcher(Option<(Launcher, LauncherState)>),
    /// Slurm, and the job's id.
    Slurm(&'a Standings, u64),
}

impl<'a> StatusSource<'a> {
    fn new(folder: &JobDir, record: &JobRecord, standings: &'a Standings) -> Result<Self, Failure> {
        Ok(match record.on_slurm() {
            true => Self::Slurm(standings, record.job),
            false => Self::Launcher(Launcher::load(folder)?.map(|launcher| {
                let state = launcher.state();
                (launcher, state)
            })),
        })
    }

    /// Status of the trial at `index` in the job.
    fn status(&self, folder: &JobDir, index: usize, trial: &Trial) -> Result<TrialStatus, Failure> {
        let (attempt, outcome) = last_attempt(folder, trial)?;
        let (state, reason) = match self {
            Self::Launcher(launcher) => state_by_launcher(launcher.as_ref(), trial, attempt.as_ref(), outcome.as_ref()),
            Self::Slurm(standings, job) => {
                let standing = standings.trials.get(&(*job, index)).unwrap_or(&Standing::Unknown);
                state_by_slurm(standing, attempt.is_some(), outcome.as_ref())
            }
        };
        Ok(TrialStatus { trial: trial.clone(), state, attempt, outcome, reason })
    }
}

fn last_attempt(folder: &JobDir, trial: &Trial) -> Result<(Option<AttemptDir>, Option<Outcome>), Failure> {
    let attempt = folder.attempts(&trial.id)?.pop();
    let outcome = match &attempt {
        Some(attempt) => attempt.outcome()?,
        None => None,
    };
    Ok((attempt, outcome))
}

fn ended(outcome: &Outcome) -> (AttemptState, String) {
    (outcome.state.into(), outcome.message.clone())
}

fn state_by_slurm(standing: &Standing, began: bool, outcome: Option<&Outcome>) -> (AttemptState, String) {
    match (standing, outcome) {
        (Standing::Ended, Some(outcome)) => ended(outcome),
        // Its outcome was removed in between.
        (Standing::Ended, None) | (Standing::Unknown, _) => (AttemptState::Unknown, String::new()),
        (Standing::Later(_), _) => (AttemptState::Waiting, "its task runs other trials first".to_owned()),
        (Standing::Active(task), _) if task.state.is_waiting() => (AttemptState::Waiting, task.detail.clone()),
        (Standing::Active(task), _) => {
            let word = task.state.to_string();
            (AttemptState::Running, if word == "RUNNING" { String::new() } else { format!("Slurm says {word}") })
        }
        (Standing::Gone(said), None) if began => (AttemptState::Lost, said.clone()),
        // A retry that never began: the outcome of the attempt before it still holds.
        (Standing::Gone(said), Some(outcome)) => {
            let (state, reason) = ended(outcome);
            (state, format!("{reason}; its retry never began: {said}"))
        }
        (Standing::Gone(said), None) => (AttemptState::NotStarted, said.clone()),
    }
}

fn state_by_launcher(
    launcher: Option<&(Launcher, LauncherState)>,
    trial: &Trial,
    attempt: Option<&AttemptDir>,
    outcome: Option<&Outcome>,
) -> (AttemptState, String) {
    let running = launcher.filter(|(_, state)| *state != LauncherState::Gone);
    let planned = running.and_then(|(launcher, state)| Some((launcher, *state, *launcher.attempts.get(&trial.id)?)));
    if let Some((launcher, state, number)) = planned {
        let began = attempt.is_some_and(|attempt| attempt.number() >= number);
        if !began || outcome.is_none() {
            return match state {
                LauncherState::Elsewhere => {
                    (AttemptState::Unknown, format!("its launcher is on {}: ask there", launcher.host))
                }
                _ if began => (AttemptState::Running, String::new()),
                _ => (AttemptState::Waiting, String::new()),
            };
        }
    }
    match (attempt, outcome) {
        (_, Some(outcome)) => ended(outcome),
        (Some(_), None) => (AttemptState::Lost, "its launcher is gone".to_owned()),
        (None, None) => (AttemptState::NotStarted, String::new()),
    }
}
