//! `[loader]`, `[measure]` and `[checkpoint]`: how batches are loaded, how many steps are measured, when training state is saved.

use expctl_settings_derive::section;
use serde::{Deserialize, Serialize};

/// `[loader]`
#[section("loader")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loader {
    /// Samples per rank and step.
    #[setting(required, min = 1)]
    pub batch_size: u64,
    /// Loader threads per rank; 0 loads on the step's own thread.
    #[setting(default = 0)]
    pub workers: u32,
    /// Batches that each thread may be ahead.
    #[setting(default = 2, min = 1)]
    pub prefetch_factor: u32,
    /// Copy batches into page-locked memory, for a GPU to copy from; without effect where ranks compute on the host.
    #[setting(default = false)]
    pub pin_memory: bool,
    /// A new order in each epoch; of an array `sampler.draw` says it.
    #[setting(default = true, workloads(Graph, Program))]
    pub shuffle: bool,
    /// Leave out the samples that do not fill all ranks, and the last batch that is not full.
    #[setting(default = false)]
    pub drop_last: bool,
    /// Seed of the order; with `train.epochs` repeat r has this + r − 1.
    #[setting(default = 42)]
    pub seed: u64,
    /// The most MiB of batches that a rank holds, in the making, ready and in the step; 0 is its share of six tenths of the free memory.
    #[setting(default = 0, added)]
    pub buffer_mib: u64,
}

/// Samples of each rank in an epoch of `samples`, as PyTorch's `DistributedSampler` deals them.
pub const fn samples_per_rank(samples: u64, ranks: u32, drop_last: bool) -> u64 {
    let ranks = ranks as u64;
    if drop_last && !samples.is_multiple_of(ranks) {
        // ceil((samples - ranks) / ranks); a data set smaller than the number of ranks yields none.
        samples.saturating_sub(ranks).div_ceil(ranks)
    } else {
        samples.div_ceil(ranks)
    }
}

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
    /// On Slurm: run all trials one after another in one allocation, A B A B …, so that variants share their nodes.
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

/// `[checkpoint]`
#[section("checkpoint", workloads(Graph, Array), not_run)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Keep the state of training after every so many steps; 0 is never.
    #[setting(default = 0)]
    pub every_steps: u64,
    /// Keep it after every so many minutes; 0 is never.
    #[setting(default = 0, max = 1_000_000)]
    pub every_min: u64,
    /// Keep it when the ranks are told to stop (TERM).
    #[setting(default = true)]
    pub on_signal: bool,
}
