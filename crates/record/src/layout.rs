use std::path::{Path, PathBuf};

use crate::steps_file::read_table_totals;
use crate::{
    DataRead, Environment, HardwareSample, JobRecord, Outcome, RankExit, RankUsage, RecordError, ShuffleQuality,
    SlurmUsage, StepRecord, TRIAL_SCHEMA_VERSION, Trial,
};
use crate::{JournalTail, StepTotals, read_journal, read_sample_journal, read_samples, read_steps, write_json};

/// The folder of one job in the ledger: `results/runs/<job>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDir(PathBuf);

impl JobDir {
    /// The folder `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `job.json`.
    pub fn record_path(&self) -> PathBuf {
        self.0.join("job.json")
    }

    /// Read `job.json`.
    pub fn record(&self) -> Result<JobRecord, RecordError> {
        let path = self.record_path();
        let record: JobRecord = read_json(&path)?;
        known_schema(&path, record.schema)?;
        Ok(record)
    }

    /// Folder of one trial.
    pub fn trial_dir(&self, trial: &str) -> PathBuf {
        self.0.join(trial)
    }

    /// Attempts of a trial that exist on disk, oldest first.
    pub fn attempts(&self, trial: &str) -> Result<Vec<AttemptDir>, RecordError> {
        let folder = self.trial_dir(trial);
        let mut found = Vec::new();
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            Err(e) => return Err(RecordError::io("read", &folder)(e)),
        };
        for entry in entries {
            let entry = entry.map_err(RecordError::io("read", &folder))?;
            let name = entry.file_name();
            if let Some(n) = name.to_str().and_then(|n| n.strip_prefix("attempt-")).and_then(|n| n.parse().ok()) {
                found.push(AttemptDir { path: entry.path(), number: n });
            }
        }
        found.sort_by_key(|a| a.number);
        Ok(found)
    }

    /// Create the next attempt of a trial. Creating the folder takes the number: two stagers never share one.
    pub fn next_attempt(&self, trial: &str) -> Result<AttemptDir, RecordError> {
        let mut number = self.attempts(trial)?.last().map_or(1, |a| a.number + 1);
        loop {
            match self.new_attempt(trial, number)? {
                Some(attempt) => return Ok(attempt),
                None => number += 1,
            }
        }
    }

    /// Create attempt `number` of a trial; none if it is there already.
    pub fn new_attempt(&self, trial: &str, number: u32) -> Result<Option<AttemptDir>, RecordError> {
        let folder = self.trial_dir(trial);
        std::fs::create_dir_all(&folder).map_err(RecordError::io("create", &folder))?;
        let path = folder.join(format!("attempt-{number}"));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Some(AttemptDir { path, number })),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(None),
            Err(e) => Err(RecordError::io("create", &path)(e)),
        }
    }
}

/// The folder of one attempt: `results/runs/<job>/<trial>/attempt-<n>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptDir {
    path: PathBuf,
    number: u32,
}

impl AttemptDir {
    /// The attempt folder at `path`; its number is read off the name.
    pub fn open(path: &Path) -> Self {
        let number = path
            .file_name()
            .and_then(|n| n.to_str())
            .and_then(|n| n.strip_prefix("attempt-"))
            .and_then(|n| n.parse().ok())
            .unwrap_or(1);
        Self { path: path.to_owned(), number }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the attempt, from 1.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// `trial.json`: what the ranks were told.
    pub fn trial_path(&self) -> PathBuf {
        self.path.join("trial.json")
    }

    /// `env.json`: where they ran.
    pub fn environment_path(&self) -> PathBuf {
        self.path.join("env.json")
    }

    /// `data.json`: what they read.
    pub fn data_path(&self) -> PathBuf {
        self.path.join("data.json")
    }

    /// `shuffle.json`: how well the rows of its first epoch are shuffled.
    pub fn shuffle_path(&self) -> PathBuf {
        self.path.join("shuffle.json")
    }

    /// `learning.jsonl`: a line per epoch of a training run.
    pub fn learning_path(&self) -> PathBuf {
        self.path.join("learning.jsonl")
    }

    /// `outcome.json`: how it ended.
    pub fn outcome_path(&self) -> PathBuf {
        self.path.join("outcome.json")
    }

    /// `slurm.json`: what Slurm measured of it.
    pub fn slurm_path(&self) -> PathBuf {
        self.path.join("slurm.json")
    }

    /// `rank-<r>.parquet`: the steps of a rank.
    pub fn steps_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.parquet"))
    }

    /// `rank-<r>.journal.jsonl`: the steps of a rank that is still running or was killed.
    pub fn journal_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.journal.jsonl"))
    }

    /// `rank-<r>.exit.json`: a rank's own last words, until they are part of `outcome.json`.
    pub fn exit_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.exit.json"))
    }

    /// `rank-<r>.usage.json`: the memory of a rank, and what it fetched from servers.
    pub fn usage_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.usage.json"))
    }

    /// `rank-<r>.samples.parquet`: what the rank and its GPU took, sample by sample.
    pub fn samples_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.samples.parquet"))
    }

    /// `rank-<r>.samples.jsonl`: the same while the rank runs, or after it was killed.
    pub fn sample_journal_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.samples.jsonl"))
    }

    /// `rank-<r>.log`: what the rank printed.
    pub fn log_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.log"))
    }

    /// `trace-<rank>-<cycle>.json.gz`: what the profiler recorded of a rank in one of its windows.
    pub fn trace_path(&self, rank: u32, cycle: u64) -> PathBuf {
        self.path.join(format!("trace-{rank}-{cycle}.json.gz"))
    }

    /// Read `trial.json`.
    pub fn trial(&self) -> Result<Trial, RecordError> {
        let path = self.trial_path();
        let trial: Trial = read_json(&path)?;
        known_schema(&path, trial.schema)?;
        Ok(trial)
    }

    /// Read `env.json`, if it was written.
    pub fn environment(&self) -> Result<Option<Environment>, RecordError> {
        read_optional(&self.environment_path())
    }

    /// Read `data.json`, if the loader was set up.
    pub fn data_read(&self) -> Result<Option<DataRead>, RecordError> {
        read_optional(&self.data_path())
    }

    /// Read `shuffle.json`, if rows of an array were shuffled.
    pub fn shuffle(&self) -> Result<Option<ShuffleQuality>, RecordError> {
        read_optional(&self.shuffle_path())
    }

    /// Read `outcome.json`, if the attempt has ended.
    pub fn outcome(&self) -> Result<Option<Outcome>, RecordError> {
        read_optional(&self.outcome_path())
    }

    /// Read `slurm.json`, if Slurm was asked about the attempt.
    pub fn slurm_usage(&self) -> Result<Option<SlurmUsage>, RecordError> {
        read_optional(&self.slurm_path())
    }

    /// Read `rank-<r>.usage.json`, if the rank did its last step.
    pub fn usage(&self, rank: u32) -> Result<Option<RankUsage>, RecordError> {
        read_optional(&self.usage_path(rank))
    }

    /// Whether the attempt has an outcome. A rank that still runs then was out of reach when its node was given up: its steps
    /// are kept as far as they were known, and what it would write now could harm the next attempt.
    pub fn is_closed(&self) -> bool {
        self.outcome_path().exists()
    }

    /// Read a rank's last words, if it left any.
    pub fn rank_exit(&self, rank: u32) -> Result<Option<RankExit>, RecordError> {
        read_optional(&self.exit_path(rank))
    }

    /// Steps of a rank, from its table or, where that was never written, from its journal.
    pub fn steps(&self, rank: u32) -> Result<Vec<StepRecord>, RecordError> {
        let table = self.steps_path(rank);
        if table.exists() { Ok(read_steps(&table)?.steps) } else { read_journal(&self.journal_path(rank)) }
    }

    /// Hardware samples of a rank, from their table or, where that was not written, from the journal; empty without any.
    pub fn samples(&self, rank: u32) -> Result<Vec<HardwareSample>, RecordError> {
        let table = self.samples_path(rank);
        if table.exists() { read_samples(&table) } else { read_sample_journal(&self.sample_journal_path(rank)) }
    }

    /// Totals of a rank's steps: of all in its table or, while there is none, of those in the last 64 KiB of its journal
    /// (some hundred). The cost does not grow with the steps of a trial that runs.
    ///
    /// # Errors
    /// A file cannot be read, or is no table.
    pub fn totals(&self, rank: u32) -> Result<StepTotals, RecordError> {
        const GLANCE: u64 = 64 * 1024;
        let table = self.steps_path(rank);
        if table.exists() {
            return read_table_totals(&table);
        }
        let mut steps = Vec::new();
        match JournalTail::near_end(&self.journal_path(rank), GLANCE)?.read_new(&mut steps) {
            // What stands behind a damaged line cannot be trusted.
            Ok(()) | Err(RecordError::Json { .. }) => Ok(StepTotals::of(&steps)),
            Err(e) => Err(e),
        }
    }
}

/// Where the ranks of an attempt find each other: rank 0 writes `<host>:<port>` of its store.
///
/// The port is chosen by the kernel, so two trials on one node never share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RendezvousFile(PathBuf);

impl RendezvousFile {
    /// The rendezvous file of an attempt.
    pub fn of(attempt: &AttemptDir) -> Self {
        Self(attempt.path.join("rendezvous"))
    }

    /// Publish the address, for rank 0.
    pub fn publish(&self, host: &str, port: u16) -> Result<(), RecordError> {
        crate::write_atomic(&self.0, format!("{host}:{port}").as_bytes())
    }

    /// The address, once published.
    pub fn lookup(&self) -> Option<(String, u16)> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let (host, port) = text.trim().rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    }

    /// Remove the file, when the job no longer listens.
    pub fn clear(&self) {
        // Best effort: a stale address only costs a later reader one refused connection.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, RecordError> {
    let text = std::fs::read(path).map_err(RecordError::io("read", path))?;
    serde_json::from_slice(&text).map_err(|source| RecordError::Json { path: path.to_owned(), source })
}

/// What a newer expctl wrote may mean something else: better not read than misread.
fn known_schema(path: &Path, found: u32) -> Result<(), RecordError> {
    let known = TRIAL_SCHEMA_VERSION;
    if found > known { Err(RecordError::Newer { path: path.to_owned(), found, known }) } else { Ok(()) }
}

fn read_optional<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, RecordError> {
    match read_json(path) {
        Err(RecordError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

impl Outcome {
    /// Write `outcome.json` of an attempt.
    pub fn save(&self, attempt: &AttemptDir) -> Result<(), RecordError> {
        write_json(&attempt.outcome_path(), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::file;

    const JOB: &str = r#"{"schema": 1, "job": 7, "backend": "local", "config": "c", "study": "s", "config_path": "c.toml",
        "overrides": [], "submitted": 0, "commit": null, "expctl_version": "0.1.0", "baseline": null, "trials": [],
        "a_key_of_a_later_version": true}"#;

    #[test]
    fn what_a_later_version_adds_is_ignored_and_a_later_schema_refused() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path().join("7"));
        file(&job.record_path(), JOB);
        assert_eq!(job.record().unwrap().job, 7);
        file(&job.record_path(), &JOB.replace("\"schema\": 1", "\"schema\": 99"));
        let message = job.record().unwrap_err().to_string();
        assert!(message.contains("job.json has schema version 99"), "{message}");
    }

    #[test]
    fn attempts_are_numbered_and_never_shared() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path());
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let job = job.clone();
                std::thread::spawn(move || job.next_attempt("t").unwrap().number())
            })
            .collect();
        let mut numbers: Vec<u32> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
        assert_eq!(job.attempts("t").unwrap().last().unwrap().number(), 8);
    }
}
