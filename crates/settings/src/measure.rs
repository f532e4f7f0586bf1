//! `[measure]`, `[profile]` and `[trace]`: how many steps are measured, and which of them a profiler records.

use expctl_settings_derive::{Words, section};
use serde::{Deserialize, Serialize};

use crate::Settings;

/// `[measure]`
#[section("measure")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Steps before the measured ones; recorded, never counted.
    #[setting(derived = "10, or the batches that are loaded ahead, if more")]
    pub warmup: u64,
    /// Steps that are measured.
    #[setting(derived = "100; with epochs what these have, less the warm-up", min = 1)]
    pub steps: u64,
    /// Epochs that are measured, the warm-up included, in place of `steps`; 0 goes by the steps. Training runs have `train.epochs`.
    #[setting(default = 0, added)]
    pub epochs: u64,
    /// Runs of each variant; with one there is no verdict.
    #[setting(default = 3, min = 1, not_run)]
    pub repeats: u32,
    /// On Slurm: run all trials one after another in one allocation, A B A B …, so that variants share their nodes;
    /// ratios are of pairs by repeat, also on this machine.
    #[setting(default = false, added, per_job, not_run)]
    pub interleave: bool,
    /// Seconds from one hardware sample of a rank (processor time, memory, disk, GPU) to the next, 0.1 or more; 0 takes none.
    #[setting(default = 1.0, added, min = 0.0)]
    pub sample_every_s: f64,
    /// Drop the files of the store, or of the array, from the page cache of each node before the first step of each run, so that they are
    /// read from the disk ([what that can do](../guide/reading-results.md#cold-page-cache)).
    #[setting(default = false, added)]
    pub cold_cache: bool,
}

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

/// A published way to make a rate, which a note shows beside the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Words)]
pub enum Estimator {
    /// Experiment 087: the timer of a step starts after its batch has arrived from the loader.
    TimerAfterArrival,
    /// Experiment 086: the mean of the last 20 rates that a progress bar printed.
    #[word("last_20")]
    Last20,
}

impl Estimator {
    /// The label of its figures, which says what the rate leaves out.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TimerAfterArrival => "starts after the batch has arrived; fetch, masks and collation are not in it",
            Self::Last20 => {
                "mean of the last 20 rates of a progress bar that counts rank 0's steps from the start of the epoch, \
                 warm-up included; the published ones also took values of the validation bar, which are not made up here"
            }
        }
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
