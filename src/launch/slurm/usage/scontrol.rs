//! The last try of array tasks as the controller remembers it, where there is no accounting. It knows no memory and no CPU time.

use std::collections::BTreeMap;

use expctl_record::SlurmTry;

use super::values::{bytes, exit, memory_of_resources, moment, seconds, text};
use crate::launch::slurm::submitted::Submitted;
use crate::launch::slurm::tools::{Slurm, ToolError};

/// The last try of a task, and how many there were before it.
pub(super) type LastTry = (SlurmTry, u32);

impl Slurm {
    /// The last try of each task of an array that the controller still remembers.
    pub(super) fn remembered_tries(&self, array: &Submitted) -> Result<BTreeMap<u32, LastTry>, ToolError> {
        // Not --oneliner: with line ends, nothing that a user wrote can be taken for a key.
        let question = ["show".to_owned(), "job".to_owned(), array.id.to_string()];
        let answer = self.with_time_in_seconds().run("scontrol", array.cluster_option().into_iter().chain(question))?;
        Ok(parse(&answer, array.id))
    }
}

/// Blocks of `scontrol show job`, one for each task.
fn parse(answer: &str, array: u64) -> BTreeMap<u32, LastTry> {
    let mut tries = BTreeMap::new();
    let mut block: BTreeMap<&str, &str> = BTreeMap::new();
    for line in answer.lines().chain([""]) {
        if line.starts_with("JobId=") || line.trim().is_empty() {
            if block.get("ArrayJobId").is_some_and(|id| id.parse() == Ok(array))
                && let Some(task) = block.get("ArrayTaskId").and_then(|id| id.parse().ok())
            {
                tries.insert(task, one_try(&block));
            }
            block.clear();
        }
        for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
            // What follows on the line is the user's own text.
            if ["JobName", "Comment", "AdminComment", "Command", "SubmitLine", "WorkDir"].contains(&key) {
                break;
            }
            block.entry(key).or_insert(value);
        }
    }
    tries
}

fn one_try(block: &BTreeMap<&str, &str>) -> LastTry {
    let cell = |key: &str| block.get(key).copied().unwrap_or_default();
    let whole = |key: &str| seconds(cell(key)).map(|s| s as u64);
    let (exit_code, signal) = exit(cell("ExitCode"));
    let started = moment(cell("StartTime"));
    // TRES up to 22.05, AllocTRES later.
    let memory = ["AllocTRES", "TRES", "ReqTRES"].iter().find_map(|key| memory_of_resources(cell(key)));
    let last = SlurmTry {
        state: cell("JobState").to_owned(),
        exit_code,
        signal,
        reason: text(cell("Reason")),
        submitted: moment(cell("SubmitTime")),
        started,
        ended: moment(cell("EndTime")),
        elapsed_s: started.and_then(|_| whole("RunTime")),
        time_limit_s: whole("TimeLimit"),
        nodes: text(cell("NodeList")),
        cpus: cell("NumCPUs").parse().ok().filter(|n| *n > 0),
        memory_bytes: memory.or_else(|| bytes(cell("MinMemoryNode")).filter(|bytes| *bytes > 0)),
        ..SlurmTry::default()
    };
    (last, cell("Restarts").parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A task that was requeued once and one that failed; the name of the job is `x JobState=FAILED|y`.
    const SAMPLES: [(&str, &str); 3] = [
        ("22.05", include_str!("../../../../tests/slurm/samples/usage-scontrol-22.05.txt")),
        ("24.11", include_str!("../../../../tests/slurm/samples/usage-scontrol-24.11.txt")),
        ("26.05", include_str!("../../../../tests/slurm/samples/usage-scontrol-26.05.txt")),
    ];

    #[test]
    fn the_last_try_of_three_versions() {
        for (version, answer) in SAMPLES {
            let tries = parse(answer, 100_000);
            assert_eq!(tries.keys().copied().collect::<Vec<_>>(), [0, 1], "Slurm {version}");
            let (failed, restarts) = &tries[&1];
            assert_eq!((failed.state.as_str(), failed.exit_code, *restarts), ("FAILED", Some(5), 0), "Slurm {version}");
            assert_eq!(failed.reason.as_deref(), Some("NonZeroExitCode"), "Slurm {version}");
            let (again, restarts) = &tries[&0];
            assert_eq!((again.nodes.as_deref(), *restarts), (Some("n1"), 1), "Slurm {version}");
            assert_eq!((again.memory_bytes, again.time_limit_s), (Some(500 << 20), Some(300)), "Slurm {version}");
            assert!(again.started.unwrap() <= again.ended.unwrap(), "Slurm {version}");
            assert_eq!((again.max_rss_bytes, again.cpu_s), (None, None), "Slurm {version}");
            assert!(parse(answer, 100_001).is_empty(), "Slurm {version}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_panic(text in "(?s).{0,200}", at in 0..2000usize, other in "[=A-Za-z0-9 \\n-]{0,9}") {
            parse(&text, 100_000);
            let sample = SAMPLES[0].1;
            let mutated = format!("{}{other}{}", &sample[..at], &sample[at..]);
            prop_assert!(parse(&mutated, 100_000).len() <= 3);
        }
    }
}
