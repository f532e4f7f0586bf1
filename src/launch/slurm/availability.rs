//! Whether there is a Slurm to submit to. Invariant: a Slurm that is merely away never passes for none, or the ranks of
//! its users would run on the login node.

use std::ffi::OsStr;
use std::path::Path;

use super::tools::Slurm;
use crate::program::is_program;

/// Where sites and packages put the configuration; the third is where a node keeps one that it was sent.
const CONFIGURATIONS: [&str; 4] =
    ["/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf", "/usr/local/etc/slurm.conf"];

/// What a look for Slurm found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// A controller answers.
    Ready,
    /// This machine belongs to a cluster whose controller does not answer; the words say how it failed.
    Unreachable(String),
    /// No `sbatch`, or an `sbatch` that nobody has configured.
    Absent,
}

impl Slurm {
    /// Look for `sbatch` on the path and for a controller that answers within seconds.
    pub fn availability(&self) -> Availability {
        let environment = self.environment();
        let set = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
        let on_path = set("PATH")
            .is_some_and(|path| std::env::split_paths(path).any(|folder| is_program(&folder.join("sbatch"))));
        if !on_path && self.rest.is_none() {
            return Availability::Absent;
        }
        let reason = match self.ping() {
            // The configuration may also come over the network: an answer is what counts.
            Ok(answer) if answer.contains(" UP") => return Availability::Ready,
            Ok(answer) => answer.trim().replace('\n', "; "),
            Err(e) => e.to_string(),
        };
        let configured = set("SLURM_CONF").is_some() || CONFIGURATIONS.iter().any(|path| Path::new(path).exists());
        if configured || self.rest.is_some() {
            Availability::Unreachable(reason)
        } else {
            tracing::debug!("sbatch is installed but not configured: {reason}");
            Availability::Absent
        }
    }
}
