//! What the accounting knows of tasks that the controller has forgotten: `sacct`.

use super::submitted::Submitted;
use super::table::rows;
use super::task_ids::Indices;
use super::tasks::{Queue, Task, TaskState, Tasks};
use super::tools::{Slurm, ToolError};

impl Slurm {
    /// The tasks of `jobs` that the accounting remembers. A cluster without accounting is no error for the caller.
    pub(super) fn accounted(&self, jobs: &[Submitted]) -> Result<Queue, ToolError> {
        if let Some(rest) = &self.rest {
            return rest.accounted(jobs);
        }
        let fixed = ["--parsable2", "--allocations", "--format=JobID,State,ExitCode,JobName"];
        self.ask_about("sacct", &fixed, jobs, parse)
    }
}

/// Whether a row says nothing yet: the accounting makes a row when a task starts, and fills it in seconds later.
pub(super) fn is_half(state: &TaskState, name: &str) -> bool {
    name == "allocation" && state.is_waiting()
}

/// Rows of `sacct --parsable2`, with its heading. Steps are left out; of several rows the last counts.
fn parse(table: &str, job: u64) -> Option<Tasks> {
    let mut tasks = Tasks::new();
    let mut indices = Indices::of(job);
    for row in rows(table, &["JobID", "State", "ExitCode", "JobName"])? {
        let [id, state, code, name] = row[..] else { continue };
        let state = TaskState::new(state);
        if is_half(&state, name) {
            continue;
        }
        for index in indices.read(id)? {
            tasks.insert(index, Task { state: state.clone(), detail: format!("exit code {code}") });
        }
    }
    Some(tasks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLES: [(&str, &str); 3] = [
        ("22.05", include_str!("../../../tests/slurm/samples/sacct-22.05.psv")),
        ("24.11", include_str!("../../../tests/slurm/samples/sacct-24.11.psv")),
        ("26.05", include_str!("../../../tests/slurm/samples/sacct-26.05.psv")),
    ];

    fn shown(table: &str, job: u64) -> Vec<String> {
        parse(table, job).unwrap().iter().map(|(index, task)| format!("{index} {task}")).collect()
    }

    #[test]
    fn accounting_of_three_versions() {
        for (version, table) in SAMPLES {
            let expected = ["0 COMPLETED (exit code 0:0)", "1 FAILED (exit code 3:0)", "2 COMPLETED (exit code 0:0)"];
            assert_eq!(shown(table, 392), expected, "Slurm {version}");
            let waiting = parse(table, 397).unwrap();
            assert_eq!(waiting.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3], "Slurm {version}");
            assert!(waiting.values().all(|t| t.state.is_waiting() && !t.state.is_over()), "Slurm {version}");
        }
    }

    #[test]
    fn of_a_requeued_task_the_last_try_counts() {
        let table = "JobID|State|ExitCode|JobName\n7_0|REQUEUED|0:0|a|b\n7_0.batch|CANCELLED|0:15|batch\n\
                     7_0|NODE_FAIL|1:0|a|b\n";
        assert_eq!(shown(table, 7), ["0 NODE_FAIL (exit code 1:0)"]);
    }

    #[test]
    fn a_row_that_is_not_whole_yet_is_no_result() {
        let half =
            "JobID|State|ExitCode|JobName\n394|PENDING|0:0|allocation\n7_1|PENDING|0:0|allocation\n7|PENDING|0:0|a\n";
        assert_eq!(shown(half, 7), [""; 0]);
        assert_eq!(shown(half, 394), [""; 0]);
        // Somebody's job may have that name.
        assert_eq!(shown("JobID|State|ExitCode|JobName\n7_1|FAILED|1:0|allocation\n", 7), ["1 FAILED (exit code 1:0)"]);
    }

    #[test]
    fn an_answer_without_its_heading_is_no_answer() {
        for answer in ["", "7_0|COMPLETED|0:0|a\n", "JobID NAME\n7_0 x\n"] {
            assert_eq!(parse(answer, 7), None, "{answer}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_panic(
            text in "(?s).{0,200}",
            version in 0..3usize,
            at in 0..1500usize,
            other in "[|_0-9%\\[\\],\\n-]{0,9}",
        ) {
            parse(&text, 392);
            let sample = SAMPLES[version].1;
            let mutated = format!("{}{other}{}", &sample[..at], &sample[at..]);
            let cut = format!("{}{other}", &sample[..at]);
            for text in [mutated, cut] {
                prop_assert!(parse(&text, 392).is_none_or(|tasks| tasks.len() <= 4_000_001));
            }
        }
    }
}
