//! Trials and jobs as they were submitted: `trial.json`, and `job.json` with all trials of a job.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Estimator, Settings};

/// Version of `trial.json` and `job.json`.
pub const TRIAL_SCHEMA_VERSION: u32 = 1;

/// End of the config name of a job that isolates the variants of another job. The name of that job's config stands before it.
pub const ISOLATION_SUFFIX: &str = "_isolation";

/// `trial.json`: one variant at one point in one repeat, with all that its ranks need.
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
    /// Name in tables.
    pub method: String,
    /// The swept settings of this point, by dotted key.
    pub point: BTreeMap<String, serde_json::Value>,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// All settings, resolved.
    pub settings: Settings,
    /// Folder of the built data set, absolute.
    pub data_dir: PathBuf,
    /// Whether `model.kind` is the default of the data's family because the config names no model. False in records that are older than the
    /// field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_model: bool,
}

impl Trial {
    /// Label of a row in tables: the variant and its swept settings, without the repeat.
    pub fn label(&self) -> String {
        if self.point.is_empty() {
            return self.variant.clone();
        }
        let point: Vec<String> = self.point.iter().map(|(k, v)| format!("{k}={v}")).collect();
        format!("{} ({})", self.variant, point.join(", "))
    }
}

/// `job.json`: a job as it was submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// [`TRIAL_SCHEMA_VERSION`].
    pub schema: u32,
    /// Job id, from Slurm or the local backend.
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
    /// Time of submission, seconds since the epoch.
    pub submitted: i64,
    /// Commit of the working tree, with `-dirty` if it had changes. `None`: not in a repository.
    pub commit: Option<String>,
    /// Version of expctl.
    pub expctl_version: String,
    /// Variant that ratios refer to.
    pub baseline: Option<String>,
    /// Published estimators of a rate that the note shows besides the right one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimators: Vec<Estimator>,
    /// The trials, in the order of array tasks.
    pub trials: Vec<Trial>,
}

impl JobRecord {
    /// Whether Slurm runs the job, through sbatch or slurmrestd.
    pub fn on_slurm(&self) -> bool {
        matches!(self.backend.as_str(), "slurm" | "slurmrest")
    }
}
