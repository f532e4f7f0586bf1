//! The array tasks of a job, as `squeue` and `sacct` list them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::submitted::Submitted;
use super::tools::{Slurm, ToolError};

/// State of an array task, in Slurm's own word. Words that we do not know are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState(String);

impl TaskState {
    /// The state that Slurm calls `word`.
    pub(super) fn new(word: impl Into<String>) -> Self {
        Self(word.into())
    }

    /// Whether the task will do nothing any more.
    pub fn is_over(&self) -> bool {
        matches!(
            self.word(),
            "BOOT_FAIL"
                | "CANCELLED"
                | "COMPLETED"
                | "DEADLINE"
                | "FAILED"
                | "NODE_FAIL"
                | "OUT_OF_MEMORY"
                | "PREEMPTED"
                | "REVOKED"
                | "TIMEOUT"
        )
    }

    /// Whether someone stopped the task on purpose.
    pub fn is_cancelled(&self) -> bool {
        self.word() == "CANCELLED"
    }

    /// Whether the task has not started yet.
    pub fn is_waiting(&self) -> bool {
        matches!(self.word(), "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD")
    }

    /// The word without what sacct appends (`CANCELLED by 0`).
    fn word(&self) -> &str {
        self.0.split_whitespace().next().unwrap_or_default()
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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

impl Slurm {
    /// The tasks of `jobs` that the controller remembers; none if it has forgotten them. One question for all jobs of a
    /// cluster.
    pub(super) fn queued(&self, jobs: &[Submitted]) -> Result<Queue, ToolError> {
        let fixed = ["--array", "--states=all", "--format=%i|%T|%r"];
        self.ask_about("squeue", &fixed, jobs, parse_queue)
    }

    /// The tasks of `jobs` that the accounting remembers. A cluster without accounting is no error for the caller.
    pub(super) fn accounted(&self, jobs: &[Submitted]) -> Result<Queue, ToolError> {
        let fixed = ["--parsable2", "--allocations", "--format=JobID,State,ExitCode"];
        self.ask_about("sacct", &fixed, jobs, parse_accounting)
    }

    fn ask_about(
        &self,
        program: &str,
        fixed: &[&str],
        jobs: &[Submitted],
        parse: fn(&str, u64) -> Option<Tasks>,
    ) -> Result<Queue, ToolError> {
        let mut clusters: BTreeMap<Option<String>, BTreeSet<u64>> = BTreeMap::new();
        for job in jobs {
            clusters.entry(job.cluster_option()).or_default().insert(job.id);
        }
        let mut queue = Queue::new();
        for (cluster, ids) in clusters {
            let list: Vec<String> = ids.iter().map(u64::to_string).collect();
            let fixed = fixed.iter().map(|argument| (*argument).to_owned());
            let arguments = cluster.into_iter().chain(fixed).chain([format!("--jobs={}", list.join(","))]);
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
fn unreadable(program: &str, answer: &str) -> ToolError {
    ToolError::Unreadable { program: program.to_owned(), answer: answer.trim().chars().take(80).collect() }
}

/// Why Slurm itself stopped the array task `JOB_INDEX`: `TimeLimit`, for example. None if somebody cancelled it, or Slurm
/// does not say: who is being stopped has no time to ask twice.
pub fn stop_reason(task: &str) -> Option<String> {
    let (job, index) = task.split_once('_')?;
    let (job, index) = (job.parse().ok()?, index.parse().ok()?);
    let task = Slurm::from_environment().queued(&[Submitted::here(job)]).ok()?.remove(&(job, index))?;
    (!task.detail.is_empty()).then_some(task.detail)
}

/// Rows of `squeue --format=%i|%T|%r`, with its heading.
fn parse_queue(table: &str, job: u64) -> Option<Tasks> {
    rows(table, ["JOBID", "STATE", "REASON"], job, |reason| match reason {
        "None" | "" => String::new(),
        reason => reason.to_owned(),
    })
}

/// Rows of `sacct --parsable2`, with its heading. Steps are left out; of several rows the last counts.
fn parse_accounting(table: &str, job: u64) -> Option<Tasks> {
    rows(table, ["JobID", "State", "ExitCode"], job, |code| format!("exit code {code}"))
}

/// The rows under the heading; none without a heading. Above it a cluster may be named (`CLUSTER: east`).
fn rows(table: &str, columns: [&str; 3], job: u64, detail: impl Fn(&str) -> String) -> Option<Tasks> {
    let mut tasks = Tasks::new();
    let mut lines = table.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let (id, state, last) = lines.find_map(|line| {
        let [id, state, last] = columns.map(|c| line.iter().position(|h| *h == c));
        Some((id?, state?, last?))
    })?;
    for row in lines {
        let (Some(id), Some(state), Some(last)) = (row.get(id), row.get(state), row.get(last)) else { continue };
        for index in indices(id, job) {
            tasks.insert(index, Task { state: TaskState((*state).to_owned()), detail: detail(last) });
        }
    }
    Some(tasks)
}

/// Array indices in a job id of `job`: `392_4`, or `392_[1,3-5%2]` for tasks that wait together.
fn indices(id: &str, job: u64) -> Vec<u32> {
    match id.split_once('_') {
        Some((base, list)) if base.parse() == Ok(job) => {
            let list = list.trim_start_matches('[').trim_end_matches(']');
            expand(list.split_once('%').map_or(list, |(list, _throttle)| list))
        }
        _ => Vec::new(),
    }
}

/// Numbers in a list of Slurm's: `1,3-5,10-20:2`. What is not a number is left out (`0.batch` names a step).
pub(super) fn expand(list: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (last, step) = last.split_once(':').unwrap_or((last, "1"));
        if let (Ok(first), Ok(last), Ok(step)) =
            (first.trim().parse::<u32>(), last.trim().parse::<u32>(), step.trim().parse::<usize>())
        {
            // No array is longer than Slurm's own limit, whatever an answer says.
            numbers.extend((first..=last).step_by(step.max(1)).take(MAX_ARRAY));
        }
    }
    numbers
}

/// Most tasks that Slurm lets an array have (MaxArraySize).
pub(super) const MAX_ARRAY: usize = 4_000_001;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tasks: &Tasks) -> Vec<String> {
        tasks.iter().map(|(index, task)| format!("{index} {task}")).collect()
    }

    #[test]
    fn accounting_of_three_versions() {
        for (version, table) in [
            ("22.05", include_str!("../../../tests/slurm/samples/sacct-22.05.psv")),
            ("24.11", include_str!("../../../tests/slurm/samples/sacct-24.11.psv")),
            ("26.05", include_str!("../../../tests/slurm/samples/sacct-26.05.psv")),
        ] {
            let tasks = parse_accounting(table, 392).unwrap();
            let expected = ["0 COMPLETED (exit code 0:0)", "1 FAILED (exit code 3:0)", "2 COMPLETED (exit code 0:0)"];
            assert_eq!(shown(&tasks), expected, "Slurm {version}");
            let waiting = parse_accounting(table, 397).unwrap();
            assert_eq!(waiting.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3], "Slurm {version}");
            assert!(waiting.values().all(|t| t.state.is_waiting() && !t.state.is_over()), "Slurm {version}");
        }
    }

    #[test]
    fn queue_of_a_job_with_tasks_in_every_state() {
        let tasks = parse_queue(include_str!("../../../tests/slurm/samples/squeue-22.05.txt"), 22).unwrap();
        assert_eq!(
            shown(&tasks),
            ["0 COMPLETED", "1 FAILED (NonZeroExitCode)", "2 RUNNING", "3 CANCELLED", "4 PENDING (JobArrayTaskLimit)"]
        );
        assert!(parse_queue("JOBID|STATE|REASON\n", 7).unwrap().is_empty());
        let named = parse_queue("CLUSTER: east\nJOBID|STATE|REASON\n7_0|PENDING|Priority\n", 7).unwrap();
        assert_eq!(shown(&named), ["0 PENDING (Priority)"]);
    }

    #[test]
    fn an_answer_without_its_heading_is_no_answer() {
        for answer in ["", "7_0|PENDING|Priority\n", "JOBID NAME\n7_0 x\n"] {
            assert_eq!(parse_queue(answer, 7), None, "{answer}");
            assert_eq!(parse_accounting(answer, 7), None, "{answer}");
        }
    }

    #[test]
    fn states_that_we_do_not_know_are_kept() {
        let tasks = parse_queue("JOBID|STATE|REASON\n7_0|LEVITATING|Why_not\n7_1|CANCELLED by 0|None\n", 7).unwrap();
        assert_eq!(shown(&tasks), ["0 LEVITATING (Why_not)", "1 CANCELLED by 0"]);
        assert!(!tasks[&0].state.is_over());
        assert!(tasks[&1].state.is_over() && tasks[&1].state.is_cancelled());
    }

    #[test]
    fn ids_of_tasks() {
        assert_eq!(indices("392_4", 392), [4]);
        assert_eq!(indices("392_[1,3-5%2]", 392), [1, 3, 4, 5]);
        assert_eq!(indices("392_[1-7:3,9%2]", 392), [1, 4, 7, 9]);
        assert_eq!(indices("393_4", 392), [0; 0]);
        assert_eq!(indices("392", 392), [0; 0]);
        assert_eq!(indices("392_0.batch", 392), [0; 0]);
    }
}
