//! The array tasks of a job, as slurmrestd lists them. One request per array: `GET job/A` names all its tasks, and unlike a
//! list of all jobs it does not grow with the cluster.

use serde_json::Value;

use super::answer::{errno, list, number};
use super::client::Rest;
use crate::launch::slurm::submitted::Submitted;
use crate::launch::slurm::task_ids::{MOST as MAX_ARRAY, expand};
use crate::launch::slurm::tasks::{Queue, Task, TaskState, Tasks};
use crate::launch::slurm::tools::ToolError;

impl Rest {
    /// The tasks of `jobs` that the controller remembers; none of those that it has forgotten.
    ///
    /// # Errors
    /// If slurmrestd cannot be reached or says no, or its answer does not name all the tasks that wait.
    pub fn queued(&self, jobs: &[Submitted]) -> Result<Queue, ToolError> {
        let api = self.api()?;
        let mut queue = Queue::new();
        for id in ids(jobs) {
            let answer = self.ask(&format!("slurm/{api}/job/{id}"))?;
            if answer.has(errno::NO_SUCH_JOB) {
                continue;
            }
            let body = self.checked(answer)?;
            let mut listed = queue_of(&body, id).ok_or_else(|| self.unreadable(&body))?;
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

    /// The tasks of `jobs` that the accounting remembers. A cluster without accounting is no error for the caller.
    ///
    /// # Errors
    /// If slurmrestd cannot be reached or says no, or there is no accounting.
    pub fn accounted(&self, jobs: &[Submitted]) -> Result<Queue, ToolError> {
        let api = self.api()?;
        let mut queue = Queue::new();
        for id in ids(jobs) {
            let answer = self.ask(&format!("slurmdb/{api}/job/{id}"))?;
            if answer.has(errno::NOTHING_FOUND) {
                continue;
            }
            let body = self.checked(answer)?;
            let tasks = accounting_of(&body, id).ok_or_else(|| self.unreadable(&body))?;
            queue.extend(tasks.into_iter().map(|(index, task)| ((id, index), task)));
        }
        Ok(queue)
    }
}

fn ids(jobs: &[Submitted]) -> std::collections::BTreeSet<u64> {
    jobs.iter().map(|job| job.id).collect()
}

/// What an answer names.
#[derive(Debug, Default)]
struct Listed {
    tasks: Tasks,
    /// What the tasks are that wait and are left out of the answer.
    cut: Option<Task>,
}

/// Answer of `job/A`.
fn queue_of(body: &Value, array: u64) -> Option<Listed> {
    let mut listed = Listed::default();
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
                let (waiting, cut) = whole(waiting);
                listed.tasks.extend(expand(waiting).into_iter().map(|index| (index, task.clone())));
                if cut {
                    listed.cut = Some(task);
                }
            }
        }
    }
    Some(listed)
}

/// The list in `1,3-5%2`. A long list is cut, in the middle of a number: `1,3-5,1...%2`; then without its last part.
fn whole(list: &str) -> (&str, bool) {
    let list = list.split_once('%').map_or(list, |(list, _throttle)| list);
    match list.split_once("...") {
        Some((list, _)) => (list.rsplit_once(',').map_or("", |(list, _)| list), true),
        None => (list, false),
    }
}

/// Indices of the tasks that are not running, in an answer of `jobs/state`. (In Slurm 24.11 the ids of running ones are not
/// those of the array.)
fn states_of(body: &Value, array: u64) -> Vec<u32> {
    let tasks = list(body, "jobs").iter().filter_map(|job| {
        let (id, index) = job.get("job_id")?.as_str()?.split_once('_')?;
        (id.parse() == Ok(array)).then_some(index)?.parse().ok()
    });
    tasks.take(MAX_ARRAY).collect()
}

/// Answer of `slurmdb/…/job/A`. Of several records of a task the last counts.
fn accounting_of(body: &Value, id: u64) -> Option<Tasks> {
    let mut tasks = Tasks::new();
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
    let Some(digits) = text.strip_prefix("0x") else { return expand(whole(text).0) };
    let digits = digits.split_once('%').map_or(digits, |(digits, _throttle)| digits);
    let mut indices = Vec::new();
    for (place, digit) in (0_u32..).zip(digits.chars().rev()).take(MAX_ARRAY / 4 + 1) {
        let bits = digit.to_digit(16).unwrap_or(0);
        indices.extend((0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| place * 4 + bit));
    }
    indices
}

/// As sacct shows it.
fn exit_code(code: Option<&Value>) -> String {
    let of = |value: Option<&Value>| value.and_then(number).unwrap_or(0);
    let signal = code.and_then(|code| code.get("signal"));
    let signal = signal.and_then(|signal| signal.get("id").or_else(|| signal.get("signal_id")));
    format!("exit code {}:{}", of(code.and_then(|code| code.get("return_code"))), of(signal))
}

/// Flags of a state that squeue shows in its place, the upper one first.
const SHOWN: [&str; 12] = [
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

/// A state: a word, or a list of the state and its flags.
fn state(value: &Value) -> Option<TaskState> {
    let words: Vec<&str> = match value {
        Value::String(word) => vec![word],
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let flag = SHOWN.iter().find(|flag| words.contains(flag));
    flag.or_else(|| words.first()).map(|word| TaskState::new(*word))
}

fn unsigned(value: Option<&Value>) -> Option<u64> {
    value.and_then(number).and_then(|n| u64::try_from(n).ok())
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
