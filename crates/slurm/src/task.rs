//! [`JobId`]: how Slurm's commands name a job. [`Task`]: a task of its array as Slurm describes it, and the states that it can be in.

use std::collections::BTreeMap;
use std::fmt;

/// An array task, as Slurm describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// State.
    pub state: TaskState,
    /// Why it is in that state, as far as Slurm says: squeue's reason, or sacct's `exit code 1:0`. May be empty.
    pub detail: String,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() { self.state.fmt(f) } else { write!(f, "{} ({})", self.state, self.detail) }
    }
}

/// Tasks of one array, by index.
pub(crate) type TasksByIndex = BTreeMap<u32, Task>;

/// Tasks by the id of their array and by their index in it.
pub type Queue = BTreeMap<(u64, u32), Task>;

/// State of an array task, in Slurm's own word. Unknown words are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskState(String);

/// Phase of a task in some state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has not started, or not started again.
    Waiting,
    /// It holds nodes.
    Active,
    /// It has ended.
    Over,
}

/// All states that Slurm documents (base states, then the flags that are shown in their place, then those that only the
/// REST API shows), see <https://slurm.schedmd.com/job_state_codes.html>.
const STATES: [(&str, Phase); 29] = [
    ("BOOT_FAIL", Phase::Over),
    ("CANCELLED", Phase::Over),
    ("COMPLETED", Phase::Over),
    ("DEADLINE", Phase::Over),
    ("FAILED", Phase::Over),
    ("NODE_FAIL", Phase::Over),
    ("OUT_OF_MEMORY", Phase::Over),
    ("PENDING", Phase::Waiting),
    ("PREEMPTED", Phase::Over),
    ("RUNNING", Phase::Active),
    ("SUSPENDED", Phase::Active),
    ("TIMEOUT", Phase::Over),
    ("COMPLETING", Phase::Active),
    ("CONFIGURING", Phase::Waiting),
    ("EXPEDITING", Phase::Waiting),
    ("POWER_UP_NODE", Phase::Waiting),
    ("REQUEUED", Phase::Waiting),
    ("REQUEUE_FED", Phase::Waiting),
    ("REQUEUE_HOLD", Phase::Waiting),
    ("RESIZING", Phase::Active),
    ("RESV_DEL_HOLD", Phase::Waiting),
    // Another cluster of the federation has started the job: it is not over, it is elsewhere.
    ("REVOKED", Phase::Active),
    ("SIGNALING", Phase::Active),
    ("SPECIAL_EXIT", Phase::Waiting),
    ("STAGE_OUT", Phase::Active),
    ("STOPPED", Phase::Active),
    ("LAUNCH_FAILED", Phase::Active),
    ("RECONFIG_FAIL", Phase::Active),
    ("UPDATE_DB", Phase::Active),
];

impl TaskState {
    /// A state from Slurm's word for it.
    pub fn new(word: impl Into<String>) -> Self {
        Self(word.into())
    }

    /// Whether the task has ended for good. An unknown state is no end.
    pub fn is_over(&self) -> bool {
        self.phase() == Some(Phase::Over)
    }

    /// Whether somebody stopped the task on purpose.
    pub fn is_cancelled(&self) -> bool {
        self.word() == "CANCELLED"
    }

    /// Whether the task has not started yet.
    pub fn is_waiting(&self) -> bool {
        self.phase() == Some(Phase::Waiting)
    }

    /// Whether the task was put back into the queue: this run is over, the task is not.
    pub fn is_requeued(&self) -> bool {
        matches!(self.word(), "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "SPECIAL_EXIT")
    }

    /// Whether Slurm documents this word.
    pub fn is_known(&self) -> bool {
        self.phase().is_some()
    }

    /// Slurm's word, with what sacct appends to it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The word without what sacct appends (`CANCELLED by 0`).
    fn word(&self) -> &str {
        self.0.split_whitespace().next().unwrap_or_default()
    }

    fn phase(&self) -> Option<Phase> {
        STATES.iter().find(|(name, _)| *name == self.word()).map(|(_, phase)| *phase)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A job: its id and, where several clusters share an accounting, its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobId {
    /// Slurm's id.
    pub id: u64,
    /// Name of the cluster, where there are several.
    pub cluster: Option<String>,
}

impl JobId {
    /// A job of the cluster that the commands speak to by default.
    pub const fn new(id: u64) -> Self {
        Self { id, cluster: None }
    }

    /// Read an answer of `sbatch --parsable`: `id`, or `id;cluster` where there are several clusters. `None` if it is
    /// neither.
    pub fn parse(answer: &str) -> Option<Self> {
        // Sites print greetings; the answer is the last line.
        let last = answer.trim().lines().last()?.trim();
        let (id, cluster) = match last.split_once(';') {
            Some((id, cluster)) => (id, Some(cluster.to_owned())),
            None => (last, None),
        };
        Some(Self { id: id.parse().ok()?, cluster })
    }

    /// The option that leads a command to the job's cluster.
    pub(crate) fn cluster_option(&self) -> Option<String> {
        self.cluster.as_ref().map(|cluster| format!("--clusters={cluster}"))
    }

    /// Arguments of `scontrol VERB` or `scancel` about this job.
    pub(crate) fn arguments(&self, verb: Option<&str>) -> Vec<String> {
        self.cluster_option().into_iter().chain(verb.map(str::to_owned)).chain([self.id.to_string()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pick: impl Fn(&TaskState) -> bool) -> Vec<&'static str> {
        STATES.iter().map(|(name, _)| *name).filter(|name| pick(&TaskState::new(*name))).collect()
    }

    #[test]
    fn every_state_of_slurm_has_its_meaning() {
        assert_eq!(
            words(TaskState::is_over),
            [
                "BOOT_FAIL",
                "CANCELLED",
                "COMPLETED",
                "DEADLINE",
                "FAILED",
                "NODE_FAIL",
                "OUT_OF_MEMORY",
                "PREEMPTED",
                "TIMEOUT"
            ]
        );
        assert_eq!(
            words(TaskState::is_waiting),
            [
                "PENDING",
                "CONFIGURING",
                "EXPEDITING",
                "POWER_UP_NODE",
                "REQUEUED",
                "REQUEUE_FED",
                "REQUEUE_HOLD",
                "RESV_DEL_HOLD",
                "SPECIAL_EXIT"
            ]
        );
        assert_eq!(
            words(|state| !state.is_over() && !state.is_waiting()),
            [
                "RUNNING",
                "SUSPENDED",
                "COMPLETING",
                "RESIZING",
                "REVOKED",
                "SIGNALING",
                "STAGE_OUT",
                "STOPPED",
                "LAUNCH_FAILED",
                "RECONFIG_FAIL",
                "UPDATE_DB"
            ]
        );
        assert_eq!(words(TaskState::is_cancelled), ["CANCELLED"]);
        assert_eq!(words(TaskState::is_requeued), ["REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"]);
    }

    #[test]
    fn what_sacct_appends_is_shown_and_not_read() {
        let state = TaskState::new("CANCELLED by 0");
        assert!(state.is_cancelled() && state.is_over() && state.is_known());
        assert_eq!(state.to_string(), "CANCELLED by 0");
    }

    #[test]
    fn a_state_that_we_do_not_know_is_no_end() {
        for word in ["LEVITATING", "", "completed", "COMPLETED+"] {
            let state = TaskState::new(word);
            assert!(!state.is_known() && !state.is_over() && !state.is_waiting(), "{word}");
            assert_eq!(state.to_string(), word);
        }
    }

    fn east() -> JobId {
        JobId { id: 392, cluster: Some("east".to_owned()) }
    }

    #[test]
    fn answers_of_sbatch() {
        assert_eq!(JobId::parse("392\n"), Some(JobId::new(392)));
        assert_eq!(JobId::parse("Welcome to the cluster\n392\n"), Some(JobId::new(392)));
        assert_eq!(JobId::parse("392;east\n"), Some(east()));
        assert_eq!(JobId::parse("Submitted batch job 392\n"), None);
        assert_eq!(JobId::parse(""), None);
    }

    #[test]
    fn later_commands_name_the_cluster() {
        assert_eq!(east().arguments(Some("release")), ["--clusters=east", "release", "392"]);
        assert_eq!(JobId::new(392).arguments(None), ["392"]);
    }
}
