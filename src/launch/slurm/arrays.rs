//! `<job>/arrays.json`: which of Slurm's arrays runs which trial.
//!
//! Invariant: an array stands in this file before it is released, so a task always finds what it is to run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use expctl_record::{JobDir, Outcome, Trial, TrialState, write_json};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::submitted::Submitted;
use crate::exit::Failure;

/// A trial that a task runs: its place in `job.json`, and the number of the attempt that it makes there. A task that is
/// requeued makes a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn(pub u32, pub u32);

/// One array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// Slurm's number.
    pub id: u64,
    /// Its script, a file in the job's folder.
    pub script: String,
    /// Slurm may put its tasks back into the queue: an outcome other than completed need not be the last word.
    #[serde(default)]
    pub requeue: bool,
    /// Memory that each trial asks for, MiB; 0 leaves it to the cluster.
    #[serde(default)]
    pub memory_mib: u64,
    /// Time limit of each trial, minutes; 0 leaves it to the partition.
    #[serde(default)]
    pub time_min: u64,
    /// Nodes that it stays away from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// The trials of each task, in the order in which it runs them.
    pub tasks: BTreeMap<u32, Vec<Turn>>,
}

/// All arrays of a job, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrays {
    /// Name of the cluster, only where `sbatch` gave one: later questions go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The arrays.
    pub arrays: Vec<Array>,
    /// Number of the job that builds the data before the first array starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<u64>,
    /// Number of the job that writes the note after the last array has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<u64>,
}

/// Where the newest attempt of a trial is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub array: Submitted,
    pub task: u32,
    /// Number of the attempt, or of the first one if the task is requeued.
    pub attempt: u32,
    pub requeue: bool,
}

impl Place {
    /// How Slurm keeps the task.
    pub const fn key(&self) -> (u64, u32) {
        (self.array.id, self.task)
    }

    /// The task as Slurm names it: `392_4`.
    pub fn name(&self) -> String {
        format!("{}_{}", self.array.id, self.task)
    }

    /// What the task's script prints, in the job's folder.
    pub fn log(&self) -> String {
        format!("slurm-{}.log", self.name())
    }
}

impl Arrays {
    /// The arrays of a job with `trials` trials. Without the file it is one array, with a task for each trial.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(folder: &JobDir, job: u64, trials: usize) -> Result<Self, Failure> {
        let path = path(folder);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| Failure::internal(format!("{} cannot be read: {e}", path.display()))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let tasks = (0..).take(trials).map(|index| (index, vec![Turn(index, 1)])).collect();
                let only = Array { id: job, script: "batch.sh".to_owned(), tasks, ..Array::default() };
                Ok(Self { arrays: vec![only], ..Self::default() })
            }
            Err(e) => Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
        }
    }

    /// Write the file.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn save(&self, folder: &JobDir) -> Result<(), Failure> {
        Ok(write_json(&path(folder), self)?)
    }

    /// Note that Slurm runs none of the tasks of the arrays `which` again: every outcome is the last word, and nobody need
    /// ask.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(super) fn close(folder: &JobDir, job: u64, trials: usize, which: &[u64]) -> Result<(), Failure> {
        let _lock = Self::lock(folder)?;
        let mut all = Self::load(folder, job, trials)?;
        let open = |array: &&mut Array| array.requeue && which.contains(&array.id);
        let closed = all.arrays.iter_mut().filter(open).map(|array| array.requeue = false).count();
        if closed > 0 { all.save(folder) } else { Ok(()) }
    }

    /// Held by who reads the file, changes it and writes it again: two at once would lose what one of them added.
    ///
    /// # Errors
    /// The folder cannot be written to, or its file system has no locks.
    pub(super) fn lock(folder: &JobDir) -> Result<Flock<std::fs::File>, Failure> {
        let path = folder.path().join(".arrays.lock");
        let failed = |e: &dyn std::fmt::Display| Failure::internal(format!("cannot lock {}: {e}", path.display()));
        let options = std::fs::File::options().create(true).truncate(false).write(true).open(&path);
        let file = options.map_err(|e| failed(&e))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| failed(&e))
    }

    /// A job of Slurm's on the cluster of this job.
    pub fn named(&self, id: u64) -> Submitted {
        Submitted { id, cluster: self.cluster.clone() }
    }

    /// Where the newest attempt of each of `trials` trials is made; none for one that no array has.
    pub(super) fn places(&self, trials: usize) -> Vec<Option<Place>> {
        let mut places = vec![None; trials];
        for array in &self.arrays {
            for (task, turns) in &array.tasks {
                for Turn(trial, attempt) in turns {
                    if let Some(place) = places.get_mut(*trial as usize) {
                        *place = Some(Place {
                            array: self.named(array.id),
                            task: *task,
                            attempt: *attempt,
                            requeue: array.requeue,
                        });
                    }
                }
            }
        }
        places
    }

    /// For each of `trials` trials the tasks that run it, oldest first: the array, the task in it, and the first attempt that
    /// it makes.
    pub(super) fn tasks_of_trials(&self, trials: usize) -> Vec<Vec<(u64, u32, u32)>> {
        let mut found = vec![Vec::new(); trials];
        for array in &self.arrays {
            for (task, turns) in &array.tasks {
                for Turn(trial, attempt) in turns {
                    if let Some(list) = found.get_mut(*trial as usize) {
                        list.push((array.id, *task, *attempt));
                    }
                }
            }
        }
        found
    }

    /// The array that makes the newest attempt of a trial.
    pub fn newest(&self, trial: u32) -> Option<&Array> {
        self.arrays.iter().rev().find(|array| array.tasks.values().flatten().any(|turn| turn.0 == trial))
    }

    /// The array and its task that made an attempt of a trial: the newest of those that were to make this one or an earlier
    /// one, because later ones are for retries.
    pub fn made_by(&self, trial: u32, attempt: u32) -> Option<(&Array, u32)> {
        let made = |turn: &Turn| turn.0 == trial && turn.1 <= attempt;
        self.arrays.iter().rev().find_map(|array| {
            let (task, _) = array.tasks.iter().find(|(_, turns)| turns.iter().any(made))?;
            Some((array, *task))
        })
    }

    /// The trials of a task.
    pub fn turns(&self, array: u64, task: u32) -> Option<&[Turn]> {
        let array = self.arrays.iter().find(|a| a.id == array)?;
        array.tasks.get(&task).map(Vec::as_slice)
    }

    /// Numbers of all that Slurm has of this job, in the order in which it was submitted.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.build.into_iter().chain(self.arrays.iter().map(|a| a.id)).chain(self.note)
    }
}

/// How far a trial's newest attempt has come, as far as the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Its outcome is the last word.
    Yes(Outcome),
    /// It has an outcome, but Slurm may run the trial again by itself.
    Unless(Outcome),
    /// No outcome yet.
    No,
}

/// The outcome of a trial's last attempt, unless the one that `place` makes is still to come.
pub(super) fn settled(job: &JobDir, trial: &Trial, place: Option<&Place>) -> Result<Settled, Failure> {
    let attempt = place.map_or(1, |place| place.attempt);
    let last = job.attempts(&trial.id)?.pop().filter(|last| last.number() >= attempt);
    let Some(outcome) = last.map(|last| last.outcome()).transpose()?.flatten() else { return Ok(Settled::No) };
    let requeue = place.is_some_and(|place| place.requeue);
    Ok(if requeue && outcome.state != TrialState::Completed { Settled::Unless(outcome) } else { Settled::Yes(outcome) })
}

fn path(folder: &JobDir) -> PathBuf {
    folder.path().join("arrays.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(id: u64, tasks: &[(u32, &[(u32, u32)])]) -> Array {
        let turns = |turns: &[(u32, u32)]| turns.iter().map(|(t, a)| Turn(*t, *a)).collect();
        let tasks = tasks.iter().map(|(task, list)| (*task, turns(list))).collect();
        Array { id, script: "batch.sh".to_owned(), tasks, ..Array::default() }
    }

    #[test]
    fn the_newest_task_of_a_trial_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobDir::new(dir.path());
        let shown = |arrays: &Arrays| -> Vec<(String, u32)> {
            arrays.places(4).into_iter().flatten().map(|p| (p.name(), p.attempt)).collect()
        };
        let text =
            |list: &[(&str, u32)]| -> Vec<(String, u32)> { list.iter().map(|(n, a)| ((*n).to_owned(), *a)).collect() };
        let plain = Arrays::load(&folder, 392, 4).unwrap();
        assert_eq!(shown(&plain), text(&[("392_0", 1), ("392_1", 1), ("392_2", 1), ("392_3", 1)]));
        let all = Arrays {
            arrays: vec![
                array(392, &[(0, &[(0, 1), (2, 1)]), (1, &[(1, 1)])]),
                array(393, &[(0, &[(3, 1)])]),
                array(400, &[(1, &[(1, 2)]), (3, &[(3, 2)])]),
            ],
            ..Arrays::default()
        };
        all.save(&folder).unwrap();
        let read = Arrays::load(&folder, 392, 4).unwrap();
        assert_eq!(read, all);
        assert_eq!(shown(&read), text(&[("392_0", 1), ("400_1", 2), ("392_0", 1), ("400_3", 2)]));
        let made_by = |trial, attempt| read.made_by(trial, attempt).map(|(array, task)| (array.id, task));
        assert_eq!([made_by(1, 1), made_by(1, 2), made_by(1, 3)], [Some((392, 1)), Some((400, 1)), Some((400, 1))]);
        assert_eq!([made_by(2, 2), made_by(7, 1)], [Some((392, 0)), None]);
        assert_eq!(read.turns(392, 0), Some(&[Turn(0, 1), Turn(2, 1)][..]));
        assert_eq!(read.turns(392, 7), None);
    }
}
