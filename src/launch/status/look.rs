use expctl_record::{AttemptDir, JobDir, JobRecord, Outcome, Trial};

use super::state::{JobStatus, State, TrialStatus};
use crate::exit::Failure;
use crate::launch::local::{Launcher, Life};
use crate::launch::slurm::{Slurm, Standing, Standings};
use crate::parallel;

/// Jobs as they stand now.
#[derive(Clone, Debug)]
pub struct Look {
    /// The jobs, in the order asked for.
    pub jobs: Vec<JobStatus>,
    /// Why Slurm could not be asked.
    pub trouble: Option<String>,
}

/// Look at jobs. Slurm is asked once for all of them, and only if one of its trials has no outcome.
///
/// # Errors
/// A file of the ledger cannot be read.
pub fn look(folders: &[JobDir]) -> Result<Look, Failure> {
    let jobs = folders.iter().map(|f| Ok((f.clone(), f.record()?))).collect::<Result<Vec<_>, Failure>>()?;
    let mut standings = Standings::default();
    for backend in ["slurm", "slurmrest"] {
        let jobs: Vec<_> = jobs.iter().filter(|(_, record)| record.backend == backend).cloned().collect();
        if !jobs.is_empty() {
            standings.extend(standings_of(backend, &jobs)?);
        }
    }
    let trouble = standings.trouble.clone();
    let jobs = jobs.into_iter().map(|(folder, record)| look_at(folder, record, &standings));
    Ok(Look { jobs: jobs.collect::<Result<_, _>>()?, trouble })
}

/// Where jobs of Slurm's stand. A slurmrestd without address or token is one that cannot be asked.
pub(super) fn standings_of(backend: &str, jobs: &[(JobDir, JobRecord)]) -> Result<Standings, Failure> {
    match Slurm::of_job(backend) {
        Ok(slurm) => slurm.standings(jobs),
        Err(failure) => Standings::of(jobs, |_| Err(failure.message)),
    }
}

/// Look at a job, of which Slurm said `standings`.
///
/// # Errors
/// A file of the ledger cannot be read.
pub(super) fn look_at(folder: JobDir, record: JobRecord, standings: &Standings) -> Result<JobStatus, Failure> {
    let who = Who::runs(&folder, &record, standings)?;
    let trials: Vec<(usize, &Trial)> = record.trials.iter().enumerate().collect();
    let trials = parallel::map(&trials, |(index, trial)| who.status(&folder, *index, trial));
    let trials = trials.into_iter().collect::<Result<_, _>>()?;
    Ok(JobStatus { record, folder, trials })
}

/// What runs the trials of a job, and is asked where they stand.
pub(super) enum Who<'a> {
    /// A launcher on this machine.
    Launcher(LocalLauncher),
    /// Slurm, and the job's number.
    Slurm(&'a Standings, u64),
}

impl<'a> Who<'a> {
    pub(super) fn runs(folder: &JobDir, record: &JobRecord, standings: &'a Standings) -> Result<Self, Failure> {
        Ok(match record.on_slurm() {
            true => Self::Slurm(standings, record.job),
            false => Self::Launcher(LocalLauncher::of(folder)?),
        })
    }

    /// Where the trial at place `index` stands.
    pub(super) fn status(&self, folder: &JobDir, index: usize, trial: &Trial) -> Result<TrialStatus, Failure> {
        let (attempt, outcome) = last_attempt(folder, trial)?;
        let (state, reason) = match self {
            Self::Launcher(launcher) => launcher.state(trial, attempt.as_ref(), outcome.as_ref()),
            Self::Slurm(standings, job) => {
                let standing = standings.trials.get(&(*job, index)).unwrap_or(&Standing::Unknown);
                by_slurm(standing, attempt.is_some(), outcome.as_ref())
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

pub(super) fn ended(outcome: &Outcome) -> (State, String) {
    (outcome.state.into(), outcome.message.clone())
}

fn by_slurm(standing: &Standing, began: bool, outcome: Option<&Outcome>) -> (State, String) {
    match (standing, outcome) {
        (Standing::Ended, Some(outcome)) => ended(outcome),
        // Its outcome was removed between the two looks.
        (Standing::Ended, None) | (Standing::Unknown, _) => (State::Unknown, String::new()),
        (Standing::Later(_), _) => (State::Waiting, "its task runs other trials first".to_owned()),
        (Standing::Active(task), _) if task.state.is_waiting() => (State::Waiting, task.detail.clone()),
        (Standing::Active(task), _) => {
            let word = task.state.to_string();
            (State::Running, if word == "RUNNING" { String::new() } else { format!("Slurm says {word}") })
        }
        (Standing::Gone(said), None) if began => (State::Lost, said.clone()),
        // A retry that never began: the attempt before it is still the last word.
        (Standing::Gone(said), Some(outcome)) => {
            let (state, reason) = ended(outcome);
            (state, format!("{reason}; its retry never began: {said}"))
        }
        (Standing::Gone(said), None) => (State::NotStarted, said.clone()),
    }
}

/// The launcher of a local job and whether it lives.
pub(super) struct LocalLauncher(Option<(Launcher, Life)>);

impl LocalLauncher {
    fn of(folder: &JobDir) -> Result<Self, Failure> {
        Ok(Self(Launcher::of(folder)?.map(|launcher| {
            let life = launcher.life();
            (launcher, life)
        })))
    }

    fn state(&self, trial: &Trial, attempt: Option<&AttemptDir>, outcome: Option<&Outcome>) -> (State, String) {
        let alive = self.0.as_ref().filter(|(_, life)| *life != Life::Gone);
        let planned = alive.and_then(|(launcher, life)| Some((launcher, *life, *launcher.attempts.get(&trial.id)?)));
        if let Some((launcher, life, number)) = planned {
            let began = attempt.is_some_and(|attempt| attempt.number() >= number);
            if !began || outcome.is_none() {
                return match life {
                    Life::Elsewhere => (State::Unknown, format!("its launcher is on {}: ask there", launcher.host)),
                    _ if began => (State::Running, String::new()),
                    _ => (State::Waiting, String::new()),
                };
            }
        }
        match (attempt, outcome) {
            (_, Some(outcome)) => ended(outcome),
            (Some(_), None) => (State::Lost, "its launcher is gone".to_owned()),
            (None, None) => (State::NotStarted, String::new()),
        }
    }
}

impl JobStatus {
    /// Look at one job.
    ///
    /// # Errors
    /// As [`look`].
    pub fn of(folder: &JobDir) -> Result<(Self, Option<String>), Failure> {
        let mut seen = look(std::slice::from_ref(folder))?;
        let job = seen.jobs.pop().ok_or_else(|| Failure::internal("a look at one job saw none"))?;
        Ok((job, seen.trouble))
    }
}
