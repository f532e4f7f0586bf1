//! Where the trials of many jobs stand, with one question to Slurm.

use std::collections::BTreeMap;

use expctl_record::{JobDir, JobRecord, Trial};

use super::arrays::{Arrays, Place, Settled, settled};
use super::submitted::Submitted;
use super::tasks::{Queue, Task};
use super::tools::Slurm;
use crate::exit::Failure;

/// Where a trial stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its newest attempt has an outcome.
    Ended,
    /// Its task is in the queue or runs.
    Active(Task),
    /// Its task runs, but another trial: its turn comes.
    Later(Task),
    /// Its task is over, and left no outcome; what Slurm says of it.
    Gone(String),
    /// Slurm could not be asked.
    Unknown,
}

/// Where trials stand, by job number and place in the job.
#[derive(Clone, Debug, Default)]
pub struct Standings {
    /// The trials.
    pub trials: BTreeMap<(u64, usize), Standing>,
    /// Why Slurm could not be asked.
    pub trouble: Option<String>,
}

impl Standings {
    /// Add those of other jobs.
    pub fn extend(&mut self, other: Self) {
        self.trials.extend(other.trials);
        self.trouble = self.trouble.take().or(other.trouble);
    }
}

impl Slurm {
    /// Where the trials of `jobs` stand. Slurm is asked only about those without an outcome, and not at all if all have one.
    ///
    /// # Errors
    /// A file of the ledger cannot be read. A Slurm that does not answer is no error.
    pub fn standings(&self, jobs: &[(JobDir, JobRecord)]) -> Result<Standings, Failure> {
        Standings::of(jobs, |arrays| self.queued(arrays).map_err(|e| e.to_string()))
    }
}

impl Standings {
    /// Where the trials of `jobs` stand, where `ask` says what Slurm knows of arrays, or why it cannot be asked.
    ///
    /// # Errors
    /// A file of the ledger cannot be read.
    pub(in crate::launch) fn of(
        jobs: &[(JobDir, JobRecord)],
        ask: impl FnOnce(&[Submitted]) -> Result<Queue, String>,
    ) -> Result<Self, Failure> {
        let mut standings = Standings::default();
        let mut open = Vec::new();
        for (folder, record) in jobs {
            let places = Arrays::load(folder, record.job, record.trials.len())?.places(record.trials.len());
            for (index, (place, trial)) in places.into_iter().zip(&record.trials).enumerate() {
                let state = settled(folder, trial, place.as_ref())?;
                match (state, place) {
                    (state @ (Settled::No | Settled::Unless(_)), Some(place)) => {
                        let begun = job_has(folder, trial, &place)?;
                        open.push(Open { job: record.job, index, place, outcome: state != Settled::No, begun });
                    }
                    (Settled::Yes(_), _) => drop(standings.trials.insert((record.job, index), Standing::Ended)),
                    (_, None) => {
                        let said = Standing::Gone("no array runs it".to_owned());
                        standings.trials.insert((record.job, index), said);
                    }
                }
            }
        }
        let arrays: Vec<_> = open.iter().map(|open| open.place.array.clone()).collect();
        let queue = match ask(&arrays) {
            Ok(queue) => Some(queue),
            Err(why) => {
                standings.trouble = Some(why);
                None
            }
        };
        for Open { job, index, place, outcome, begun } in open {
            let task = queue.as_ref().map(|queue| queue.get(&place.key()));
            let standing = match task {
                Some(Some(task)) if !task.state.is_over() => match begun || task.state.is_waiting() {
                    true => Standing::Active(task.clone()),
                    false => Standing::Later(task.clone()),
                },
                // Slurm does not run it again: the outcome that it has is the last word.
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
struct Open {
    job: u64,
    index: usize,
    place: Place,
    /// It has an outcome that need not be the last word.
    outcome: bool,
    /// Its attempt is there.
    begun: bool,
}

/// Whether the attempt that `place` makes has begun.
fn job_has(folder: &JobDir, trial: &Trial, place: &Place) -> Result<bool, Failure> {
    Ok(folder.attempts(&trial.id)?.last().is_some_and(|last| last.number() >= place.attempt))
}
