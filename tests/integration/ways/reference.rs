//! What the trials of the scenarios end with where nothing disturbs them: on this machine, without Slurm.

use std::sync::OnceLock;

use super::site::digests;
use crate::common::{SMALL, TestProject};

/// A trial on four ranks.
pub const FOUR_RANKS: [&str; 2] = ["launch.ranks=4", "loader.seed=4"];
/// A trial that is long enough to be stopped on its way.
pub const LONG: [&str; 2] = ["measure.steps=298", "loader.seed=5"];
/// Its steps, with those before it is measured.
pub const LONG_STEPS: u64 = 300;

/// The parameters that a trial of the variant `ids` ends with.
pub fn four_ranks() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| undisturbed(&FOUR_RANKS))
}

/// The same for the long one.
pub fn long() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| undisturbed(&LONG))
}

fn undisturbed(settings: &[&str]) -> String {
    let project = TestProject::new();
    let conf = project.conf("small", &SMALL.replace("heartbeat_timeout_s = 5", "heartbeat_timeout_s = 120"));
    let mut args = vec!["submit", conf.to_str().unwrap(), "--backend", "local", "--only", "ids", "--wait"];
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let id = project.ok(&args);
    digests(&project.attempt(&id, "ids").unwrap()).remove(0)
}
