//! The tables that `squeue` and `sacct` print, and the notation in which Slurm writes the indices of array tasks
//! (`392_[1,3-5%2]`, `0,2-3`).

use std::iter::StepBy;
use std::ops::RangeInclusive;

use crate::task::{Task, TaskState, TasksByIndex};

/// The tasks of array `job` in an answer of `squeue --format=%i|%T|%r`; `None` without the heading.
pub(crate) fn parse_squeue(table: &str, job: u64) -> Option<TasksByIndex> {
    let mut tasks = TasksByIndex::new();
    let mut indices = IndexReader::new(job);
    for row in rows(table, &["JOBID", "STATE", "REASON"])? {
        let [id, state, reason] = row[..] else { continue };
        let detail = if reason == "None" { "" } else { reason };
        for index in indices.read(id)? {
            tasks.insert(index, Task { state: TaskState::new(state), detail: detail.to_owned() });
        }
    }
    Some(tasks)
}

/// Whether a row says nothing yet: the accounting adds a row when a task starts, and fills it in seconds later.
pub(crate) fn is_unfilled(state: &TaskState, name: &str) -> bool {
    name == "allocation" && state.is_waiting()
}

/// The tasks of array `job` in an answer of `sacct --parsable2`; `None` without the heading. Skips steps; of several
/// rows of a task the last one counts.
pub(crate) fn parse_sacct(table: &str, job: u64) -> Option<TasksByIndex> {
    let mut tasks = TasksByIndex::new();
    let mut indices = IndexReader::new(job);
    for row in rows(table, &["JobID", "State", "ExitCode", "JobName"])? {
        let [id, state, code, name] = row[..] else { continue };
        let state = TaskState::new(state);
        if is_unfilled(&state, name) {
            continue;
        }
        for index in indices.read(id)? {
            tasks.insert(index, Task { state: state.clone(), detail: format!("exit code {code}") });
        }
    }
    Some(tasks)
}

/// Rows below a heading, with their cells in the order of the columns that were asked for.
pub(crate) struct Rows<'a> {
    lines: std::str::Lines<'a>,
    positions: Vec<usize>,
}

/// The rows of `text` below the first line that names all `columns`. `None` without such a line: an answer without its
/// heading does not say that there are no rows. A cluster may be named above the heading (`CLUSTER: east`).
///
/// A user's text may hold a `|`. Asked for as the last column, it cannot move the others.
pub(crate) fn rows<'a>(text: &'a str, columns: &[&str]) -> Option<Rows<'a>> {
    let mut lines = text.lines();
    let positions = lines.find_map(|line| {
        let names: Vec<&str> = line.split('|').map(str::trim).collect();
        columns.iter().map(|column| names.iter().position(|name| name == column)).collect::<Option<Vec<_>>>()
    })?;
    Some(Rows { lines, positions })
}

impl<'a> Iterator for Rows<'a> {
    type Item = Vec<&'a str>;

    fn next(&mut self) -> Option<Self::Item> {
        // Lines that are cut off, or are no rows, are skipped.
        self.lines.find_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            self.positions.iter().map(|position| cells.get(*position).copied()).collect()
        })
    }
}

/// Highest index of an array task: MaxArraySize is at most 4000001.
const MAX_INDEX: u32 = 4_000_000;
/// Indices that one array can have.
pub(crate) const MAX_INDICES: usize = MAX_INDEX as usize + 1;

/// The indices in a list of Slurm's: `1,3-5,8-16:2`. Skips what is no number (`0.batch` names a step) or above
/// [`MAX_INDEX`].
pub(crate) fn expand(list: &str) -> Vec<u32> {
    ranges(list).flatten().take(MAX_INDICES).collect()
}

/// The ranges of a list of indices, in its order.
pub(crate) fn ranges(list: &str) -> impl Iterator<Item = StepBy<RangeInclusive<u32>>> {
    list.split(',').filter_map(|item| {
        // Tasks that wait together at equal distances are written with a step.
        let (range, step) = item.split_once(':').unwrap_or((item, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let step: usize = step.trim().parse().ok().filter(|step| *step > 0)?;
        (last <= MAX_INDEX).then(|| (first..=last).step_by(step))
    })
}

/// Reads the indices of one array in the rows of a table. Bounded: a table with more indices than an array can have is
/// refused, however short its text is.
struct IndexReader {
    job: u64,
    remaining: usize,
}

impl IndexReader {
    /// For a table in which each task of `job` occurs once.
    const fn new(job: u64) -> Self {
        Self { job, remaining: MAX_INDICES }
    }

    /// Indices in a job id: `392_4`, or `392_[1,3-5%2]` for tasks that wait together. `None` if they become too many.
    fn read(&mut self, id: &str) -> Option<Vec<u32>> {
        let found = indices(id, self.job);
        self.remaining = self.remaining.checked_sub(found.len())?;
        Some(found)
    }
}

fn indices(id: &str, job: u64) -> Vec<u32> {
    match id.split_once('_') {
        Some((base, list)) if base.parse() == Ok(job) => {
            let list = list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(list);
            expand(list.split_once('%').map_or(list, |(list, _throttle)| list))
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let text = "CLUSTER: east\nA|B|C\n1|2|3\ncut|off\n4|5|6|7\n";
        let found: Vec<_> = rows(text, &["C", "A"]).unwrap().collect();
        assert_eq!(found, [["3", "1"], ["6", "4"]]);
        assert!(rows(text, &["D"]).is_none());
        assert!(rows("", &["A"]).is_none());
    }

    #[test]
    fn ids_of_tasks() {
        assert_eq!(indices("392_4", 392), [4]);
        assert_eq!(indices("392_[1,3-5%2]", 392), [1, 3, 4, 5]);
        assert_eq!(indices("392_[0-3]", 392), [0, 1, 2, 3]);
        assert_eq!(indices("392_[1-7:3,9%2]", 392), [1, 4, 7, 9]);
        for other in ["393_4", "392", "392_0.batch", "392_0.0", "392_", "392_[", "x_1", ""] {
            assert_eq!(indices(other, 392), [0; 0], "{other}");
        }
    }

    #[test]
    fn a_list_that_no_array_can_have_is_not_made() {
        assert_eq!(expand("0-4000000000"), [0; 0]);
        assert_eq!(expand("7,0-4000001,4000000"), [7, 4_000_000]);
        assert_eq!(expand("5-3"), [0; 0]);
        let all = "0-4000000,".repeat(50);
        assert_eq!(expand(&all).len(), MAX_INDICES);
    }

    #[test]
    fn a_table_with_more_tasks_than_a_job_can_have_is_refused() {
        let mut table = IndexReader::new(392);
        assert_eq!(table.read("392_[0-4000000]").map(|all| all.len()), Some(MAX_INDICES));
        assert_eq!((table.read("393_7"), table.read("392_7")), (Some(Vec::new()), None));
    }

    proptest! {
        #[test]
        fn any_list_is_read_without_panic(list in ".{0,80}", id in "392_.{0,40}") {
            prop_assert!(expand(&list).len() <= MAX_INDICES);
            prop_assert!(indices(&id, 392).iter().all(|index| *index <= MAX_INDEX));
        }

        #[test]
        fn what_is_written_is_read_again(ranges in proptest::collection::vec((0u32..4_000_000, 0u32..50), 0..20)) {
            let part = |(first, more): &(u32, u32)| match more {
                0 => first.to_string(),
                more => format!("{first}-{}", (first + more).min(MAX_INDEX)),
            };
            let list: Vec<String> = ranges.iter().map(part).collect();
            let expected: Vec<u32> = ranges.iter().flat_map(|(first, more)| *first..=(first + more).min(MAX_INDEX)).collect();
            prop_assert_eq!(expand(&list.join(",")), expected);
        }
    }

    mod squeue {
        use proptest::prelude::*;

        use super::super::*;

        const SAMPLE: &str = include_str!("../samples/squeue-22.05.txt");

        fn shown(table: &str, job: u64) -> Vec<String> {
            parse_squeue(table, job).unwrap().iter().map(|(index, task)| format!("{index} {task}")).collect()
        }

        #[test]
        fn queue_of_a_job_with_tasks_in_every_state() {
            assert_eq!(
                shown(SAMPLE, 22),
                [
                    "0 COMPLETED",
                    "1 FAILED (NonZeroExitCode)",
                    "2 RUNNING",
                    "3 CANCELLED",
                    "4 PENDING (JobArrayTaskLimit)"
                ]
            );
            assert!(parse_squeue("JOBID|STATE|REASON\n", 7).unwrap().is_empty());
        }

        #[test]
        fn queue_of_newer_versions() {
            for (version, table) in [
                ("24.11", include_str!("../samples/squeue-24.11.txt")),
                ("26.05", include_str!("../samples/squeue-26.05.txt")),
            ] {
                let expected = ["0 FAILED (NonZeroExitCode)", "1 FAILED (NonZeroExitCode)"];
                assert_eq!(shown(table, 100_000), expected, "Slurm {version}");
            }
        }

        #[test]
        fn tasks_that_wait_together_and_those_of_other_jobs_and_clusters() {
            let table = "CLUSTER: east\nJOBID|STATE|REASON\n7_[1,3-5%2]|PENDING|Priority\n7_0|REVOKED|None\n70_2|RUNNING|None\n";
            let waiting = ["1", "3", "4", "5"].map(|index| format!("{index} PENDING (Priority)"));
            assert_eq!(shown(table, 7), [&["0 REVOKED".to_owned()][..], &waiting].concat());
            assert!(!parse_squeue(table, 7).unwrap()[&0].state.is_over(), "another cluster runs it");
        }

        #[test]
        fn an_answer_without_its_heading_is_no_answer() {
            for answer in ["", "7_0|PENDING|Priority\n", "JOBID NAME\n7_0 x\n"] {
                assert_eq!(parse_squeue(answer, 7), None, "{answer}");
            }
        }

        #[test]
        fn states_that_we_do_not_know_are_kept() {
            let table = "JOBID|STATE|REASON\n7_0|LEVITATING|Why_not\n7_1|CANCELLED by 0|None\n";
            assert_eq!(shown(table, 7), ["0 LEVITATING (Why_not)", "1 CANCELLED by 0"]);
            assert!(!parse_squeue(table, 7).unwrap()[&0].state.is_over());
        }

        proptest! {
            #[test]
            fn any_answer_is_read_without_panic(text in "(?s).{0,200}", at in 0..SAMPLE.len(), other in "[|_0-9%\\[\\],\\n-]{0,9}") {
                parse_squeue(&text, 22);
                // ASCII, so any place is one between characters.
                let mutated = format!("{}{other}{}", &SAMPLE[..at], &SAMPLE[at..]);
                let cut = format!("{}{other}", &SAMPLE[..at]);
                for text in [mutated, cut] {
                    prop_assert!(parse_squeue(&text, 22).is_none_or(|tasks| tasks.len() <= 4_000_001));
                }
            }
        }
    }

    mod sacct {
        use proptest::prelude::*;

        use super::super::*;

        const SAMPLES: [(&str, &str); 3] = [
            ("22.05", include_str!("../samples/sacct-22.05.psv")),
            ("24.11", include_str!("../samples/sacct-24.11.psv")),
            ("26.05", include_str!("../samples/sacct-26.05.psv")),
        ];

        fn shown(table: &str, job: u64) -> Vec<String> {
            parse_sacct(table, job).unwrap().iter().map(|(index, task)| format!("{index} {task}")).collect()
        }

        #[test]
        fn accounting_of_three_versions() {
            for (version, table) in SAMPLES {
                let expected =
                    ["0 COMPLETED (exit code 0:0)", "1 FAILED (exit code 3:0)", "2 COMPLETED (exit code 0:0)"];
                assert_eq!(shown(table, 392), expected, "Slurm {version}");
                let waiting = parse_sacct(table, 397).unwrap();
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
            let half = "JobID|State|ExitCode|JobName\n394|PENDING|0:0|allocation\n7_1|PENDING|0:0|allocation\n7|PENDING|0:0|a\n";
            assert_eq!(shown(half, 7), [""; 0]);
            assert_eq!(shown(half, 394), [""; 0]);
            // Somebody's job may have that name.
            assert_eq!(
                shown("JobID|State|ExitCode|JobName\n7_1|FAILED|1:0|allocation\n", 7),
                ["1 FAILED (exit code 1:0)"]
            );
        }

        #[test]
        fn an_answer_without_its_heading_is_no_answer() {
            for answer in ["", "7_0|COMPLETED|0:0|a\n", "JobID NAME\n7_0 x\n"] {
                assert_eq!(parse_sacct(answer, 7), None, "{answer}");
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
                parse_sacct(&text, 392);
                let sample = SAMPLES[version].1;
                let mutated = format!("{}{other}{}", &sample[..at], &sample[at..]);
                let cut = format!("{}{other}", &sample[..at]);
                for text in [mutated, cut] {
                    prop_assert!(parse_sacct(&text, 392).is_none_or(|tasks| tasks.len() <= 4_000_001));
                }
            }
        }
    }
}
