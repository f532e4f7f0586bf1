use serde::{Deserialize, Serialize};

/// What made an attempt end before its last step, as far as that decides what another attempt needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A rank met an error and said so: a defect, a setting, data. It would meet it again.
    Error,
    /// A process crashed, or something outside killed it.
    Killed,
    /// It took more memory than it had asked for.
    OutOfMemory,
    /// Its node was lost, or could not start it.
    Node,
    /// It reached its time limit.
    TimeLimit,
    /// It had to make room for another job.
    Preempted,
    /// It made no step any more.
    Hang,
    /// The ledger could not be written.
    Storage,
    /// Its data could not be built.
    Data,
    /// Somebody stopped it.
    Cancelled,
}

impl Cause {
    /// The words used in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Killed => "killed",
            Self::OutOfMemory => "out of memory",
            Self::Node => "node lost",
            Self::TimeLimit => "time limit",
            Self::Preempted => "preempted",
            Self::Hang => "hang",
            Self::Storage => "ledger not writable",
            Self::Data => "no data",
            Self::Cancelled => "cancelled",
        }
    }

    /// What Slurm's word for the end of a task means; none if the word says nothing about it (FAILED, COMPLETED).
    pub fn of_slurm(state: &str, reason: &str) -> Option<Self> {
        // sacct appends who it was: `CANCELLED by 0`.
        let state = state.split_whitespace().next().unwrap_or_default();
        Some(match (state, reason) {
            ("OUT_OF_MEMORY", _) => Self::OutOfMemory,
            ("NODE_FAIL" | "BOOT_FAIL", _) | (_, "JobLaunchFailure" | "NodeDown") => Self::Node,
            ("TIMEOUT" | "DEADLINE", _) | (_, "TimeLimit") => Self::TimeLimit,
            ("PREEMPTED", _) => Self::Preempted,
            (_, "DependencyNeverSatisfied") => Self::Data,
            ("CANCELLED", _) => Self::Cancelled,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_words_for_an_end() {
        assert_eq!(Cause::of_slurm("OUT_OF_MEMORY", "OutOfMemory"), Some(Cause::OutOfMemory));
        assert_eq!(Cause::of_slurm("NODE_FAIL", "None"), Some(Cause::Node));
        assert_eq!(Cause::of_slurm("FAILED", "JobLaunchFailure"), Some(Cause::Node));
        assert_eq!(Cause::of_slurm("TIMEOUT", "TimeLimit"), Some(Cause::TimeLimit));
        assert_eq!(Cause::of_slurm("CANCELLED", "DependencyNeverSatisfied"), Some(Cause::Data));
        assert_eq!(Cause::of_slurm("CANCELLED", "None"), Some(Cause::Cancelled));
        assert_eq!(Cause::of_slurm("FAILED", "NonZeroExitCode"), None);
    }
}
