use serde::{Deserialize, Serialize};

use crate::{AttemptDir, RecordError, write_json};

/// `slurm.json`: what Slurm measured of the try of an array task in which an attempt ran. What Slurm did not say is missing,
/// never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmUsage {
    /// Which command said so: `sacct`, or `scontrol` where there is no accounting.
    pub source: String,
    /// Slurm's number of the array.
    pub array: u64,
    /// Number of the task in its array.
    pub task: u32,
    /// Which try of the task this is, from 1: Slurm counts one more with each requeue.
    pub try_number: u32,
    /// Attempts that ran in this try. With more than one, its figures are theirs together, but for `steps`.
    pub attempts_in_try: u32,
    /// The try.
    pub usage: SlurmTry,
    /// Tries of the task beside this one, as far as Slurm knows them, oldest first.
    pub other_tries: Vec<SlurmTry>,
}

/// One try of an array task. All times are of Slurm's controller and in whole seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmTry {
    /// Slurm's word for how it ended: `COMPLETED`, `FAILED`, `REQUEUED`, `CANCELLED by 0`, …
    pub state: String,
    /// Exit code of the batch script.
    pub exit_code: Option<i32>,
    /// Signal that ended the batch script.
    pub signal: Option<i32>,
    /// Why it ended, in Slurm's word (`NonZeroExitCode`, `TimeLimit`); only the controller knows it.
    pub reason: Option<String>,
    /// What it waited for last (`Priority`, `Resources`); only the accounting keeps it.
    pub waited_for: Option<String>,
    /// Put into the queue, seconds since the epoch.
    pub submitted: Option<i64>,
    /// Start, seconds since the epoch; none if it never started.
    pub started: Option<i64>,
    /// End, seconds since the epoch.
    pub ended: Option<i64>,
    /// From start to end, less suspension, seconds.
    pub elapsed_s: Option<u64>,
    /// Time limit, seconds; none if there is none.
    pub time_limit_s: Option<u64>,
    /// Nodes, as Slurm lists them (`n[1-2]`).
    pub nodes: Option<String>,
    /// Processors, over all nodes.
    pub cpus: Option<u32>,
    /// User and system time of all processes, seconds.
    pub cpu_s: Option<f64>,
    /// Memory asked for, over all nodes, bytes.
    pub memory_bytes: Option<u64>,
    /// Largest resident set of one rank (or of the script, where that is larger), over `steps`, bytes.
    pub max_rss_bytes: Option<u64>,
    /// Its steps, in Slurm's order: one for each `srun`, beside `batch` (the script itself) and `extern`.
    pub steps: Vec<SlurmStep>,
}

/// A step of a try. Slurm samples memory (every 30 s, unless the cluster says otherwise), so a step of a few seconds may have
/// none, and a short peak may be missed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmStep {
    /// `0`, `1`, …, `batch` or `extern`.
    pub step: String,
    /// Slurm's word for how it ended.
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
    /// Mean over the tasks of their largest resident sets, bytes. Times `tasks`, it is what all ranks needed together at most.
    pub mean_rss_bytes: Option<u64>,
    /// User and system time of its processes, seconds.
    pub cpu_s: Option<f64>,
}

impl SlurmTry {
    /// Memory that all tasks of the largest step needed together at most, bytes: each at its own largest.
    pub fn rss_of_all_tasks(&self) -> Option<u64> {
        self.steps.iter().filter_map(|s| s.mean_rss_bytes?.checked_mul(u64::from(s.tasks?))).max()
    }
}

impl SlurmUsage {
    /// Write `slurm.json` of an attempt.
    pub fn save(&self, attempt: &AttemptDir) -> Result<(), RecordError> {
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
