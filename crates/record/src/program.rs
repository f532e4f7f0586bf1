use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// What a program of the user's says of itself (`worker.command`), as its rank 0 said it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// What it is called.
    pub name: String,
    /// Versions of the packages that it runs with, by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Settings of its own: numbers, texts, true or false.
    #[serde(default)]
    pub settings: BTreeMap<String, Json>,
    /// Samples of one epoch, over all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_epoch: Option<u64>,
    /// Samples that it can choose from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_total: Option<u64>,
    /// Bytes that its data takes on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// The largest resident set of a rank, pages of files too, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl ProgramFacts {
    /// `annbatch (annbatch 0.3.1, torch 2.11.0)`.
    pub fn words(&self) -> String {
        let versions: Vec<String> = self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        if versions.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, versions.join(", ")) }
    }
}
