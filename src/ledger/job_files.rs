//! [`JobFiles`]: the state of the files of a job that something was computed from, by which it is known whether one of them has changed since.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use expctl_ledger::{AttemptDir, JobDir};
use serde::{Deserialize, Serialize};

/// Time before a reading within which no file may have changed: a second change within the resolution of the times would not be seen. The clock
/// of a file server may differ by more, so [`JobCache`](super::JobCache) does not rest on this alone.
const SETTLED: Duration = Duration::from_millis(20);

/// The files that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesOf {
    /// Those that say where the trials stand: `job.json`, the last attempt of each trial and its `outcome.json`.
    Outcomes,
    /// Those that rates and environment rest on, too, of all attempts.
    Rates,
}

/// A trial whose files count: its id, the number of its last attempt, and its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFiles(pub String, pub u32, pub u32);

/// The state of the files of a job at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFiles {
    /// That of `job.json` alone.
    record: String,
    /// That of all that count.
    all: String,
    trials: Vec<TrialFiles>,
}

impl JobFiles {
    /// The state now, after a reading of the files that began at `begun`. `None`: one of them changed during it or just before it, as far as
    /// the clocks of this machine and of the file system agree.
    pub fn settled(folder: &JobDir, trials: Vec<TrialFiles>, of: FilesOf, begun: SystemTime) -> Option<Self> {
        let (all, newest_ns) = state(folder, &trials, of);
        let begun = begun.checked_sub(SETTLED)?.duration_since(UNIX_EPOCH).ok()?;
        let is_settled = u128::try_from(newest_ns).is_ok_and(|newest| newest < begun.as_nanos());
        is_settled.then(|| Self { record: record_state(folder), all, trials })
    }

    /// Whether all files that count are as they were.
    pub fn are_same(&self, folder: &JobDir, of: FilesOf) -> bool {
        state(folder, &self.trials, of).0 == self.all
    }

    /// Whether `job.json` is as it was.
    pub fn has_same_record(&self, folder: &JobDir) -> bool {
        record_state(folder) == self.record
    }
}

fn record_state(folder: &JobDir) -> String {
    let mut state = StateHasher::default();
    state.add(&folder.record_path());
    state.hex()
}

/// The state of the files that count, and the time of the newest change, ns since 1970.
fn state(folder: &JobDir, trials: &[TrialFiles], of: FilesOf) -> (String, i128) {
    let mut state = StateHasher::default();
    // A file that is replaced, as all of the launcher are, changes its folder.
    state.add(folder.path());
    state.add(&folder.record_path());
    if of == FilesOf::Rates {
        state.add(&folder.path().join("provenance.json"));
    }
    for TrialFiles(id, attempts, ranks) in trials {
        let trial = folder.trial_dir(id);
        state.add(&trial);
        let first = if of == FilesOf::Rates { 1 } else { *attempts };
        for number in (first..=*attempts).filter(|number| *number > 0) {
            let attempt = AttemptDir::open(&trial.join(format!("attempt-{number}")));
            state.add(&attempt.outcome_path());
            if of == FilesOf::Rates {
                state.add(attempt.path());
                state.add(&attempt.trial_path());
                state.add(&attempt.environment_path());
                (0..*ranks).for_each(|rank| state.add(&attempt.steps_path(rank)));
            }
        }
    }
    (state.hex(), state.newest_ns)
}

/// What the file system says of several files, as one hash.
#[derive(Default)]
struct StateHasher {
    hash: blake3::Hasher,
    newest_ns: i128,
}

impl StateHasher {
    /// Add a file or folder, which need not exist.
    fn add(&mut self, path: &Path) {
        let Ok(file) = std::fs::metadata(path) else {
            self.hash.update(b"none");
            return;
        };
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let changed = [ns(file.mtime(), file.mtime_nsec()), ns(file.ctime(), file.ctime_nsec())];
        self.newest_ns = changed.into_iter().fold(self.newest_ns, i128::max);
        self.hash.update(&file.ino().to_le_bytes());
        self.hash.update(&length(&file).to_le_bytes());
        for ns in changed {
            self.hash.update(&ns.to_le_bytes());
        }
    }

    fn hex(&self) -> String {
        self.hash.finalize().to_hex()[..32].to_owned()
    }
}

/// The length of a file. That of a folder says nothing and differs from one question to the next on some network file systems.
fn length(file: &Metadata) -> u64 {
    if file.is_dir() { 0 } else { file.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> (tempfile::TempDir, JobDir, AttemptDir) {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path().join("7"));
        let attempt = job.next_attempt("ids-r1").unwrap();
        for path in [job.record_path(), attempt.outcome_path(), attempt.steps_path(0)] {
            std::fs::write(path, "1").unwrap();
        }
        (dir, job, attempt)
    }

    fn settled(job: &JobDir, of: FilesOf, begun: SystemTime) -> Option<JobFiles> {
        JobFiles::settled(job, vec![TrialFiles("ids-r1".to_owned(), 1, 1)], of, begun)
    }

    /// When a reading begins that the files are old for.
    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(1)
    }

    #[test]
    fn a_change_of_what_counts_is_seen() {
        let (_dir, job, attempt) = job();
        let [outcomes, rates] = [FilesOf::Outcomes, FilesOf::Rates].map(|of| settled(&job, of, later()).unwrap());
        let same = || {
            (
                outcomes.are_same(&job, FilesOf::Outcomes),
                rates.are_same(&job, FilesOf::Rates),
                outcomes.has_same_record(&job),
            )
        };
        assert_eq!(same(), (true, true, true));
        // Steps do not say where a trial stands.
        std::fs::write(attempt.steps_path(0), "2").unwrap();
        assert_eq!(same(), (true, false, true));
        std::fs::write(attempt.outcome_path(), "2").unwrap();
        assert_eq!(same(), (false, false, true));
        std::fs::write(job.record_path(), "2").unwrap();
        assert_eq!(same(), (false, false, false));
    }

    #[test]
    fn another_attempt_is_seen() {
        let (_dir, job, _) = job();
        let files = settled(&job, FilesOf::Outcomes, later()).unwrap();
        job.next_attempt("ids-r1").unwrap();
        assert!(!files.are_same(&job, FilesOf::Outcomes));
    }

    #[test]
    fn what_changes_just_before_a_reading_is_not_settled() {
        let (_dir, job, _) = job();
        assert_eq!(settled(&job, FilesOf::Outcomes, SystemTime::now() - Duration::from_secs(1)), None);
    }
}
