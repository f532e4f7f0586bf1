//! Where the trials of many jobs stand, with one question to Slurm.

use std::collections::BTreeMap;

use expctl_record::{JobDir, JobRecord};

use super::submissions::{Submissions, settled};
use super::tasks::Task;
use super::tools::Slurm;
use crate::exit::Failure;

/// Where a trial stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its newest attempt has an outcome.
    Ended,
    /// Its task is in the queue or runs.
    Active(Task),
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

impl Slurm {
    /// Where the trials of `jobs` stand. Slurm is asked only about those without an outcome, and not at all if all have one.
    ///
    /// # Errors
    /// A file of the ledger cannot be read. A Slurm that does not answer is no error.
    pub fn standings(&self, jobs: &[(JobDir, JobRecord)]) -> Result<Standings, Failure> {
        let mut standings = Standings::default();
        let mut open = Vec::new();
        for (folder, record) in jobs {
            let submissions = Submissions::load(folder, record.job)?;
            for (index, (key, trial)) in (0..).zip(&record.trials).enumerate() {
                let (array, attempt) = submissions.newest(key);
                if settled(folder, trial, attempt)?.is_some() {
                    standings.trials.insert((record.job, index), Standing::Ended);
                } else {
                    open.push((record.job, index, key, array));
                }
            }
        }
        let arrays: Vec<_> = open.iter().map(|(.., array)| array.clone()).collect();
        let queue = match self.queued(&arrays) {
            Ok(queue) => Some(queue),
            Err(e) => {
                standings.trouble = Some(e.to_string());
                None
            }
        };
        for (job, index, key, array) in open {
            let task = queue.as_ref().map(|queue| queue.get(&(array.id, key)));
            let standing = match task {
                None => Standing::Unknown,
                Some(Some(task)) if task.state.is_over() => Standing::Gone(format!("Slurm says {task}")),
                Some(Some(task)) => Standing::Active(task.clone()),
                Some(None) => Standing::Gone("Slurm no longer knows its task".to_owned()),
            };
            standings.trials.insert((job, index), standing);
        }
        Ok(standings)
    }
}
