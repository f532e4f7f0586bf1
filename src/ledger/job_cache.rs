//! [`JobCache`]: what was made of the jobs of a ledger that have ended, so that a question about all jobs need not read each again.
//!
//! Invariants: the cache lies in the user's own cache folder, so looking writes nothing into a ledger, and nobody reads there what is private
//! in one. It is never trusted over the ledger: an entry counts only while the files that it was made of are as they were. A cache that is
//! damaged, or of another version, counts as empty; one that cannot be written is done without.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use expctl_ledger::JobDir;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job_files::{FilesOf, JobFiles};
use crate::project::Project;

/// Version of what is cached; another one counts as empty. What is made of a job may change with expctl.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/1");

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
    of: FilesOf,
    jobs: BTreeMap<String, CachedJob<T>>,
    /// By the name that [`JobCache::share`] gave.
    facts: BTreeMap<String, CachedFacts>,
    has_changed: bool,
}

/// A value, and the files that it was made of.
#[derive(Debug, Serialize, Deserialize)]
struct CachedJob<T> {
    files: JobFiles,
    value: T,
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

impl<T: CachedValue> JobCache<T> {
    /// The cache `name` of a project's ledger, of values that are made of the files `of` each job.
    pub fn open(project: &Project, name: &str, of: FilesOf) -> Self {
        let path = project.cache_home().map(|home| {
            let runs = project.runs().canonicalize().unwrap_or_else(|_| project.runs().to_owned());
            let ledger = blake3::hash(runs.as_os_str().as_encoded_bytes()).to_hex();
            home.join("ledgers").join(&ledger[..16]).join(format!("{name}.json"))
        });
        let text = path.as_ref().and_then(|path| std::fs::read(path).ok());
        let file: Option<CacheFile<T>> = text.and_then(|text| serde_json::from_slice(&text).ok());
        let file = file.filter(|file| file.version == VERSION);
        let (jobs, facts) = file.map(|file| (file.jobs, file.facts)).unwrap_or_default();
        Self { path, of, jobs, facts, has_changed: false }
    }

    /// The value of a job whose files are as they were.
    pub fn get(&self, folder: &JobDir) -> Option<&T> {
        let cached = self.jobs.get(&folder.name())?;
        cached.files.are_same(folder, self.of).then_some(&cached.value)
    }

    /// The value of a job whose `job.json` is as it was; other files may have changed.
    pub fn get_of_record(&self, folder: &JobDir) -> Option<&T> {
        let cached = self.jobs.get(&folder.name())?;
        cached.files.has_same_record(folder).then_some(&cached.value)
    }

    /// Keep facts, once, and give them a name.
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

    /// Keep a value of a job.
    pub fn insert(&mut self, folder: &JobDir, files: JobFiles, value: T) {
        self.jobs.insert(folder.name(), CachedJob { files, value });
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
        let written = serde_json::to_vec(&CacheText { version: VERSION, jobs: &self.jobs, facts: &self.facts })
            .map_err(|e| e.to_string())
            .and_then(|text| atomic_file::write_private(&path, &text).map_err(|e| e.to_string()));
        if let Err(why) = written {
            tracing::debug!("the next look takes longer: {why}");
        }
    }
}
