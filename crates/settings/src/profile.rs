//! `[profile]` and `[trace]`: which steps a profiler records.

use expctl_settings_derive::section;
use serde::{Deserialize, Serialize};

use crate::Settings;

/// `[profile]`: when libtorch's profiler runs, with the words of `torch.profiler.schedule`, counted from the first measured step; and what
/// is timed more finely than by stages.
#[section("profile", workloads(Graph, Array))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Measured steps in front of the profiler's warm-up, in each cycle, as of `torch.profiler.schedule`.
    #[setting(default = 0, added)]
    pub wait: u64,
    /// Steps between its set-up and the first one that is recorded.
    #[setting(default = 1, added, max = 1_000_000)]
    pub warmup: u64,
    /// Steps that are recorded; 0 runs no profiler. Trials with one have no ratios; see [profiling.md](../guide/profiling.md).
    #[setting(default = 0, added, max = 1_000_000)]
    pub active: u64,
    /// Cycles of waiting, warm-up and recorded steps, a trace for each.
    #[setting(default = 1, added, min = 1, max = 1_000_000)]
    pub repeat: u64,
    /// Ranks that record; empty is all.
    #[setting(default = [], added)]
    pub ranks: Vec<u32>,
    /// Also shapes and types of the arguments of each operation.
    #[setting(default = false, added)]
    pub record_shapes: bool,
    /// Also what each operation allocates and frees.
    #[setting(default = false, added)]
    pub memory: bool,
    /// Also where in a TorchScript module an operation was called.
    #[setting(default = false, added)]
    pub stack: bool,
    /// Time the operations inside *mask* and *collate* of samples of a graph, by edge type, in every step; needs no profiler, and takes part
    /// in ratios. See [profiling.md](../guide/profiling.md#inside-mask-and-collate).
    #[setting(default = false, added, workloads(Graph))]
    pub operations: bool,
}

/// `[trace]`: the short form.
#[section("trace", workloads(Graph, Array))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceAt {
    /// Short form: record this one step, counted from 0 with the warm-up, as the ledger counts; 0 is none.
    #[setting(default = 0, added)]
    pub at_step: u64,
}

/// Steps that are recorded into one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileWindow {
    /// Number of the cycle, from 0.
    pub cycle: u64,
    /// The profiler is set up in front of this step.
    pub prepare: u64,
    /// First step that is recorded.
    pub first: u64,
    /// Step behind the last one.
    pub end: u64,
}

impl Profile {
    /// The steps that are recorded, of a trial with so many steps of warm-up; empty where nothing is.
    pub fn windows(&self, trace: TraceAt, warmup: u64) -> Vec<ProfileWindow> {
        if trace.at_step > 0 {
            let first = trace.at_step;
            return vec![ProfileWindow { cycle: 0, prepare: first - 1, first, end: first.saturating_add(1) }];
        }
        if self.active == 0 {
            return Vec::new();
        }
        let length = self.wait.saturating_add(self.warmup).saturating_add(self.active);
        let window = |cycle: u64| {
            let prepare = warmup.saturating_add(cycle.saturating_mul(length)).saturating_add(self.wait);
            let first = prepare.saturating_add(self.warmup);
            ProfileWindow { cycle, prepare, first, end: first.saturating_add(self.active) }
        };
        (0..self.repeat).map(window).collect()
    }
}

impl Settings {
    /// The steps that a rank records; empty where it records none.
    pub fn profile_windows(&self, rank: u32) -> Vec<ProfileWindow> {
        if !self.profile.ranks.is_empty() && !self.profile.ranks.contains(&rank) {
            return Vec::new();
        }
        self.profile.windows(self.trace, self.measure.warmup)
    }

    /// Whether a profiler runs along on any rank: what it costs is in the times of the trial.
    pub fn profiles(&self) -> bool {
        !self.runs_command() && (self.profile.active > 0 || self.trace.at_step > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(profile: &Profile, at_step: u64) -> Vec<(u64, u64, u64)> {
        profile.windows(TraceAt { at_step }, 10).iter().map(|w| (w.prepare, w.first, w.end)).collect()
    }

    #[test]
    fn cycles_follow_each_other_behind_the_warm_up() {
        let profile = Profile { wait: 2, warmup: 1, active: 3, repeat: 2, ..Profile::default() };
        assert_eq!(steps(&profile, 0), [(12, 13, 16), (18, 19, 22)]);
        assert_eq!(steps(&Profile { warmup: 0, wait: 0, ..profile.clone() }, 0), [(10, 10, 13), (13, 13, 16)]);
        assert_eq!(steps(&Profile { active: 0, ..profile }, 0), []);
        assert_eq!(steps(&Profile::default(), 50), [(49, 50, 51)]);
    }
}
