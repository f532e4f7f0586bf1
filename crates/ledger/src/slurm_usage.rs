//! `slurm.json` of an attempt: what Slurm itself measured of the array task. Times are in seconds, memory is in bytes.

use serde::{Deserialize, Serialize};

use crate::{AttemptDir, LedgerError, write_json};

/// `slurm.json`: Slurm's own measurements of the try of an array task in which an attempt ran. A value that Slurm did not give is missing,
/// never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmUsage {
    /// Command that gave the values: `sacct`, or `scontrol` on a cluster without accounting.
    pub source: String,
    /// Job id of the array.
    pub array: u64,
    /// Number of the task in its array.
    pub task: u32,
    /// Number of the try of the task, from 1; each requeue starts another one.
    pub try_number: u32,
    /// Number of attempts in this try. All figures but `steps` are of these attempts together.
    pub attempts_in_try: u32,
    /// Figures of the try.
    pub usage: SlurmTry,
    /// Other tries of the task that Slurm knows, oldest first.
    pub other_tries: Vec<SlurmTry>,
}

/// One try of an array task. All times are of Slurm's controller and in whole seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmTry {
    /// Slurm's state at its end: `COMPLETED`, `FAILED`, `REQUEUED`, `CANCELLED by 0`, …
    pub state: String,
    /// Exit code of the batch script.
    pub exit_code: Option<i32>,
    /// Signal that ended the batch script.
    pub signal: Option<i32>,
    /// Slurm's reason of the end (`NonZeroExitCode`, `TimeLimit`); only the controller has it.
    pub reason: Option<String>,
    /// Slurm's reason for the last wait (`Priority`, `Resources`); only the accounting has it.
    pub waited_for: Option<String>,
    /// Time of submission, seconds since the epoch.
    pub submitted: Option<i64>,
    /// Start, seconds since the epoch. `None`: it never started.
    pub started: Option<i64>,
    /// End, seconds since the epoch.
    pub ended: Option<i64>,
    /// From start to end, less suspension, seconds.
    pub elapsed_s: Option<u64>,
    /// Time limit, seconds. `None`: no limit.
    pub time_limit_s: Option<u64>,
    /// Nodes, as Slurm lists them (`n[1-2]`).
    pub nodes: Option<String>,
    /// Processors, over all nodes.
    pub cpus: Option<u32>,
    /// User and system time of all processes, seconds.
    pub cpu_s: Option<f64>,
    /// Requested memory, over all nodes, bytes.
    pub memory_bytes: Option<u64>,
    /// Largest resident set of one rank (or of the script, if that is larger), over `steps`, bytes.
    pub max_rss_bytes: Option<u64>,
    /// Its Slurm steps, in Slurm's order: one for each `srun`, and `batch` (the script itself) and `extern`.
    pub steps: Vec<SlurmStep>,
}

/// A Slurm step of a try. Slurm samples memory (every 30 s, unless the cluster sets another interval), so a step of a few seconds may have
/// no value, and a short peak may be missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmStep {
    /// `0`, `1`, …, `batch` or `extern`.
    pub step: String,
    /// Slurm's state at its end.
    pub state: String,
    /// Highest exit code of its tasks.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// Start, seconds since the epoch.
    pub started: Option<i64>,
    /// End, seconds since the epoch.
    pub ended: Option<i64>,
    /// From start to end, seconds.
    pub elapsed_s: Option<u64>,
    /// Nodes, as Slurm lists them.
    pub nodes: Option<String>,
    /// Number of its tasks (ranks).
    pub tasks: Option<u32>,
    /// Largest resident set of one of its tasks, bytes.
    pub max_rss_bytes: Option<u64>,
    /// Node of that task.
    pub max_rss_node: Option<String>,
    /// Number of that task in the step: the rank.
    pub max_rss_task: Option<u32>,
    /// Mean over the tasks of their largest resident sets, bytes. Its product with `tasks` is an upper bound of the memory of all ranks.
    pub mean_rss_bytes: Option<u64>,
    /// User and system time of its processes, seconds.
    pub cpu_s: Option<f64>,
}

impl SlurmTry {
    /// Upper bound of the memory of all tasks of the largest step, bytes: the sum of the largest resident set of each.
    pub fn rss_of_all_tasks(&self) -> Option<u64> {
        self.steps.iter().filter_map(|s| s.mean_rss_bytes?.checked_mul(u64::from(s.tasks?))).max()
    }
}

impl SlurmUsage {
    /// Write `slurm.json` of an attempt.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, attempt: &AttemptDir) -> Result<(), LedgerError> {
        write_json(&attempt.slurm_path(), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_a_file_does_not_have_get_their_default() {
        let read: SlurmUsage =
            serde_json::from_str(r#"{"source": "sacct", "usage": {"state": "FAILED"}, "new": 1}"#).unwrap();
        assert_eq!(
            (read.source.as_str(), read.usage.state.as_str(), read.usage.max_rss_bytes),
            ("sacct", "FAILED", None)
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = AttemptDir::open(dir.path());
        assert_eq!(attempt.slurm_usage().unwrap(), None);
        let step = SlurmStep { tasks: Some(2), mean_rss_bytes: Some(100), ..SlurmStep::default() };
        let usage = SlurmTry { cpu_s: Some(0.215), steps: vec![step, SlurmStep::default()], ..SlurmTry::default() };
        assert_eq!(usage.rss_of_all_tasks(), Some(200));
        let written = SlurmUsage { source: "sacct".into(), array: 7, usage, ..SlurmUsage::default() };
        written.save(&attempt).unwrap();
        assert_eq!(attempt.slurm_usage().unwrap(), Some(written));
    }
}
