use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Estimator, Trial};

/// `job.json`: what was submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// [`TRIAL_SCHEMA_VERSION`](crate::TRIAL_SCHEMA_VERSION).
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
    /// The trials, in the order of array tasks.
    pub trials: Vec<Trial>,
}

impl JobRecord {
    /// Whether Slurm runs it, however it was submitted.
    pub fn on_slurm(&self) -> bool {
        matches!(self.backend.as_str(), "slurm" | "slurmrest")
    }
}
