//! [`JobCache`]: what was computed from the jobs of a ledger that have ended, so that a question about all jobs need not read each again.
//!
//! Invariants: the cache lies in the user's own cache folder, so a question writes nothing into a ledger, and nobody reads there what is private
//! in one. It is never trusted over the ledger: an entry counts only while the files that it was computed from are as they were. It counts from
//! a second reading on, before and after which the files were the same: the times of files are those of the file server, whose clock may be
//! behind or ahead of this machine's, so one reading cannot tell whether a file changed meanwhile. A cache that is damaged, or of another build
//! of expctl, counts as empty; one that cannot be written is done without.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use expctl_ledger::JobDir;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job_files::{FilesOf, JobFiles};
use crate::program::build_identity;
use crate::project::Project;

/// Version of the format of the file.
const FORMAT: &str = "2";

/// Facts by key, as settings and environment of a job.
pub type CachedFacts = BTreeMap<String, String>;

/// A value of a job. Facts that are the same for many jobs are in the cache once, and the value has their names.
pub trait CachedValue: Serialize + DeserializeOwned {
    /// The names of the facts that it needs.
    fn facts(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// Values by the names of the folders of jobs.
#[derive(Debug)]
pub struct JobCache<T> {
    /// The file; `None` without a cache folder.
    path: Option<PathBuf>,
    /// That of the file; a file of another one counts as empty.
    version: String,
    of: FilesOf,
    jobs: BTreeMap<String, CachedJob<T>>,
    /// By the name that [`JobCache::share`] gave.
    facts: BTreeMap<String, CachedFacts>,
    has_changed: bool,
}

/// A value, and the files that it was computed from.
#[derive(Debug, Serialize, Deserialize)]
struct CachedJob<T> {
    files: JobFiles,
    value: T,
    /// Whether the files were the same before they were read as after.
    confirmed: bool,
}

/// The file.
#[derive(Deserialize)]
struct CacheFile<T> {
    version: String,
    jobs: BTreeMap<String, CachedJob<T>>,
    facts: BTreeMap<String, CachedFacts>,
}

/// The file, to be written.
#[derive(Serialize)]
struct CacheText<'a, T> {
    version: &'a str,
    jobs: &'a BTreeMap<String, CachedJob<T>>,
    facts: &'a BTreeMap<String, CachedFacts>,
}

/// What is computed from a job may change with each build of expctl.
fn version() -> String {
    format!("{}/{FORMAT}", build_identity())
}

impl<T: CachedValue> JobCache<T> {
    /// The cache `name` of a project's ledger, of values that are computed from the files `of` each job.
    pub fn open(project: &Project, name: &str, of: FilesOf) -> Self {
        let path = project.cache_home().map(|home| {
            let runs = project.runs().canonicalize().unwrap_or_else(|_| project.runs().to_owned());
            let ledger = blake3::hash(runs.as_os_str().as_encoded_bytes()).to_hex();
            home.join("ledgers").join(&ledger[..16]).join(format!("{name}.json"))
        });
        let version = version();
        let text = path.as_ref().and_then(|path| std::fs::read(path).ok());
        let file: Option<CacheFile<T>> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let file = file.filter(|file| file.version == version);
        let (jobs, facts) = file.map(|file| (file.jobs, file.facts)).unwrap_or_default();
        Self { path, version, of, jobs, facts, has_changed: false }
    }

    /// The value of a job whose files are as they were.
    pub fn get(&self, folder: &JobDir) -> Option<&T> {
        let cached = self.confirmed(folder)?;
        cached.files.are_same(folder, self.of).then_some(&cached.value)
    }

    /// The value of a job whose `job.json` is as it was; other files may have changed.
    pub fn get_of_record(&self, folder: &JobDir) -> Option<&T> {
        let cached = self.confirmed(folder)?;
        cached.files.has_same_record(folder).then_some(&cached.value)
    }

    fn confirmed(&self, folder: &JobDir) -> Option<&CachedJob<T>> {
        self.jobs.get(&folder.name()).filter(|cached| cached.confirmed)
    }

    /// The value of a job whose files are as they were, although it may have been read while they changed. To be asked before the files are
    /// read again.
    pub fn unconfirmed(&self, folder: &JobDir) -> Option<&T> {
        let cached = self.jobs.get(&folder.name())?;
        cached.files.are_same(folder, self.of).then_some(&cached.value)
    }

    /// Whether the files of a job that the cache has are as they were. To be asked before they are read again.
    pub fn is_unchanged(&self, folder: &JobDir) -> bool {
        self.unconfirmed(folder).is_some()
    }

    /// Store facts, once, and give them a name.
    pub fn share(&mut self, facts: &CachedFacts) -> String {
        let text: String = facts.iter().map(|(key, value)| format!("{key:?}={value:?},")).collect();
        let name = blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
        self.facts.entry(name.clone()).or_insert_with(|| facts.clone());
        name
    }

    /// The facts of a name.
    pub fn shared(&self, name: &str) -> Option<&CachedFacts> {
        self.facts.get(name)
    }

    /// Store a value of a job, with its files after they were read. `unchanged_before`: what [`JobCache::is_unchanged`] said before.
    pub fn insert(&mut self, folder: &JobDir, files: JobFiles, value: T, unchanged_before: bool) {
        let known = self.jobs.get(&folder.name());
        let confirmed = unchanged_before && known.is_some_and(|known| known.files == files);
        self.jobs.insert(folder.name(), CachedJob { files, value, confirmed });
        self.has_changed = true;
    }

    /// Forget all jobs but these, and write the file if anything has changed.
    pub fn save(mut self, folders: &[JobDir]) {
        let names: BTreeSet<String> = folders.iter().map(JobDir::name).collect();
        let before = self.jobs.len();
        self.jobs.retain(|name, _| names.contains(name));
        let Some(path) = self.path.filter(|_| self.has_changed || self.jobs.len() < before) else { return };
        let needed: BTreeSet<&str> = self.jobs.values().flat_map(|cached| cached.value.facts()).collect();
        self.facts.retain(|name, _| needed.contains(name.as_str()));
        let written = serde_json::to_vec(&CacheText { version: &self.version, jobs: &self.jobs, facts: &self.facts })
            .map_err(|e| e.to_string())
            .and_then(|text| atomic_file::write_private(&path, &text).map_err(|e| e.to_string()));
        if let Err(why) = written {
            tracing::debug!("the next question takes longer: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::job_files::TrialFiles;
    use super::*;

    impl CachedValue for u32 {}

    /// A cache without a file.
    fn cache() -> JobCache<u32> {
        let (jobs, facts) = (BTreeMap::new(), BTreeMap::new());
        JobCache { path: None, version: version(), of: FilesOf::Outcomes, jobs, facts, has_changed: false }
    }

    fn job() -> (tempfile::TempDir, JobDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(dir.path().join("7"));
        let outcome = job.next_attempt("ids-r1").unwrap().outcome_path();
        std::fs::write(job.record_path(), "1").unwrap();
        std::fs::write(&outcome, "1").unwrap();
        (dir, job, outcome)
    }

    /// Read the job, as a client does whose clock is a minute ahead of the file server's: files that change now seem to be old.
    fn read(cache: &mut JobCache<u32>, job: &JobDir, value: u32, meanwhile: impl FnOnce()) {
        let unchanged_before = cache.is_unchanged(job);
        let begun = SystemTime::now() + Duration::from_secs(60);
        meanwhile();
        let trials = vec![TrialFiles("ids-r1".to_owned(), 1, 1)];
        let files = JobFiles::settled(job, trials, FilesOf::Outcomes, begun).unwrap();
        cache.insert(job, files, value, unchanged_before);
    }

    #[test]
    fn a_value_counts_from_the_second_reading_on() {
        let (_dir, job, outcome) = job();
        let mut cache = cache();
        // The file changes after it was read, and nothing tells: the entry is that of the file before.
        read(&mut cache, &job, 1, || std::fs::write(&outcome, "22").unwrap());
        assert_eq!((cache.get(&job), cache.get_of_record(&job)), (None, None));
        assert!(cache.is_unchanged(&job));
        read(&mut cache, &job, 2, || ());
        assert_eq!((cache.get(&job), cache.get_of_record(&job)), (Some(&2), Some(&2)));
        std::fs::write(&outcome, "333").unwrap();
        assert_eq!((cache.get(&job), cache.get_of_record(&job)), (None, Some(&2)));
        // A reading of files that differ from those of the entry confirms nothing.
        read(&mut cache, &job, 3, || ());
        assert_eq!(cache.get(&job), None);
        read(&mut cache, &job, 3, || std::fs::write(&outcome, "4444").unwrap());
        assert_eq!(cache.get(&job), None);
    }
}
