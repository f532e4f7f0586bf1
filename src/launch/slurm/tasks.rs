//! The array tasks of a job, and what Slurm says of each. `squeue` and `sacct` are asked once for all jobs of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::submitted::Submitted;
use super::tools::{Slurm, ToolError};

pub use super::queue::stop_reason;
pub use super::state::TaskState;

/// What Slurm says about an array task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its state.
    pub state: TaskState,
    /// Why it is in that state, as far as Slurm says: squeue's reason, or sacct's `exit code 1:0`.
    pub detail: String,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() { self.state.fmt(f) } else { write!(f, "{} ({})", self.state, self.detail) }
    }
}

/// Tasks by array index.
pub(super) type Tasks = BTreeMap<u32, Task>;

/// Tasks by Slurm's number of their array and by array index.
pub type Queue = BTreeMap<(u64, u32), Task>;

/// Numbers of arrays, by the option that leads a command to their cluster.
pub(super) fn by_cluster<'a>(jobs: impl IntoIterator<Item = &'a Submitted>) -> BTreeMap<Option<String>, BTreeSet<u64>> {
    let mut clusters: BTreeMap<Option<String>, BTreeSet<u64>> = BTreeMap::new();
    for job in jobs {
        clusters.entry(job.cluster_option()).or_default().insert(job.id);
    }
    clusters
}

/// The option `--jobs` of squeue and sacct.
pub(super) fn jobs_option(ids: &BTreeSet<u64>) -> String {
    let list: Vec<String> = ids.iter().map(u64::to_string).collect();
    format!("--jobs={}", list.join(","))
}

impl Slurm {
    /// What `program` says of `jobs`, where `parse` reads its table for one of them.
    pub(super) fn ask_about(
        &self,
        program: &str,
        fixed: &[&str],
        jobs: &[Submitted],
        parse: fn(&str, u64) -> Option<Tasks>,
    ) -> Result<Queue, ToolError> {
        let mut queue = Queue::new();
        for (cluster, ids) in by_cluster(jobs) {
            let fixed = fixed.iter().map(|argument| (*argument).to_owned());
            let arguments = cluster.into_iter().chain(fixed).chain([jobs_option(&ids)]);
            let table = match self.run(program, arguments) {
                Ok(table) => table,
                // What squeue says of a single job that the controller has forgotten.
                Err(ToolError::Refused { message, .. }) if message.contains("Invalid job id") => continue,
                Err(e) => return Err(e),
            };
            for id in ids {
                let tasks = parse(&table, id).ok_or_else(|| unreadable(program, &table))?;
                queue.extend(tasks.into_iter().map(|(index, task)| ((id, index), task)));
            }
        }
        Ok(queue)
    }
}

/// An answer that is no table says nothing about the tasks, least of all that there are none.
pub(super) fn unreadable(program: &str, answer: &str) -> ToolError {
    ToolError::Unreadable { program: program.to_owned(), answer: answer.trim().chars().take(80).collect() }
}
