//! Requests of [`Rest`] that list the tasks of arrays.

use serde_json::Value;

use super::{Rest, errno, list, number};
use crate::error::SlurmError;
use crate::queue::{MAX_INDICES, expand};
use crate::task::JobId;
use crate::task::{Queue, Task, TaskState, TasksByIndex};

impl Rest {
    /// The tasks of `jobs` that the controller remembers; those that it has forgotten are missing. One request per
    /// array: `GET job/A` names all its tasks and, unlike a list of all jobs, does not grow with the cluster.
    ///
    /// # Errors
    /// [`SlurmError`] if slurmrestd cannot be reached or refuses, or its answer does not name all the tasks that wait.
    pub fn queued(&self, jobs: &[JobId]) -> Result<Queue, SlurmError> {
        let api = self.api()?;
        let mut queue = Queue::new();
        for id in ids(jobs) {
            let answer = self.ask(&format!("slurm/{api}/job/{id}"))?;
            if answer.has(errno::NO_SUCH_JOB) {
                continue;
            }
            let body = self.checked(answer)?;
            let mut listed = queue_of(&body, id).ok_or_else(|| self.not_a_table(&body))?;
            if let Some(waiting) = &listed.cut {
                // Newer versions also have a list that is not cut.
                let answer = self.ask(&format!("slurm/{api}/jobs/state?job_id={id}"))?;
                let indices = if answer.is_success() { states_of(&answer.body, id) } else { Vec::new() };
                if indices.is_empty() {
                    return Err(self.refused(format!(
                        "it shows only a part of the tasks of {id} that wait; it has to be started with SLURM_BITSTR_LEN=0"
                    )));
                }
                for index in indices {
                    listed.tasks.entry(index).or_insert_with(|| waiting.clone());
                }
            }
            queue.extend(listed.tasks.into_iter().map(|(index, task)| ((id, index), task)));
        }
        Ok(queue)
    }

    /// The tasks of `jobs` that the accounting remembers.
    ///
    /// # Errors
    /// [`SlurmError`] if slurmrestd cannot be reached or refuses, or the cluster has no accounting.
    pub fn accounted(&self, jobs: &[JobId]) -> Result<Queue, SlurmError> {
        let api = self.api()?;
        let mut queue = Queue::new();
        for id in ids(jobs) {
            let answer = self.ask(&format!("slurmdb/{api}/job/{id}"))?;
            if answer.has(errno::NOTHING_FOUND) {
                continue;
            }
            let body = self.checked(answer)?;
            let tasks = accounting_of(&body, id).ok_or_else(|| self.not_a_table(&body))?;
            queue.extend(tasks.into_iter().map(|(index, task)| ((id, index), task)));
        }
        Ok(queue)
    }
}

fn ids(jobs: &[JobId]) -> std::collections::BTreeSet<u64> {
    jobs.iter().map(|job| job.id).collect()
}

/// The tasks that an answer names.
#[derive(Debug, Default)]
struct ListedTasks {
    tasks: TasksByIndex,
    /// State of the waiting tasks that the answer leaves out, if it is cut.
    cut: Option<Task>,
}

/// Answer of `job/A`.
fn queue_of(body: &Value, array: u64) -> Option<ListedTasks> {
    let mut listed = ListedTasks::default();
    for job in body.get("jobs")?.as_array()? {
        if unsigned(job.get("array_job_id")) != Some(array) {
            continue;
        }
        let reason = job.get("state_reason").and_then(Value::as_str).unwrap_or_default();
        let detail = if reason == "None" { String::new() } else { reason.to_owned() };
        let task = Task { state: state(job.get("job_state")?)?, detail };
        match unsigned(job.get("array_task_id")).and_then(|index| u32::try_from(index).ok()) {
            Some(index) => drop(listed.tasks.insert(index, task)),
            None => {
                let waiting = job.get("array_task_string").and_then(Value::as_str).unwrap_or_default();
                let (waiting, cut) = without_cut(waiting);
                listed.tasks.extend(expand(waiting).into_iter().map(|index| (index, task.clone())));
                if cut {
                    listed.cut = Some(task);
                }
            }
        }
    }
    Some(listed)
}

/// The list in `1,3-5%2`, and whether it is cut. slurmrestd cuts long lists in the middle of a number (`1,3-5,1...%2`):
/// then without its last item.
fn without_cut(list: &str) -> (&str, bool) {
    let list = list.split_once('%').map_or(list, |(list, _throttle)| list);
    match list.split_once("...") {
        Some((list, _)) => (list.rsplit_once(',').map_or("", |(list, _)| list), true),
        None => (list, false),
    }
}

/// Indices of the tasks that do not run, in an answer of `jobs/state`. (Slurm 24.11 gives running tasks ids that do not
/// name the array.)
fn states_of(body: &Value, array: u64) -> Vec<u32> {
    let tasks = list(body, "jobs").iter().filter_map(|job| {
        let (id, index) = job.get("job_id")?.as_str()?.split_once('_')?;
        (id.parse() == Ok(array)).then_some(index)?.parse().ok()
    });
    tasks.take(MAX_INDICES).collect()
}

/// Answer of `slurmdb/…/job/A`. Of several records of a task the last counts.
fn accounting_of(body: &Value, id: u64) -> Option<TasksByIndex> {
    let mut tasks = TasksByIndex::new();
    for job in body.get("jobs")?.as_array()? {
        let Some(array) = job.get("array").filter(|array| unsigned(array.get("job_id")) == Some(id)) else { continue };
        let state = state(job.get("state")?.get("current")?)?;
        let code = exit_code(job.get("exit_code"));
        // Slurm 22.05 gives 0 for every code.
        let detail = if state.to_string() == "FAILED" && code == "exit code 0:0" { String::new() } else { code };
        let task = Task { state, detail };
        let waiting = || array.get("task").and_then(Value::as_str).map_or_else(Vec::new, mask);
        let indices = match unsigned(array.get("task_id")).and_then(|index| u32::try_from(index).ok()) {
            Some(index) => vec![index],
            None => waiting(),
        };
        tasks.extend(indices.into_iter().map(|index| (index, task.clone())));
    }
    Some(tasks)
}

/// Indices of a mask (`0x58` is 3, 4 and 6), or of a list.
fn mask(text: &str) -> Vec<u32> {
    let Some(digits) = text.strip_prefix("0x") else { return expand(without_cut(text).0) };
    let digits = digits.split_once('%').map_or(digits, |(digits, _throttle)| digits);
    let mut indices = Vec::new();
    for (place, digit) in (0_u32..).zip(digits.chars().rev()).take(MAX_INDICES / 4 + 1) {
        let bits = digit.to_digit(16).unwrap_or(0);
        indices.extend((0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| place * 4 + bit));
    }
    indices
}

/// An exit code as sacct shows it.
fn exit_code(code: Option<&Value>) -> String {
    let of = |value: Option<&Value>| value.and_then(number).unwrap_or(0);
    let signal = code.and_then(|code| code.get("signal"));
    let signal = signal.and_then(|signal| signal.get("id").or_else(|| signal.get("signal_id")));
    format!("exit code {}:{}", of(code.and_then(|code| code.get("return_code"))), of(signal))
}

/// Flags of a state that squeue shows in its place, in order of precedence.
const SHOWN_FLAGS: [&str; 12] = [
    "COMPLETING",
    "STAGE_OUT",
    "CONFIGURING",
    "RESIZING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "STOPPED",
    "REVOKED",
    "RESV_DEL_HOLD",
    "SIGNALING",
];

/// A state from a word, or from a list of the state and its flags.
fn state(value: &Value) -> Option<TaskState> {
    let words: Vec<&str> = match value {
        Value::String(word) => vec![word],
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let flag = SHOWN_FLAGS.iter().find(|flag| words.contains(flag));
    flag.or_else(|| words.first()).map(|word| TaskState::new(*word))
}

fn unsigned(value: Option<&Value>) -> Option<u64> {
    value.and_then(number).and_then(|n| u64::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::Answer;
    use super::*;

    fn shown(tasks: &TasksByIndex) -> Vec<String> {
        tasks.iter().map(|(index, task)| format!("{index} {task}")).collect()
    }

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_array_in_two_versions() {
        for (version, job, text) in [
            ("22.05", 53, include_str!("../../samples/rest-job-22.05.json")),
            ("24.11", 37, include_str!("../../samples/rest-job-24.11.json")),
        ] {
            let listed = queue_of(&read(text), job).unwrap();
            let waiting = [3, 4, 6].map(|index| format!("{index} PENDING (JobArrayTaskLimit)"));
            let expected = ["0 COMPLETED", "1 FAILED (NonZeroExitCode)", "2 RUNNING"].map(str::to_owned);
            assert_eq!(shown(&listed.tasks), [expected.as_slice(), &waiting].concat(), "Slurm {version}");
            assert!(listed.cut.is_none() && queue_of(&read(text), 2).unwrap().tasks.is_empty());
        }
    }

    #[test]
    fn accounting_in_two_versions() {
        for (version, job, failed, text) in [
            ("22.05", 53, "1 FAILED", include_str!("../../samples/rest-accounting-22.05.json")),
            ("24.11", 37, "1 FAILED (exit code 1:0)", include_str!("../../samples/rest-accounting-24.11.json")),
        ] {
            let tasks = shown(&accounting_of(&read(text), job).unwrap());
            assert_eq!(tasks[..2], ["0 COMPLETED (exit code 0:0)", failed], "Slurm {version}");
            let states: Vec<&str> = tasks[2..].iter().filter_map(|task| task.split(" (").next()).collect();
            assert_eq!(states, ["2 RUNNING", "3 PENDING", "4 PENDING", "6 PENDING"], "Slurm {version}");
        }
    }

    #[test]
    fn a_list_that_is_cut_is_known_as_such() {
        let body = json!({"jobs": [{"array_job_id": 7, "array_task_id": null, "array_task_string": "1,4,11-13,15:2,112-11...%1",
            "job_state": "PENDING", "state_reason": "JobHeldUser"}]});
        let listed = queue_of(&body, 7).unwrap();
        assert_eq!(listed.cut.unwrap().to_string(), "PENDING (JobHeldUser)");
        assert!(
            [1, 4, 11, 12, 13].iter().all(|index| listed.tasks.contains_key(index)) && !listed.tasks.contains_key(&112)
        );
        let states = json!({"jobs": [{"job_id": "7_1", "state": ["PENDING"]}, {"job_id": "7_118"}, {"job_id": "9_3"}, {"job_id": "7"}]});
        assert_eq!(states_of(&states, 7), [1, 118]);
    }

    #[test]
    fn masks_and_lists() {
        assert_eq!(mask("0x58"), [3, 4, 6]);
        assert_eq!(mask("0x2C%1"), [2, 3, 5]);
        assert_eq!(mask("0-6:3"), [0, 3, 6]);
        assert_eq!(mask(""), [0_u32; 0]);
    }

    #[test]
    fn states_of_both_kinds() {
        for (value, word, over) in [
            (json!("RUNNING"), "RUNNING", false),
            (json!(["CANCELLED"]), "CANCELLED", true),
            (json!(["COMPLETED", "COMPLETING"]), "COMPLETING", false),
            (json!(["PENDING", "REQUEUED"]), "REQUEUED", false),
            (json!(["RUNNING", "POWER_UP_NODE"]), "RUNNING", false),
            (json!(["LEVITATING"]), "LEVITATING", false),
        ] {
            let state = state(&value).unwrap();
            assert_eq!((state.to_string().as_str(), state.is_over()), (word, over), "{value}");
        }
        assert_eq!(state(&json!([])), None);
        assert_eq!(state(&json!(7)), None);
    }

    #[test]
    fn an_answer_without_jobs_is_no_answer() {
        for body in [json!(null), json!({}), json!({"jobs": null}), json!({"jobs": {"x": 1}})] {
            assert!(queue_of(&body, 7).is_none() && accounting_of(&body, 7).is_none(), "{body}");
        }
    }

    /// JSON with the names that are looked for, and anything for their values.
    fn anything() -> impl Strategy<Value = Value> {
        let names = proptest::sample::select(vec![
            "jobs",
            "errors",
            "array",
            "array_job_id",
            "job_id",
            "array_task_id",
            "task_id",
            "array_task_string",
            "task",
            "job_state",
            "state",
            "current",
            "state_reason",
            "exit_code",
            "return_code",
            "signal",
            "id",
            "set",
            "infinite",
            "number",
            "error_number",
            "description",
            "error",
            "status",
            "code",
            "warnings",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            Just(json!(7)),
            "\\PC{0,12}".prop_map(Value::from),
            "(0x)?[0-9A-F,:.%-]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((names.clone(), inner), 0..8).prop_map(|fields| fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_answer_is_too_strange(mut body in anything(), jobs in proptest::collection::vec(anything(), 0..3), wrap in any::<bool>()) {
            if wrap {
                // Past the first look, where most of them would end.
                body = json!({"jobs": jobs.into_iter().map(|mut job| {
                    if let Value::Object(fields) = &mut job {
                        fields.insert("array_job_id".to_owned(), json!(7));
                    }
                    job
                }).collect::<Vec<_>>(), "errors": body});
            }
            let _ = queue_of(&body, 7);
            let _ = accounting_of(&body, 7);
            let _ = states_of(&body, 7);
            let answer = Answer::new(500, body.to_string().as_bytes());
            let _ = (answer.message(), answer.errors(), answer.is_passing());
        }
    }
}
