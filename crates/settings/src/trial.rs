//! One run of one variant.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Settings;

/// Version of `trial.json` and `job.json`.
pub const TRIAL_SCHEMA_VERSION: u32 = 1;

/// Suffix of the config name of a job that isolates the variants of another job; the name of that job's config precedes it.
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
    /// Its name in tables.
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
