//! [`TaskRun`]: what Slurm measured of each run of an array task, as `sacct` and `scontrol` print it.

use std::collections::BTreeMap;

use crate::queue::{is_unfilled, rows};
use crate::task::TaskState;

/// One run of an array task; a task that is requeued has several. Times are those of Slurm's controller, in whole
/// seconds. What Slurm does not say is `None`, never 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskRun {
    /// State: `COMPLETED`, `FAILED`, `REQUEUED`, `CANCELLED by 0`, …
    pub state: TaskState,
    /// Exit code of the batch script.
    pub exit_code: Option<i32>,
    /// Signal that ended the batch script.
    pub signal: Option<i32>,
    /// Why it ended, in Slurm's word (`NonZeroExitCode`, `TimeLimit`); only the controller knows it.
    pub reason: Option<String>,
    /// Its last reason for waiting (`Priority`, `Resources`); only the accounting keeps it.
    pub waited_for: Option<String>,
    /// Put into the queue, seconds since the epoch.
    pub submitted: Option<i64>,
    /// Start, seconds since the epoch; `None` if it never started.
    pub started: Option<i64>,
    /// End, seconds since the epoch.
    pub ended: Option<i64>,
    /// From start to end, less suspension, seconds.
    pub elapsed_s: Option<u64>,
    /// Time limit, seconds; `None` without one.
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
    /// Steps, in Slurm's order: one for each `srun`, beside `batch` (the script itself) and `extern`.
    pub steps: Vec<JobStep>,
}

/// A step of a run. Slurm samples memory (every 30 s, unless the cluster says otherwise), so a step of a few seconds
/// may have none, and a short peak may be missed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobStep {
    /// `0`, `1`, …, `batch` or `extern`.
    pub step: String,
    /// State.
    pub state: TaskState,
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
    /// Mean over the tasks of their largest resident sets, bytes. Times `tasks`, it is what all ranks needed together
    /// at most.
    pub mean_rss_bytes: Option<u64>,
    /// User and system time of its processes, seconds.
    pub cpu_s: Option<f64>,
}

/// Runs of array tasks, oldest first, by the id of their array and by their index in it.
pub type TaskRuns = BTreeMap<(u64, u32), Vec<TaskRun>>;

/// The last run of a task as the controller remembers it. The controller knows neither used memory nor CPU time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastRun {
    /// The run.
    pub run: TaskRun,
    /// Number of requeues before.
    pub restarts: u32,
}

/// Columns that `sacct` is asked for. The name is the user's, and last: a `|` in it moves no other column.
pub(crate) const COLUMNS: [&str; 21] = [
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

/// The runs in an answer of `sacct --duplicates --parsable2`: each run of a task is followed by its steps. `None`
/// without the heading.
pub(crate) fn parse_sacct(table: &str) -> Option<TaskRuns> {
    let mut runs = TaskRuns::new();
    for row in rows(table, &COLUMNS)? {
        let cell = |name: &str| COLUMNS.iter().position(|c| *c == name).map_or("", |position| row[position]);
        let Some((key, step)) = task(cell("JobID")) else { continue };
        if is_unfilled(&TaskState::new(cell("State")), cell("JobName")) {
            continue;
        }
        match step {
            None => runs.entry(key).or_default().push(run_from_row(cell)),
            Some(step) => {
                // The answer was cut off before the row of the task.
                if let Some(last) = runs.get_mut(&key).and_then(|all| all.last_mut()) {
                    let step = step_from_row(step, cell);
                    last.max_rss_bytes = last.max_rss_bytes.max(step.max_rss_bytes);
                    last.steps.push(step);
                }
            }
        }
    }
    Some(runs)
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

fn run_from_row<'a>(cell: impl Fn(&str) -> &'a str) -> TaskRun {
    let (exit_code, signal) = exit(cell("ExitCode"));
    let cpus: Option<u32> = cell("AllocCPUS").parse().ok().filter(|n| *n > 0);
    let started = moment(cell("Start"));
    TaskRun {
        state: TaskState::new(cell("State")),
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

fn step_from_row<'a>(step: &str, cell: impl Fn(&str) -> &'a str) -> JobStep {
    let (exit_code, signal) = exit(cell("ExitCode"));
    // 0: the step ended before Slurm took its first sample.
    let sampled = |name: &str| bytes(cell(name)).filter(|bytes| *bytes > 0);
    let max_rss_bytes = sampled("MaxRSS");
    JobStep {
        step: step.to_owned(),
        state: TaskState::new(cell("State")),
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

/// The last run of each task of `array` in an answer of `scontrol show job`: a block for each task.
pub(crate) fn parse_scontrol(answer: &str, array: u64) -> BTreeMap<u32, LastRun> {
    let mut runs = BTreeMap::new();
    let mut block: BTreeMap<&str, &str> = BTreeMap::new();
    for line in answer.lines().chain([""]) {
        if line.starts_with("JobId=") || line.trim().is_empty() {
            if block.get("ArrayJobId").is_some_and(|id| id.parse() == Ok(array))
                && let Some(task) = block.get("ArrayTaskId").and_then(|id| id.parse().ok())
            {
                runs.insert(task, run_from_block(&block));
            }
            block.clear();
        }
        for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
            // The rest of the line is the user's own text.
            if ["JobName", "Comment", "AdminComment", "Command", "SubmitLine", "WorkDir"].contains(&key) {
                break;
            }
            block.entry(key).or_insert(value);
        }
    }
    runs
}

fn run_from_block(block: &BTreeMap<&str, &str>) -> LastRun {
    let cell = |key: &str| block.get(key).copied().unwrap_or_default();
    let whole = |key: &str| seconds(cell(key)).map(|s| s as u64);
    let (exit_code, signal) = exit(cell("ExitCode"));
    let started = moment(cell("StartTime"));
    // TRES up to 22.05, AllocTRES later.
    let memory = ["AllocTRES", "TRES", "ReqTRES"].iter().find_map(|key| memory_of_resources(cell(key)));
    let last = TaskRun {
        state: TaskState::new(cell("JobState")),
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
        ..TaskRun::default()
    };
    LastRun { run: last, restarts: cell("Restarts").parse().unwrap_or(0) }
}

/// A text; `None` for Slurm's words for nothing.
fn text(cell: &str) -> Option<String> {
    let nothing = ["", "None", "Unknown", "(null)", "N/A", "n/a", "None assigned"];
    (!nothing.contains(&cell)).then(|| cell.to_owned())
}

/// Seconds since the epoch, as commands print them with `SLURM_TIME_FORMAT=%s`.
fn moment(cell: &str) -> Option<i64> {
    cell.parse().ok().filter(|seconds| *seconds > 0)
}

/// Bytes: `213729280`, `2956K`, `1.50G`. Slurm's units are powers of 1024.
fn bytes(cell: &str) -> Option<u64> {
    let digits = cell.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &cell[digits.len()..] {
        "" | "B" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        "P" => 1 << 50,
        _ => return None,
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let value = digits.parse::<f64>().ok()? * unit as f64;
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

/// Requested memory, bytes. Up to 20.11 it was per CPU (`4Gc`) or per node (`4Gn`), later it is for the whole job.
fn memory(cell: &str, cpus: Option<u32>, nodes: Option<u32>) -> Option<u64> {
    let (amount, times) = match (cell.strip_suffix('c'), cell.strip_suffix('n')) {
        (Some(amount), _) => (amount, cpus?),
        (_, Some(amount)) => (amount, nodes?),
        _ => (cell, 1),
    };
    // 0: all memory of the node.
    bytes(amount)?.checked_mul(u64::from(times)).filter(|bytes| *bytes > 0)
}

/// The memory in a list of resources: `billing=1,cpu=1,mem=500M,node=1`.
fn memory_of_resources(list: &str) -> Option<u64> {
    list.split(',').find_map(|one| bytes(one.strip_prefix("mem=")?))
}

/// Seconds: `00:00.215`, `01:02:03`, `2-01:02:03`.
fn seconds(cell: &str) -> Option<f64> {
    let (days, clock) = match cell.split_once('-') {
        Some((days, clock)) => (days.parse::<u32>().ok()?, clock),
        None => (0, cell),
    };
    let mut total = 0.0;
    let mut fields = 0;
    for field in clock.split(':') {
        let value: f64 = field.parse().ok()?;
        if !field.starts_with(|c: char| c.is_ascii_digit()) || !value.is_finite() {
            return None;
        }
        total = total * 60.0 + value;
        fields += 1;
    }
    (2..=3).contains(&fields).then_some(f64::from(days) * 86_400.0 + total)
}

/// Exit code and signal: `5:0`, `0:9`.
fn exit(cell: &str) -> (Option<i32>, Option<i32>) {
    match cell.split_once(':') {
        Some((code, signal)) => (code.parse().ok(), signal.parse().ok().filter(|signal| *signal != 0)),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        let read =
            ["213729280", "2956K", "500M", "1.50G", "0", "", "16?", "-1", "4X", "18446744073709551615K"].map(bytes);
        let (k, m) = (1024, 1024 * 1024);
        let expected =
            [Some(213_729_280), Some(2956 * k), Some(500 * m), Some(1536 * m), Some(0), None, None, None, None, None];
        assert_eq!(read, expected);
        assert_eq!(memory("4Gc", Some(8), Some(2)), Some(32 << 30));
        assert_eq!(memory("4Gn", Some(8), Some(2)), Some(8 << 30));
        assert_eq!((memory("0", Some(8), Some(2)), memory("4Gc", None, None)), (None, None));
        assert_eq!(memory_of_resources("billing=4,cpu=4,gres/gpu=4,mem=200M,node=2"), Some(200 * m));
        assert_eq!(memory_of_resources("billing=4"), None);
    }

    #[test]
    fn times() {
        let read = ["00:00.215", "01:02:03", "2-01:02:03", "UNLIMITED", "Partition_Limit", "7", "", "-1:0:0", "1:-2"];
        let expected = [Some(0.215), Some(3723.0), Some(176_523.0), None, None, None, None, None, None];
        assert_eq!(read.map(seconds), expected);
        assert_eq!(
            ["1795199208", "Unknown", "None", "2026-11-20T13:26:24", "0"].map(moment)[..2],
            [Some(1_795_199_208), None]
        );
    }

    #[test]
    fn codes_and_words_for_nothing() {
        assert_eq!([exit("5:0"), exit("0:15"), exit("")], [(Some(5), None), (Some(0), Some(15)), (None, None)]);
        assert_eq!(text("None assigned"), None);
        assert_eq!(text("n[1-2]").as_deref(), Some("n[1-2]"));
    }

    proptest! {
        #[test]
        fn any_cell_is_read_without_panic(cell in "(?s)[-0-9.:eKMGcn]{0,24}|.{0,12}") {
            let _ = (text(&cell), moment(&cell), bytes(&cell), exit(&cell), memory_of_resources(&cell));
            prop_assert!(seconds(&cell).is_none_or(|s| s.is_finite() && s >= 0.0));
            let _ = memory(&cell, Some(u32::MAX), Some(u32::MAX));
        }
    }

    mod sacct {
        use proptest::prelude::*;

        use super::super::*;

        /// A task that was requeued while it slept, and one that failed; both in a job whose name has a `|`.
        const SAMPLES: [(&str, &str); 3] = [
            ("22.05", include_str!("../samples/usage-sacct-22.05.psv")),
            ("24.11", include_str!("../samples/usage-sacct-24.11.psv")),
            ("26.05", include_str!("../samples/usage-sacct-26.05.psv")),
        ];

        #[test]
        fn runs_of_three_versions() {
            for (version, table) in SAMPLES {
                let runs = parse_sacct(table).unwrap();
                let states = |task: u32| runs[&(100_000, task)].iter().map(|t| t.state.as_str()).collect::<Vec<_>>();
                assert_eq!((states(0), states(1)), (vec!["REQUEUED", "FAILED"], vec!["FAILED"]), "Slurm {version}");
                for one in &runs[&(100_000, 0)] {
                    assert_eq!(one.nodes.as_deref(), Some("n1"), "Slurm {version}");
                    assert_eq!((one.memory_bytes, one.time_limit_s, one.cpus), (Some(500 << 20), Some(300), Some(1)));
                    assert!(
                        (200_000_000..300_000_000).contains(&one.max_rss_bytes.unwrap()),
                        "Slurm {version}: {one:?}"
                    );
                    let (started, ended) = (one.started.unwrap(), one.ended.unwrap());
                    assert!((ended - started - one.elapsed_s.unwrap() as i64).abs() <= 1, "Slurm {version}: {one:?}");
                    assert!(one.cpu_s.unwrap() > 0.0, "Slurm {version}: {one:?}");
                    let step = one.steps.iter().find(|s| s.step == "0").unwrap();
                    assert_eq!((step.tasks, step.max_rss_task), (Some(1), Some(0)), "Slurm {version}");
                    assert_eq!(step.max_rss_bytes, one.max_rss_bytes, "Slurm {version}");
                }
                let failed = &runs[&(100_000, 1)][0];
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
            let runs = parse_sacct(&table).unwrap();
            assert_eq!(runs.len(), 1);
            let expected = TaskRun {
                state: TaskState::new("CANCELLED by 0"),
                exit_code: Some(0),
                waited_for: Some("Priority".into()),
                submitted: Some(1_795_199_207),
                ended: Some(1_795_199_208),
                time_limit_s: Some(300),
                ..TaskRun::default()
            };
            assert_eq!(runs[&(7, 0)], [expected]);
        }

        proptest! {
            #[test]
            fn any_answer_is_read_without_panic(
                text in "(?s).{0,200}",
                version in 0..3usize,
                at in 0..1000usize,
                other in "[|_0-9.%\\[\\],\\n-]{0,9}",
            ) {
                parse_sacct(&text);
                let sample = SAMPLES[version].1;
                parse_sacct(&format!("{}{other}{}", &sample[..at], &sample[at..]));
                parse_sacct(&format!("{}{other}", &sample[..at]));
            }
        }
    }

    mod scontrol {
        use proptest::prelude::*;

        use super::super::*;

        /// A task that was requeued once and one that failed; the name of the job is `x JobState=FAILED|y`.
        const SAMPLES: [(&str, &str); 3] = [
            ("22.05", include_str!("../samples/usage-scontrol-22.05.txt")),
            ("24.11", include_str!("../samples/usage-scontrol-24.11.txt")),
            ("26.05", include_str!("../samples/usage-scontrol-26.05.txt")),
        ];

        #[test]
        fn the_last_try_of_three_versions() {
            for (version, answer) in SAMPLES {
                let runs = parse_scontrol(answer, 100_000);
                assert_eq!(runs.keys().copied().collect::<Vec<_>>(), [0, 1], "Slurm {version}");
                let LastRun { run: failed, restarts } = &runs[&1];
                assert_eq!(
                    (failed.state.as_str(), failed.exit_code, *restarts),
                    ("FAILED", Some(5), 0),
                    "Slurm {version}"
                );
                assert_eq!(failed.reason.as_deref(), Some("NonZeroExitCode"), "Slurm {version}");
                let LastRun { run: again, restarts } = &runs[&0];
                assert_eq!((again.nodes.as_deref(), *restarts), (Some("n1"), 1), "Slurm {version}");
                assert_eq!((again.memory_bytes, again.time_limit_s), (Some(500 << 20), Some(300)), "Slurm {version}");
                assert!(again.started.unwrap() <= again.ended.unwrap(), "Slurm {version}");
                assert_eq!((again.max_rss_bytes, again.cpu_s), (None, None), "Slurm {version}");
                assert!(parse_scontrol(answer, 100_001).is_empty(), "Slurm {version}");
            }
        }

        proptest! {
            #[test]
            fn any_answer_is_read_without_panic(text in "(?s).{0,200}", at in 0..2000usize, other in "[=A-Za-z0-9 \\n-]{0,9}") {
                parse_scontrol(&text, 100_000);
                let sample = SAMPLES[0].1;
                let mutated = format!("{}{other}{}", &sample[..at], &sample[at..]);
                prop_assert!(parse_scontrol(&mutated, 100_000).len() <= 3);
            }
        }
    }
}
