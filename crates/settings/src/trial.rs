//! One run of one variant.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Settings;

/// Version of `trial.json` and `job.json`.
pub const TRIAL_SCHEMA_VERSION: u32 = 1;

/// Suffix of the config name of a job that isolates the variants of another job; the name of that job's config precedes it.
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
    /// Its name in tables.
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
