//! What the controller knows: `squeue`.

use super::submitted::Submitted;
use super::table::rows;
use super::task_ids::Indices;
use super::tasks::{Queue, Task, TaskState, Tasks};
use super::tools::{Slurm, ToolError};

impl Slurm {
    /// The tasks of `jobs` that the controller remembers; none if it has forgotten them. One question for all jobs of a
    /// cluster.
    pub(super) fn queued(&self, jobs: &[Submitted]) -> Result<Queue, ToolError> {
        if let Some(rest) = &self.rest {
            return rest.queued(jobs);
        }
        let fixed = ["--array", "--states=all", "--format=%i|%T|%r"];
        self.ask_about("squeue", &fixed, jobs, parse)
    }
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
fn parse(table: &str, job: u64) -> Option<Tasks> {
    let mut tasks = Tasks::new();
    let mut indices = Indices::of(job);
    for row in rows(table, &["JOBID", "STATE", "REASON"])? {
        let [id, state, reason] = row[..] else { continue };
        let detail = if reason == "None" { "" } else { reason };
        for index in indices.read(id)? {
            tasks.insert(index, Task { state: TaskState::new(state), detail: detail.to_owned() });
        }
    }
    Some(tasks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = include_str!("../../../tests/slurm/samples/squeue-22.05.txt");

    fn shown(table: &str, job: u64) -> Vec<String> {
        parse(table, job).unwrap().iter().map(|(index, task)| format!("{index} {task}")).collect()
    }

    #[test]
    fn queue_of_a_job_with_tasks_in_every_state() {
        assert_eq!(
            shown(SAMPLE, 22),
            ["0 COMPLETED", "1 FAILED (NonZeroExitCode)", "2 RUNNING", "3 CANCELLED", "4 PENDING (JobArrayTaskLimit)"]
        );
        assert!(parse("JOBID|STATE|REASON\n", 7).unwrap().is_empty());
    }

    #[test]
    fn queue_of_newer_versions() {
        for (version, table) in [
            ("24.11", include_str!("../../../tests/slurm/samples/squeue-24.11.txt")),
            ("26.05", include_str!("../../../tests/slurm/samples/squeue-26.05.txt")),
        ] {
            let expected = ["0 FAILED (NonZeroExitCode)", "1 FAILED (NonZeroExitCode)"];
            assert_eq!(shown(table, 100_000), expected, "Slurm {version}");
        }
    }

    #[test]
    fn tasks_that_wait_together_and_those_of_other_jobs_and_clusters() {
        let table =
            "CLUSTER: east\nJOBID|STATE|REASON\n7_[1,3-5%2]|PENDING|Priority\n7_0|REVOKED|None\n70_2|RUNNING|None\n";
        let waiting = ["1", "3", "4", "5"].map(|index| format!("{index} PENDING (Priority)"));
        assert_eq!(shown(table, 7), [&["0 REVOKED".to_owned()][..], &waiting].concat());
        assert!(!parse(table, 7).unwrap()[&0].state.is_over(), "another cluster runs it");
    }

    #[test]
    fn an_answer_without_its_heading_is_no_answer() {
        for answer in ["", "7_0|PENDING|Priority\n", "JOBID NAME\n7_0 x\n"] {
            assert_eq!(parse(answer, 7), None, "{answer}");
        }
    }

    #[test]
    fn states_that_we_do_not_know_are_kept() {
        let table = "JOBID|STATE|REASON\n7_0|LEVITATING|Why_not\n7_1|CANCELLED by 0|None\n";
        assert_eq!(shown(table, 7), ["0 LEVITATING (Why_not)", "1 CANCELLED by 0"]);
        assert!(!parse(table, 7).unwrap()[&0].state.is_over());
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_panic(text in "(?s).{0,200}", at in 0..SAMPLE.len(), other in "[|_0-9%\\[\\],\\n-]{0,9}") {
            parse(&text, 22);
            // ASCII, so any place is one between characters.
            let mutated = format!("{}{other}{}", &SAMPLE[..at], &SAMPLE[at..]);
            let cut = format!("{}{other}", &SAMPLE[..at]);
            for text in [mutated, cut] {
                prop_assert!(parse(&text, 22).is_none_or(|tasks| tasks.len() <= 4_000_001));
            }
        }
    }
}
