//! Folders and files of the ledger: where they are, and reading and writing of those that are JSON.

use std::fs::Permissions;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use expctl_settings::{Readers, TRIAL_SCHEMA_VERSION, Trial};

use crate::steps_table::{read_step_times, read_table_totals};
use crate::{
    DataRead, Environment, HardwareSample, JobHead, JobRecord, JournalTail, LedgerError, Outcome, RankExit, RankUsage,
    ShuffleQuality, SlurmUsage, StepRecord, StepTotals, read_journal, read_sample_journal, read_samples, read_steps,
};

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

    /// Create the folder, for the user alone.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one; else the reason why it cannot be created.
    pub fn create(&self) -> std::io::Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(&self.0)
    }

    /// Let `readers` into the folder, whatever the umask; files in it have permissions of their own.
    ///
    /// # Errors
    /// The permissions cannot be read or changed.
    pub fn admit(&self, readers: Readers) -> std::io::Result<()> {
        let mode = match readers {
            Readers::User => 0o700,
            Readers::Group => 0o750,
            Readers::All => 0o755,
        };
        // Folders that pass on their group go on doing so.
        let passes_on_group = std::fs::metadata(&self.0)?.permissions().mode() & 0o2000;
        std::fs::set_permissions(&self.0, Permissions::from_mode(mode | passes_on_group))
    }

    /// Whether the folder is another user's.
    pub fn is_of_another_user(&self) -> bool {
        std::fs::metadata(&self.0).is_ok_and(|folder| folder.uid() != nix::unistd::geteuid().as_raw())
    }

    /// Its last part: the number of the job.
    pub fn name(&self) -> String {
        self.0.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// `job.json`.
    pub fn record_path(&self) -> PathBuf {
        self.0.join("job.json")
    }

    /// Read `job.json`.
    pub fn record(&self) -> Result<JobRecord, LedgerError> {
        let path = self.record_path();
        let record: JobRecord = read_json(&path)?;
        known_schema(&path, record.schema, TRIAL_SCHEMA_VERSION)?;
        Ok(record)
    }

    /// Read `job.json` without its trials.
    pub fn head(&self) -> Result<JobHead, LedgerError> {
        let path = self.record_path();
        let head: JobHead = read_json(&path)?;
        known_schema(&path, head.schema, TRIAL_SCHEMA_VERSION)?;
        Ok(head)
    }

    /// Folder of one trial.
    pub fn trial_dir(&self, trial: &str) -> PathBuf {
        self.0.join(trial)
    }

    /// Attempts of a trial, oldest first.
    pub fn attempts(&self, trial: &str) -> Result<Vec<AttemptDir>, LedgerError> {
        let folder = self.trial_dir(trial);
        let mut found = Vec::new();
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            Err(e) => return Err(LedgerError::io("read", &folder)(e)),
        };
        for entry in entries {
            let entry = entry.map_err(LedgerError::io("read", &folder))?;
            let name = entry.file_name();
            if let Some(n) = name.to_str().and_then(|n| n.strip_prefix("attempt-")).and_then(|n| n.parse().ok()) {
                found.push(AttemptDir { path: entry.path(), number: n });
            }
        }
        found.sort_by_key(|a| a.number);
        Ok(found)
    }

    /// Create the next attempt of a trial. Creating the folder reserves the number, so two processes never share one.
    pub fn next_attempt(&self, trial: &str) -> Result<AttemptDir, LedgerError> {
        let mut number = self.attempts(trial)?.last().map_or(1, |a| a.number + 1);
        loop {
            match self.new_attempt(trial, number)? {
                Some(attempt) => return Ok(attempt),
                None => number += 1,
            }
        }
    }

    /// Create attempt `number` of a trial. `None`: it exists already.
    pub fn new_attempt(&self, trial: &str, number: u32) -> Result<Option<AttemptDir>, LedgerError> {
        let folder = self.trial_dir(trial);
        std::fs::create_dir_all(&folder).map_err(LedgerError::io("create", &folder))?;
        let path = folder.join(format!("attempt-{number}"));
        match std::fs::create_dir(&path) {
            Ok(()) => Ok(Some(AttemptDir { path, number })),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(None),
            Err(e) => Err(LedgerError::io("create", &path)(e)),
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

    /// `trial.json`: the trial, for its ranks.
    pub fn trial_path(&self) -> PathBuf {
        self.path.join("trial.json")
    }

    /// `env.json`: the environment of the ranks.
    pub fn environment_path(&self) -> PathBuf {
        self.path.join("env.json")
    }

    /// `data.json`: the data that the ranks read.
    pub fn data_path(&self) -> PathBuf {
        self.path.join("data.json")
    }

    /// `shuffle.json`: how well the rows of the first epoch are shuffled.
    pub fn shuffle_path(&self) -> PathBuf {
        self.path.join("shuffle.json")
    }

    /// `learning.jsonl`: a line per epoch of a training run.
    pub fn learning_path(&self) -> PathBuf {
        self.path.join("learning.jsonl")
    }

    /// `outcome.json`: how the attempt ended.
    pub fn outcome_path(&self) -> PathBuf {
        self.path.join("outcome.json")
    }

    /// `closing`: empty; its journals are being read for `outcome.json`, after which it is removed.
    pub fn closing_path(&self) -> PathBuf {
        self.path.join("closing")
    }

    /// `slurm.json`: Slurm's own measurements.
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

    /// `rank-<r>.exit.json`: the last words of a rank, until they are part of `outcome.json`.
    pub fn exit_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.exit.json"))
    }

    /// `rank-<r>.usage.json`: memory of a rank, and requests to servers.
    pub fn usage_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.usage.json"))
    }

    /// `rank-<r>.samples.parquet`: hardware samples of a rank.
    pub fn samples_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.samples.parquet"))
    }

    /// `rank-<r>.samples.jsonl`: hardware samples of a rank that still runs or was killed.
    pub fn sample_journal_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.samples.jsonl"))
    }

    /// `rank-<r>.log`: output of a rank.
    pub fn log_path(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank}.log"))
    }

    /// `trace-<rank>-<cycle>.json.gz`: the profiler's trace of a rank in one of its windows.
    pub fn trace_path(&self, rank: u32, cycle: u64) -> PathBuf {
        self.path.join(format!("trace-{rank}-{cycle}.json.gz"))
    }

    /// Read `trial.json`.
    pub fn trial(&self) -> Result<Trial, LedgerError> {
        let path = self.trial_path();
        let trial: Trial = read_json(&path)?;
        known_schema(&path, trial.schema, TRIAL_SCHEMA_VERSION)?;
        Ok(trial)
    }

    /// Read `trial.json`, if it was written.
    pub(crate) fn own_trial(&self) -> Result<Option<Trial>, LedgerError> {
        match self.trial() {
            Err(LedgerError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Start of the attempt, seconds since the epoch: when its `trial.json` was written; now, if it has none.
    pub fn started(&self) -> i64 {
        modified(&self.trial_path()).unwrap_or_else(|| seconds(SystemTime::now()))
    }

    /// Start of its ranks, seconds since the epoch: when rank 0 wrote `env.json`. Without that file, and for the user's own program, which
    /// writes it at its end, the start of the attempt.
    pub fn ranks_started(&self) -> i64 {
        let is_program = || self.trial().is_ok_and(|trial| trial.settings.runs_command());
        modified(&self.environment_path()).filter(|_| !is_program()).unwrap_or_else(|| self.started())
    }

    /// Read `env.json`, if it was written.
    pub fn environment(&self) -> Result<Option<Environment>, LedgerError> {
        read_optional(&self.environment_path())
    }

    /// Read `data.json`, if the loader was set up.
    pub fn data_read(&self) -> Result<Option<DataRead>, LedgerError> {
        read_optional(&self.data_path())
    }

    /// Read `shuffle.json`, if rows of an array were shuffled.
    pub fn shuffle(&self) -> Result<Option<ShuffleQuality>, LedgerError> {
        read_optional(&self.shuffle_path())
    }

    /// Read `outcome.json`, if the attempt has ended.
    pub fn outcome(&self) -> Result<Option<Outcome>, LedgerError> {
        read_optional(&self.outcome_path())
    }

    /// Read `slurm.json`, if Slurm was asked about the attempt.
    pub fn slurm_usage(&self) -> Result<Option<SlurmUsage>, LedgerError> {
        read_optional(&self.slurm_path())
    }

    /// Read `rank-<r>.usage.json`, if the rank did its last step.
    pub fn usage(&self, rank: u32) -> Result<Option<RankUsage>, LedgerError> {
        read_optional(&self.usage_path(rank))
    }

    /// Announce that the journals are about to be read for the outcome: from now on [`AttemptDir::is_closed`] is true.
    ///
    /// Before the first journal is read. A rank that still runs looks at [`AttemptDir::is_closed`] after it has recorded a step and before it
    /// writes a checkpoint behind it: so the steps in front of any checkpoint that it still writes are in the journals when they are read.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin_closing(&self) -> Result<(), LedgerError> {
        write_atomic(&self.closing_path(), b"")
    }

    /// The outcome is written: the file of [`AttemptDir::begin_closing`] says nothing more.
    pub fn end_closing(&self) {
        // One that stays is only clutter.
        let _ = std::fs::remove_file(self.closing_path());
    }

    /// Whether the attempt has an outcome, or another process is about to write it. A rank that still runs then was unreachable when its node
    /// was given up. Its steps are kept as far as they were known, and files that it would write now could harm the next attempt.
    pub fn is_closed(&self) -> bool {
        // In this order: the outcome is written before the other file is removed.
        self.closing_path().exists() || self.outcome_path().exists()
    }

    /// Read the last words of a rank, if it left any.
    pub fn rank_exit(&self, rank: u32) -> Result<Option<RankExit>, LedgerError> {
        read_optional(&self.exit_path(rank))
    }

    /// Read the steps of a rank, from its table or, if that was never written, from its journal.
    pub fn steps(&self, rank: u32) -> Result<Vec<StepRecord>, LedgerError> {
        let table = self.steps_path(rank);
        if table.exists() { Ok(read_steps(&table)?.steps) } else { read_journal(&self.journal_path(rank)) }
    }

    /// [`AttemptDir::steps`] without what a step did in its time: no stages, bytes or losses.
    pub fn step_times(&self, rank: u32) -> Result<Vec<StepRecord>, LedgerError> {
        let table = self.steps_path(rank);
        if table.exists() { read_step_times(&table) } else { read_journal(&self.journal_path(rank)) }
    }

    /// Read the hardware samples of a rank, from their table or, if that was not written, from their journal; empty without either.
    pub fn samples(&self, rank: u32) -> Result<Vec<HardwareSample>, LedgerError> {
        let table = self.samples_path(rank);
        if table.exists() { read_samples(&table) } else { read_sample_journal(&self.sample_journal_path(rank)) }
    }

    /// Totals over the steps of a rank: all steps of its table or, while there is none, those in the last 64 KiB of its journal (some
    /// hundred). The cost does not grow with the steps of a running trial.
    ///
    /// # Errors
    /// A file cannot be read, or is no table.
    pub fn totals(&self, rank: u32) -> Result<StepTotals, LedgerError> {
        const TAIL_BYTES: u64 = 64 * 1024;
        let table = self.steps_path(rank);
        if table.exists() {
            return read_table_totals(&table);
        }
        let mut steps = Vec::new();
        match JournalTail::near_end(&self.journal_path(rank), TAIL_BYTES)?.read_new(&mut steps) {
            // Lines behind a damaged one cannot be trusted.
            Ok(()) | Err(LedgerError::Json { .. }) => Ok(StepTotals::from_steps(&steps)),
            Err(e) => Err(e),
        }
    }
}

/// When a file was last written, seconds since the epoch; `None` if it is not there.
fn modified(path: &Path) -> Option<i64> {
    path.metadata().and_then(|file| file.modified()).ok().map(seconds)
}

/// Seconds since the epoch.
fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).ok().and_then(|age| i64::try_from(age.as_secs()).ok()).unwrap_or_default()
}

/// Write a file so that readers see either the old content or the whole new one. Missing folders are created.
///
/// # Errors
/// The folder cannot be created, or the file not written.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<(), LedgerError> {
    Ok(atomic_file::write(path, content)?)
}

/// [`write_atomic`] of `value` as indented JSON.
///
/// # Errors
/// The folder cannot be created, or the file not written.
pub fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> Result<(), LedgerError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(LedgerError::json(path))?;
    text.push(b'\n');
    write_atomic(path, &text)
}

/// Read a file of JSON.
///
/// # Errors
/// It cannot be read, or has another form.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, LedgerError> {
    let text = std::fs::read(path).map_err(LedgerError::io("read", path))?;
    serde_json::from_slice(&text).map_err(LedgerError::json(path))
}

/// [`read_json`]. `None`: the file does not exist.
pub(crate) fn read_optional<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, LedgerError> {
    match read_json(path) {
        Err(LedgerError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Refuse a file of a later schema: a newer expctl may mean something else by the same keys.
pub(crate) fn known_schema(path: &Path, found: u32, known: u32) -> Result<(), LedgerError> {
    if found > known { Err(LedgerError::Newer { path: path.to_owned(), found, known }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    const JOB: &str = r#"{"schema": 1, "job": 7, "backend": "local", "config": "c", "study": "s", "config_path": "c.toml",
        "overrides": [], "submitted": 0, "commit": null, "expctl_version": "0.1.0", "baseline": null, "trials": [],
        "a_key_of_a_later_version": true}"#;

    #[test]
    fn what_a_later_version_adds_is_ignored_and_a_later_schema_refused() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path().join("7"));
        file(&job.record_path(), JOB);
        assert_eq!(job.record().unwrap().job, 7);
        assert_eq!(job.head().unwrap().config, "c");
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
