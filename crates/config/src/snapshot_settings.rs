//! `[snapshot]` of a project (`expctl.toml`) and of a user's defaults: whether jobs run from a copy of the code, and how much is copied.

use expctl_settings::ValueType;
use serde_json::Value as Json;

use crate::layer::{accept, table_of};
use crate::node::{Node, NodeKey};
use crate::problem::{ConfErrors, Problem};
use crate::project_files::ProjectFolders;
use crate::user::{UserDefaults, project_table, unknown_key};

const KEYS: [&str; 3] = ["live", "max_file_mib", "max_total_mib"];
/// A file is held in memory while it is copied.
const MAX_MIB: i64 = 4096;

/// Snapshots of the code of jobs; settings that are not set are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// Programs run in the project's folder, as it is when they start.
    pub live: Option<bool>,
    /// Largest file that is copied, MiB.
    pub max_file_mib: Option<u64>,
    /// All that is copied for a job, MiB.
    pub max_total_mib: Option<u64>,
}

impl SnapshotSettings {
    /// The settings of the project on top of those of the user.
    ///
    /// # Errors
    /// All that is wrong with either file, with places.
    pub fn load(project: &dyn ProjectFolders) -> Result<Self, ConfErrors> {
        let user = UserDefaults::load(project)?.snapshot;
        let own: Self = project_table(project, "snapshot", Self::read)?;
        Ok(Self {
            live: own.live.or(user.live),
            max_file_mib: own.max_file_mib.or(user.max_file_mib),
            max_total_mib: own.max_total_mib.or(user.max_total_mib),
        })
    }

    /// Whether programs run in the project's folder.
    pub fn is_live(&self) -> bool {
        self.live.unwrap_or(false)
    }

    /// Largest file that is copied, bytes.
    pub fn max_file_bytes(&self) -> u64 {
        self.max_file_mib.unwrap_or(16) << 20
    }

    /// All that is copied for a job, bytes.
    pub fn max_total_bytes(&self) -> u64 {
        self.max_total_mib.unwrap_or(256) << 20
    }

    /// Read the table; problems are added to those of its file.
    pub(crate) fn read(node: &Node, problems: &mut Vec<Problem>) -> Self {
        let mut settings = Self::default();
        for (key, node) in table_of("`snapshot`", node, problems).into_iter().flatten() {
            match key.name.as_str() {
                "live" => settings.live = value_of(&ValueType::Bool, key, node, problems).and_then(|v| v.as_bool()),
                "max_file_mib" => settings.max_file_mib = mebibytes(key, node, problems),
                "max_total_mib" => settings.max_total_mib = mebibytes(key, node, problems),
                unknown => problems.push(unknown_key(unknown, key, &KEYS)),
            }
        }
        settings
    }
}

fn mebibytes(key: &NodeKey, node: &Node, problems: &mut Vec<Problem>) -> Option<u64> {
    value_of(&ValueType::Integer { min: 1, max: MAX_MIB }, key, node, problems)?.as_u64()
}

/// The value of a key of the table, or its problem.
fn value_of(value_type: &ValueType, key: &NodeKey, node: &Node, problems: &mut Vec<Problem>) -> Option<Json> {
    accept(value_type, &format!("snapshot.{}", key.name), node).map_err(|problem| problems.push(*problem)).ok()
}
