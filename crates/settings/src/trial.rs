use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Estimator, Settings};

/// Version of `trial.json` and `job.json`.
pub const TRIAL_SCHEMA_VERSION: u32 = 1;

/// Ends the name of the config of a job that isolates the variants of another job; in front of it stands the name of that job's config.
pub const ISOLATION_SUFFIX: &str = "_isolation";

/// One run of one variant: all that the ranks need to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// [`TRIAL_SCHEMA_VERSION`].
    pub schema: u32,
    /// Stable identity: the same settings and repeat give the same id in every job.
    pub id: String,
    /// Name of the config.
    pub config: String,
    /// Name of the variant.
    pub variant: String,
    /// What the tables call it.
    pub method: String,
    /// The swept settings of this point, by dotted key.
    pub point: BTreeMap<String, serde_json::Value>,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Everything else, resolved.
    pub settings: Settings,
    /// Folder of the built data set, absolute.
    pub data_dir: PathBuf,
    /// Whether nothing said which model: `model.kind` is the one that the data's family has by default. False in records that are
    /// older than the field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_model: bool,
}

impl Trial {
    /// Label of the variant and its swept settings, without the repeat: rows of a table.
    pub fn label(&self) -> String {
        if self.point.is_empty() {
            return self.variant.clone();
        }
        let point: Vec<String> = self.point.iter().map(|(k, v)| format!("{k}={v}")).collect();
        format!("{} ({})", self.variant, point.join(", "))
    }
}

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
    /// The trials, in the order of array tasks.
    pub trials: Vec<Trial>,
}

impl JobRecord {
    /// Whether Slurm runs it, however it was submitted.
    pub fn on_slurm(&self) -> bool {
        matches!(self.backend.as_str(), "slurm" | "slurmrest")
    }
}
