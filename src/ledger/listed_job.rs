//! [`ListedJob`]: a job as lists of all jobs show it, without its trials.

use std::collections::BTreeMap;

use expctl_ledger::AttemptState;
use serde::{Deserialize, Serialize};

use super::job_cache::{CachedValue, JobCache};
use super::job_files::FilesOf;
use crate::project::Project;

/// A job, with the states of its trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedJob {
    /// Its number.
    pub job: u64,
    /// Name of its config.
    pub config: String,
    /// Folder of its study.
    pub study: String,
    /// Title of its experiment; empty without trials.
    pub title: String,
    /// "slurm", "slurmrest" or "local".
    pub backend: String,
    /// Submitted, seconds since the epoch.
    pub submitted: i64,
    /// Names of its variants, in the order of their first trials.
    pub variants: Vec<String>,
    /// Number of its trials in each state that occurs.
    pub states: BTreeMap<AttemptState, usize>,
    /// When the newest outcome of its trials was written, ns since 1970; 0 without one.
    pub newest_outcome_ns: u64,
}

impl CachedValue for ListedJob {}

impl ListedJob {
    /// The cache of the jobs of a project's ledger that have ended.
    pub fn cache(project: &Project) -> JobCache<Self> {
        JobCache::open(project, "jobs", FilesOf::Outcomes)
    }

    /// The states in words: `2 completed, 1 running`.
    pub fn summary(&self) -> String {
        state_words(&self.states)
    }

    /// Whether something runs a trial of the job or will, or may do so.
    pub fn is_active(&self) -> bool {
        self.states.keys().any(|state| state.is_active())
    }

    /// Trials in a state.
    pub fn trials_in(&self, state: AttemptState) -> usize {
        self.states.get(&state).copied().unwrap_or_default()
    }

    /// Its trials.
    pub fn trials(&self) -> usize {
        self.states.values().sum()
    }
}

/// Numbers of trials by state in words: `2 completed, 1 running`.
pub fn state_words(states: &BTreeMap<AttemptState, usize>) -> String {
    let words: Vec<String> = states.iter().map(|(state, n)| format!("{n} {}", state.name())).collect();
    words.join(", ")
}
