//! Tries of array tasks as the accounting keeps them.

use std::collections::BTreeMap;

use expctl_record::{SlurmStep, SlurmTry};

use super::values::{bytes, exit, memory, memory_of_resources, moment, seconds, text};
use crate::launch::slurm::accounting::is_half;
use crate::launch::slurm::submitted::Submitted;
use crate::launch::slurm::table::rows;
use crate::launch::slurm::tasks::{TaskState, by_cluster, jobs_option, unreadable};
use crate::launch::slurm::tools::{Slurm, ToolError};

/// Tries of array tasks, oldest first, by Slurm's number of their array and by array index.
pub(super) type Tries = BTreeMap<(u64, u32), Vec<SlurmTry>>;

/// What is asked for. The name is the user's, and last: a `|` in it moves no other column.
const COLUMNS: [&str; 21] = [
    "JobID",
    "State",
    "ExitCode",
    "Reason",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "NodeList",
    "ReqMem",
    "AllocTRES",
    "TimelimitRaw",
    "AllocCPUS",
    "NNodes",
    "NTasks",
    "MaxRSS",
    "MaxRSSNode",
    "MaxRSSTask",
    "AveRSS",
    "TotalCPU",
    "JobName",
];

impl Slurm {
    /// All tries of the tasks of `arrays`, with their steps, as far as they did not end before `since` (seconds since the
    /// epoch): a cluster may have used its numbers before. One question for all.
    pub(super) fn accounted_tries<'a>(
        &self,
        arrays: impl IntoIterator<Item = &'a Submitted>,
        since: i64,
    ) -> Result<Tries, ToolError> {
        let slurm = self.with_time_in_seconds();
        let mut tries = Tries::new();
        for (cluster, ids) in by_cluster(arrays) {
            let fixed = ["--duplicates", "--parsable2", "--noconvert"].map(str::to_owned);
            let format = format!("--format={}", COLUMNS.join(","));
            let table = slurm.run("sacct", cluster.into_iter().chain(fixed).chain([format, jobs_option(&ids)]))?;
            let read = parse(&table).ok_or_else(|| unreadable("sacct", &table))?;
            tries.extend(read.into_iter().filter(|((array, _), _)| ids.contains(array)));
        }
        for all in tries.values_mut() {
            all.retain(|one| one.ended.is_none_or(|ended| ended >= since));
            // Stable, so that a try without a start stays where sacct listed it.
            all.sort_by_key(|one| one.started.or(one.submitted));
        }
        Ok(tries)
    }
}

/// Rows of `sacct --parsable2`, with its heading: each task's tries, each followed by its steps.
fn parse(table: &str) -> Option<Tries> {
    let mut tries = Tries::new();
    for row in rows(table, &COLUMNS)? {
        let cell = |name: &str| COLUMNS.iter().position(|c| *c == name).map_or("", |place| row[place]);
        let Some((key, step)) = task(cell("JobID")) else { continue };
        if is_half(&TaskState::new(cell("State")), cell("JobName")) {
            continue;
        }
        match step {
            None => tries.entry(key).or_default().push(one_try(cell)),
            Some(step) => {
                // A step without its task is cut off from an answer; what is left says nothing.
                if let Some(last) = tries.get_mut(&key).and_then(|all| all.last_mut()) {
                    let step = one_step(step, cell);
                    last.max_rss_bytes = last.max_rss_bytes.max(step.max_rss_bytes);
                    last.steps.push(step);
                }
            }
        }
    }
    Some(tries)
}

/// Array, index and step of `392_4` or `392_4.batch`. Tasks that wait together (`392_[0-3]`) have nothing to tell yet.
fn task(id: &str) -> Option<((u64, u32), Option<&str>)> {
    let (array, rest) = id.split_once('_')?;
    let (index, step) = match rest.split_once('.') {
        Some((index, step)) => (index, Some(step)),
        None => (rest, None),
    };
    Some(((array.parse().ok()?, index.parse().ok()?), step))
}

fn one_try<'a>(cell: impl Fn(&str) -> &'a str) -> SlurmTry {
    let (exit_code, signal) = exit(cell("ExitCode"));
    let cpus: Option<u32> = cell("AllocCPUS").parse().ok().filter(|n| *n > 0);
    let started = moment(cell("Start"));
    SlurmTry {
        state: cell("State").to_owned(),
        exit_code,
        signal,
        reason: None,
        waited_for: text(cell("Reason")),
        submitted: moment(cell("Submit")),
        started,
        ended: moment(cell("End")),
        elapsed_s: started.and_then(|_| cell("ElapsedRaw").parse().ok()),
        time_limit_s: cell("TimelimitRaw").parse::<u64>().ok().and_then(|minutes| minutes.checked_mul(60)),
        nodes: text(cell("NodeList")),
        cpus,
        cpu_s: seconds(cell("TotalCPU")),
        memory_bytes: memory(cell("ReqMem"), cpus, cell("NNodes").parse().ok())
            .or_else(|| memory_of_resources(cell("AllocTRES"))),
        max_rss_bytes: None,
        steps: Vec::new(),
    }
}

fn one_step<'a>(step: &str, cell: impl Fn(&str) -> &'a str) -> SlurmStep {
    let (exit_code, signal) = exit(cell("ExitCode"));
    // 0: it ended before Slurm looked for the first time.
    let sampled = |name: &str| bytes(cell(name)).filter(|bytes| *bytes > 0);
    let max_rss_bytes = sampled("MaxRSS");
    SlurmStep {
        step: step.to_owned(),
        state: cell("State").to_owned(),
        exit_code,
        signal,
        started: moment(cell("Start")),
        ended: moment(cell("End")),
        elapsed_s: cell("ElapsedRaw").parse().ok(),
        nodes: text(cell("NodeList")),
        tasks: cell("NTasks").parse().ok(),
        max_rss_bytes,
        max_rss_node: max_rss_bytes.and_then(|_| text(cell("MaxRSSNode"))),
        max_rss_task: max_rss_bytes.and_then(|_| cell("MaxRSSTask").parse().ok()),
        mean_rss_bytes: sampled("AveRSS"),
        cpu_s: seconds(cell("TotalCPU")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A task that was requeued while it slept, and one that failed; both in a job whose name has a `|`.
    const SAMPLES: [(&str, &str); 3] = [
        ("22.05", include_str!("../../../../tests/slurm/samples/usage-sacct-22.05.psv")),
        ("24.11", include_str!("../../../../tests/slurm/samples/usage-sacct-24.11.psv")),
        ("26.05", include_str!("../../../../tests/slurm/samples/usage-sacct-26.05.psv")),
    ];

    #[test]
    fn tries_of_three_versions() {
        for (version, table) in SAMPLES {
            let tries = parse(table).unwrap();
            let states = |task: u32| tries[&(100_000, task)].iter().map(|t| t.state.as_str()).collect::<Vec<_>>();
            assert_eq!((states(0), states(1)), (vec!["REQUEUED", "FAILED"], vec!["FAILED"]), "Slurm {version}");
            for one in &tries[&(100_000, 0)] {
                assert_eq!(one.nodes.as_deref(), Some("n1"), "Slurm {version}");
                assert_eq!((one.memory_bytes, one.time_limit_s, one.cpus), (Some(500 << 20), Some(300), Some(1)));
                assert!((200_000_000..300_000_000).contains(&one.max_rss_bytes.unwrap()), "Slurm {version}: {one:?}");
                let (started, ended) = (one.started.unwrap(), one.ended.unwrap());
                assert!((ended - started - one.elapsed_s.unwrap() as i64).abs() <= 1, "Slurm {version}: {one:?}");
                assert!(one.cpu_s.unwrap() > 0.0, "Slurm {version}: {one:?}");
                let step = one.steps.iter().find(|s| s.step == "0").unwrap();
                assert_eq!((step.tasks, step.max_rss_task), (Some(1), Some(0)), "Slurm {version}");
                assert_eq!(step.max_rss_bytes, one.max_rss_bytes, "Slurm {version}");
            }
            let failed = &tries[&(100_000, 1)][0];
            assert_eq!((failed.exit_code, failed.signal), (Some(5), None), "Slurm {version}");
        }
    }

    #[test]
    fn what_is_not_known_is_missing_and_never_zero() {
        let head = COLUMNS.join("|");
        let table = format!(
            "{head}\n7_0|CANCELLED by 0|0:0|Priority|1795199207|Unknown|1795199208|0|None assigned|0||5|0|0|||||||a|b\n\
             7_1|PENDING|0:0||||||||||||||||||allocation\n7_2.batch|FAILED|1:0|||||||||||||||||||batch\n7_[3-9]|PENDING|0:0\n"
        );
        let tries = parse(&table).unwrap();
        assert_eq!(tries.len(), 1);
        let expected = SlurmTry {
            state: "CANCELLED by 0".into(),
            exit_code: Some(0),
            waited_for: Some("Priority".into()),
            submitted: Some(1_795_199_207),
            ended: Some(1_795_199_208),
            time_limit_s: Some(300),
            ..SlurmTry::default()
        };
        assert_eq!(tries[&(7, 0)], [expected]);
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_panic(
            text in "(?s).{0,200}",
            version in 0..3usize,
            at in 0..1000usize,
            other in "[|_0-9.%\\[\\],\\n-]{0,9}",
        ) {
            parse(&text);
            let sample = SAMPLES[version].1;
            parse(&format!("{}{other}{}", &sample[..at], &sample[at..]));
            parse(&format!("{}{other}", &sample[..at]));
        }
    }
}
