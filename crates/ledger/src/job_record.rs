//! What was submitted of a job: [`JobRecord`], the file `job.json`, and [`JobArrays`], the file `arrays.json`: which of Slurm's arrays runs
//! which trial.
//!
//! Invariant: an array is in `arrays.json` before it is released, so a task always finds what it is to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use expctl_settings::{Estimator, Readers, TRIAL_SCHEMA_VERSION, Trial};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::layout::{known_schema, read_json, read_optional};
use crate::{JobDir, LedgerError, write_json};

/// `job.json`: what was submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// [`TRIAL_SCHEMA_VERSION`].
    pub schema: u32,
    /// Job id, as Slurm or the local backend gave it.
    pub job: u64,
    /// "slurm", "slurmrest" or "local".
    pub backend: String,
    /// Name of the config.
    pub config: String,
    /// Folder of the study in experiments/.
    pub study: String,
    /// The config file, as given.
    pub config_path: PathBuf,
    /// `--set` overrides, as given.
    pub overrides: Vec<String>,
    /// Submitted, seconds since the epoch.
    pub submitted: i64,
    /// Commit of the working tree, with `-dirty` if it had changes; none outside a repository.
    pub commit: Option<String>,
    /// Version of expctl.
    pub expctl_version: String,
    /// Variant that ratios refer to.
    pub baseline: Option<String>,
    /// Published ways to make a rate that the note shows beside the right one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimators: Vec<Estimator>,
    /// Predictions that it was submitted to verify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifies: Option<VerifiedPredictions>,
    /// The round of a search that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchRound>,
    /// The job whose code and config it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reruns: Option<u64>,
    /// The trials, in the order of array tasks.
    pub trials: Vec<Trial>,
}

/// The head of `job.json`: what the job is, without its trials, which take longer to read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct JobHead {
    /// [`TRIAL_SCHEMA_VERSION`].
    pub schema: u32,
    /// "slurm", "slurmrest" or "local".
    pub backend: String,
    /// Name of the config.
    pub config: String,
    /// Folder of the study in experiments/.
    pub study: String,
    /// Submitted, seconds since the epoch.
    pub submitted: i64,
}

impl JobHead {
    /// Whether Slurm runs it, however it was submitted.
    pub fn on_slurm(&self) -> bool {
        is_slurm(&self.backend)
    }
}

/// Whether a backend gives jobs to Slurm.
fn is_slurm(backend: &str) -> bool {
    matches!(backend, "slurm" | "slurmrest")
}

/// Predictions that a job was submitted to verify. What was predicted is written before the job runs; what was measured is in its trials
/// alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifiedPredictions {
    /// The job from whose record was predicted.
    pub job: u64,
    /// The predictions.
    pub predictions: Vec<VerifiedPrediction>,
}

/// A predicted rate, and the variants of the job that show whether it is right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifiedPrediction {
    /// The variant that was predicted from, with its swept settings, as the earlier job names it.
    pub label: String,
    /// The variant with its settings.
    pub baseline: String,
    /// The variant with the change.
    pub variant: String,
    /// The change: `loader.workers=4`.
    pub setting: String,
    /// Predicted rate, samples per second of all ranks.
    pub samples_per_s: f64,
    /// Predicted rate over the rate that was measured then.
    pub gain: f64,
    /// 95 % interval of the gain, lower and upper end; `None` if the record was too short for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_interval: Option<(f64, f64)>,
}

/// A round of a search. A search is in no other file: its state follows from the jobs of its rounds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SearchRound {
    /// Which search: a text that is the same for the same points, lengths and options of a config.
    pub id: String,
    /// Number of the search among those with this id, from 1.
    pub start: u32,
    /// Number of the round, from 1.
    pub round: u32,
}

impl JobRecord {
    /// Whether Slurm runs it, however it was submitted.
    pub fn on_slurm(&self) -> bool {
        is_slurm(&self.backend)
    }

    /// Who may read its folder.
    pub fn readers(&self) -> Readers {
        self.trials.first().map_or(Readers::default(), |trial| trial.settings.launch.readers)
    }
}

/// A trial that a task runs: its index in the job, and the number of the attempt that the task makes of it. A requeued
/// task makes a later attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTrial(pub u32, pub u32);

/// An array that was submitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedArray {
    /// Slurm's id.
    pub id: u64,
    /// Its script, a file in the job's folder.
    pub script: String,
    /// Slurm may requeue its tasks: an outcome other than completed need not be final.
    #[serde(default)]
    pub requeue: bool,
    /// Memory that each trial asks for, MiB; 0 leaves it to the cluster.
    #[serde(default)]
    pub memory_mib: u64,
    /// Time limit of each trial, minutes; 0 leaves it to the partition.
    #[serde(default)]
    pub time_min: u64,
    /// Nodes that it excludes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// The trials of each task, in the order in which it runs them.
    pub tasks: BTreeMap<u32, Vec<TaskTrial>>,
}

/// All arrays of a job, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobArrays {
    /// Name of the cluster, if `sbatch` gave one: later questions go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The arrays.
    pub arrays: Vec<SubmittedArray>,
    /// Id of the job that builds the data before the first array starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<u64>,
    /// Id of the job that writes the note after the last array has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<u64>,
}

/// The array task that makes the newest attempt of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialTask {
    /// Slurm's id of the array.
    pub array: u64,
    /// Index of the task.
    pub task: u32,
    /// Number of the attempt; of the first one if the task is requeued.
    pub attempt: u32,
    /// Slurm may requeue the task.
    pub requeue: bool,
}

impl TrialTask {
    /// The task in Slurm's queue: its array and index.
    pub const fn key(&self) -> (u64, u32) {
        (self.array, self.task)
    }

    /// The task as Slurm names it: `392_4`.
    pub fn name(&self) -> String {
        format!("{}_{}", self.array, self.task)
    }

    /// Name of the file that the task's script prints to, in the job's folder.
    pub fn log(&self) -> String {
        format!("slurm-{}.log", self.name())
    }
}

/// The tasks that run a trial, oldest first: the array, the index in it, and the first attempt that it makes.
#[derive(Clone, Debug, Default)]
pub struct TasksOfTrial<'a>(Vec<(&'a SubmittedArray, u32, u32)>);

impl<'a> TasksOfTrial<'a> {
    /// The array and the index of its task that made an attempt: the newest whose first attempt is this one or an earlier one, because later
    /// arrays are retries.
    pub fn that_made(&self, attempt: u32) -> Option<(&'a SubmittedArray, u32)> {
        let found = self.0.iter().rev().find(|(.., first)| *first <= attempt);
        found.map(|(array, task, _)| (*array, *task))
    }
}

/// `job.json`, of which single trials are read: those of a large job take longer than the rest of a task.
#[derive(Debug, Deserialize)]
pub struct RecordedTrials {
    schema: u32,
    /// Job id.
    pub job: u64,
    trials: Vec<Box<RawValue>>,
}

impl RecordedTrials {
    /// Read the file of a job.
    ///
    /// # Errors
    /// The file cannot be read, or a newer expctl wrote it.
    pub fn read(folder: &JobDir) -> Result<Self, LedgerError> {
        let path = folder.record_path();
        let read: Self = read_json(&path)?;
        known_schema(&path, read.schema, TRIAL_SCHEMA_VERSION)?;
        Ok(read)
    }

    /// Number of the trials.
    pub fn count(&self) -> usize {
        self.trials.len()
    }

    /// A trial by its index. `None`: the job, in `folder`, has no such trial.
    ///
    /// # Errors
    /// The trial is damaged.
    pub fn trial(&self, folder: &JobDir, index: u32) -> Result<Option<Trial>, LedgerError> {
        let text = self.trials.get(index as usize);
        let trial = text.map(|text| serde_json::from_str(text.get())).transpose();
        trial.map_err(LedgerError::json(&folder.record_path()))
    }
}

/// `job.json`, of whose trials nothing is read but their variants: the settings of hundreds of trials take long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct JobVariants {
    schema: u32,
    /// Name of the config.
    pub config: String,
    trials: Vec<VariantOfTrial>,
}

/// A trial, of which only its variant is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct VariantOfTrial {
    variant: String,
}

impl JobVariants {
    /// Read the file of a job.
    ///
    /// # Errors
    /// The file cannot be read, or a newer expctl wrote it.
    pub fn read(folder: &JobDir) -> Result<Self, LedgerError> {
        let path = folder.record_path();
        let read: Self = read_json(&path)?;
        known_schema(&path, read.schema, TRIAL_SCHEMA_VERSION)?;
        Ok(read)
    }

    /// The variants, each once, in the order of their first trials.
    pub fn variants(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.trials.iter().map(|trial| trial.variant.as_str()).filter(|variant| seen.insert(*variant)).collect()
    }
}

impl JobArrays {
    /// The arrays of a job with `trials` trials. Without the file there is one array, with a task for each trial.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(folder: &JobDir, job: u64, trials: usize) -> Result<Self, LedgerError> {
        Ok(read_optional(&arrays_path(folder))?.unwrap_or_else(|| {
            let tasks = (0..).take(trials).map(|index| (index, vec![TaskTrial(index, 1)])).collect();
            let only = SubmittedArray { id: job, script: "batch.sh".to_owned(), tasks, ..SubmittedArray::default() };
            Self { arrays: vec![only], ..Self::default() }
        }))
    }

    /// The arrays of a job. `None`: it runs on this machine.
    ///
    /// # Errors
    /// As [`JobArrays::load`].
    pub fn of_job(folder: &JobDir, record: &JobRecord) -> Result<Option<Self>, LedgerError> {
        record.on_slurm().then(|| Self::load(folder, record.job, record.trials.len())).transpose()
    }

    /// Write the file.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn save(&self, folder: &JobDir) -> Result<(), LedgerError> {
        write_json(&arrays_path(folder), self)
    }

    /// Record that Slurm requeues no task of the arrays `which` any more: every outcome is final, and nobody needs to
    /// ask.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn close(folder: &JobDir, job: u64, trials: usize, which: &[u64]) -> Result<(), LedgerError> {
        let _lock = Self::lock(folder)?;
        let mut all = Self::load(folder, job, trials)?;
        let open = |array: &&mut SubmittedArray| array.requeue && which.contains(&array.id);
        let closed = all.arrays.iter_mut().filter(open).map(|array| array.requeue = false).count();
        if closed > 0 { all.save(folder) } else { Ok(()) }
    }

    /// A lock for reading the file, changing it and writing it again: of two processes at once, one would lose its
    /// change.
    ///
    /// # Errors
    /// The folder cannot be written to, or its file system has no locks.
    pub fn lock(folder: &JobDir) -> Result<Flock<std::fs::File>, LedgerError> {
        let path = folder.path().join(".arrays.lock");
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(LedgerError::io("create", &path))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| LedgerError::io("lock", &path)(e.into()))
    }

    /// The task that makes the newest attempt of each of `trials` trials; `None` for a trial that no array has.
    pub fn newest_tasks(&self, trials: usize) -> Vec<Option<TrialTask>> {
        let mut tasks = vec![None; trials];
        for array in &self.arrays {
            for (task, trials) in &array.tasks {
                for TaskTrial(trial, attempt) in trials {
                    if let Some(newest) = tasks.get_mut(*trial as usize) {
                        *newest =
                            Some(TrialTask { array: array.id, task: *task, attempt: *attempt, requeue: array.requeue });
                    }
                }
            }
        }
        tasks
    }

    /// The tasks that run each of `trials` trials.
    pub fn tasks_of_trials(&self, trials: usize) -> Vec<TasksOfTrial<'_>> {
        let mut found = vec![TasksOfTrial::default(); trials];
        for array in &self.arrays {
            for (task, trials) in &array.tasks {
                for TaskTrial(trial, attempt) in trials {
                    if let Some(TasksOfTrial(list)) = found.get_mut(*trial as usize) {
                        list.push((array, *task, *attempt));
                    }
                }
            }
        }
        found
    }

    /// The array with the newest attempt of a trial.
    pub fn newest(&self, trial: u32) -> Option<&SubmittedArray> {
        self.arrays.iter().rev().find(|array| array.tasks.values().flatten().any(|entry| entry.0 == trial))
    }

    /// The trials of a task.
    pub fn trials_of_task(&self, array: u64, task: u32) -> Option<&[TaskTrial]> {
        let array = self.arrays.iter().find(|a| a.id == array)?;
        array.tasks.get(&task).map(Vec::as_slice)
    }

    /// The file that the task with the newest attempt of each of `trials` trials prints to; `None` for a trial that no array has. Trials of
    /// one task share a file. The files need not exist.
    pub fn script_logs(&self, folder: &JobDir, trials: usize) -> Vec<Option<PathBuf>> {
        let tasks = self.newest_tasks(trials).into_iter();
        tasks.map(|task| Some(folder.path().join(task?.log()))).collect()
    }

    /// Ids of everything that was submitted for this job, in that order.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.build.into_iter().chain(self.arrays.iter().map(|a| a.id)).chain(self.note)
    }
}

fn arrays_path(folder: &JobDir) -> PathBuf {
    folder.path().join("arrays.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(id: u64, tasks: &[(u32, &[(u32, u32)])]) -> SubmittedArray {
        let turns = |turns: &[(u32, u32)]| turns.iter().map(|(t, a)| TaskTrial(*t, *a)).collect();
        let tasks = tasks.iter().map(|(task, list)| (*task, turns(list))).collect();
        SubmittedArray { id, script: "batch.sh".to_owned(), tasks, ..SubmittedArray::default() }
    }

    #[test]
    fn single_trials_are_read_without_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobDir::new(dir.path());
        // No trial of this file is whole, which matters only where one is asked for.
        let text = r#"{"schema": 1, "job": 7, "config": "c", "trials": [{"id": "a"}, {"id": "b"}]}"#;
        std::fs::write(folder.record_path(), text).unwrap();
        let read = RecordedTrials::read(&folder).unwrap();
        assert_eq!((read.job, read.count()), (7, 2));
        assert!(read.trial(&folder, 2).unwrap().is_none());
        let message = read.trial(&folder, 1).unwrap_err().to_string();
        assert!(message.contains("job.json"), "{message}");
        std::fs::write(folder.record_path(), text.replace("\"schema\": 1", "\"schema\": 99")).unwrap();
        assert!(matches!(RecordedTrials::read(&folder), Err(LedgerError::Newer { found: 99, .. })));
    }

    #[test]
    fn variants_are_read_without_the_settings_of_their_trials() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobDir::new(dir.path());
        // None of these trials could be read as one.
        let trials = ["b", "a", "b"].map(|variant| format!(r#"{{"variant": "{variant}", "settings": [1, {{}}]}}"#));
        let text = format!(r#"{{"schema": 1, "job": 7, "config": "c", "trials": [{}]}}"#, trials.join(","));
        std::fs::write(folder.record_path(), &text).unwrap();
        let read = JobVariants::read(&folder).unwrap();
        assert_eq!((read.config.as_str(), read.variants()), ("c", vec!["b", "a"]));
        std::fs::write(folder.record_path(), text.replace("\"schema\": 1", "\"schema\": 99")).unwrap();
        assert!(matches!(JobVariants::read(&folder), Err(LedgerError::Newer { found: 99, .. })));
    }

    #[test]
    fn the_newest_task_of_a_trial_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobDir::new(dir.path());
        let shown = |arrays: &JobArrays| -> Vec<(String, u32)> {
            arrays.newest_tasks(4).into_iter().flatten().map(|p| (p.name(), p.attempt)).collect()
        };
        let text =
            |list: &[(&str, u32)]| -> Vec<(String, u32)> { list.iter().map(|(n, a)| ((*n).to_owned(), *a)).collect() };
        let plain = JobArrays::load(&folder, 392, 4).unwrap();
        assert_eq!(shown(&plain), text(&[("392_0", 1), ("392_1", 1), ("392_2", 1), ("392_3", 1)]));
        let all = JobArrays {
            arrays: vec![
                array(392, &[(0, &[(0, 1), (2, 1)]), (1, &[(1, 1)])]),
                array(393, &[(0, &[(3, 1)])]),
                array(400, &[(1, &[(1, 2)]), (3, &[(3, 2)])]),
            ],
            ..JobArrays::default()
        };
        all.save(&folder).unwrap();
        let read = JobArrays::load(&folder, 392, 4).unwrap();
        assert_eq!(read, all);
        assert_eq!(shown(&read), text(&[("392_0", 1), ("400_1", 2), ("392_0", 1), ("400_3", 2)]));
        let tasks = read.tasks_of_trials(5);
        let made = |trial: usize, attempt| tasks[trial].that_made(attempt).map(|(array, task)| (array.id, task));
        assert_eq!([made(1, 1), made(1, 2), made(1, 3)], [Some((392, 1)), Some((400, 1)), Some((400, 1))]);
        assert_eq!([made(2, 2), made(3, 1), made(4, 1)], [Some((392, 0)), Some((393, 0)), None]);
        assert_eq!(read.trials_of_task(392, 0), Some(&[TaskTrial(0, 1), TaskTrial(2, 1)][..]));
        assert_eq!(read.trials_of_task(392, 7), None);
    }
}
