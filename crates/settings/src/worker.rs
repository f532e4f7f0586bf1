use serde::{Deserialize, Serialize};

/// `[worker]`: what runs as the ranks of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// A program and its arguments; empty runs `expctl-worker`.
    #[serde(default)]
    pub command: Vec<String>,
    /// The program starts the ranks of its node itself, and is started once a node.
    #[serde(default)]
    pub starts_ranks: bool,
}
