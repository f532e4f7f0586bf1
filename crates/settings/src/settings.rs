//! The resolved settings of a trial: the typed side of the config language.
//!
//! Invariants: these structs and the launcher's key table describe the same keys (a test of the launcher walks both). A
//! ledger stays readable: unknown keys are ignored here, because a newer expctl may have written them (configs are
//! checked by the launcher), and a key that is added gets `#[serde(default)]`, because an older one has not.

use serde::{Deserialize, Serialize};

use crate::{
    Array, ArrayFormat, BackendChoice, Data, DeviceChoice, Mode, Model, Pipeline, Profile, Sampler, Select, TraceAt,
    Train, Worker,
};

/// All settings of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What the experiment is about.
    pub experiment: Experiment,
    /// Which data.
    pub data: Data,
    /// Which of its samples.
    #[serde(default)]
    pub select: Select,
    /// How a sample is made from a record.
    pub pipeline: Pipeline,
    /// Rows of an array in place of records.
    #[serde(default)]
    pub array: Array,
    /// Which of its rows comes when.
    #[serde(default)]
    pub sampler: Sampler,
    /// How batches are loaded.
    pub loader: Loader,
    /// Which model.
    pub model: Model,
    /// What a step does.
    pub train: Train,
    /// How much is measured.
    pub measure: Measure,
    /// Which steps a profiler records.
    #[serde(default)]
    pub profile: Profile,
    /// The short form of that.
    #[serde(default)]
    pub trace: TraceAt,
    /// When the state is kept.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// What runs as its ranks.
    #[serde(default)]
    pub worker: Worker,
    /// How many ranks, and how long they wait for each other.
    pub launch: Launch,
    /// What Slurm is asked for.
    pub slurm: Slurm,
}

impl Settings {
    /// Whether the trial reads rows of an array, and not samples of a graph.
    pub fn reads_array(&self) -> bool {
        self.array.format != ArrayFormat::None
    }

    /// Batches of a rank that a block of the sampler makes, not always a whole number: loaders that read a block at once have a slow
    /// step so often. None where rows are drawn one by one, where nothing is read, and where the length of a chunk is the store's.
    pub fn block_steps(&self) -> Option<f64> {
        let Sampler { draw, chunk_rows, chunks, .. } = self.sampler;
        let reads = self.reads_array() && !self.array.memory && draw == crate::Draw::Chunked;
        let rows = chunk_rows as f64 * chunks as f64;
        (reads && rows > 0.0 && self.loader.batch_size > 0).then(|| rows / self.loader.batch_size as f64)
    }

    /// Whether steps compute a model of expctl's own worker. Without, the settings of model and training have no effect.
    pub fn computes_model(&self) -> bool {
        !self.runs_command() && self.train.mode != Mode::Data
    }

    /// Whether steps change a state that later ones depend on; without, there is nothing to keep in a checkpoint.
    pub fn keeps_state(&self) -> bool {
        !self.runs_command() && self.train.mode.steps_parameters()
    }

    /// Threads that a rank keeps busy: those of its loader and those inside an operation of its step.
    pub fn threads_per_rank(&self) -> u32 {
        self.loader.workers + self.launch.threads
    }

    /// Whether a program of the user's runs as the ranks, and not `expctl-worker`.
    pub fn runs_command(&self) -> bool {
        !self.worker.command.is_empty()
    }

    /// Whether a second run of the trial goes on where the first one was stopped.
    pub fn can_resume(&self) -> bool {
        let Checkpoint { every_steps, every_min, on_signal } = self.checkpoint;
        self.keeps_state() && (on_signal || every_steps > 0 || every_min > 0)
    }
}

/// `[experiment]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experiment {
    /// Folder in experiments/.
    pub study: String,
    /// One line for the note.
    pub title: String,
    /// What the experiment asks.
    pub description: String,
    /// What the figures contain.
    pub measures: Vec<String>,
    /// What they do not contain.
    pub does_not_measure: Vec<String>,
    /// Name of the note that this one continues; empty for none.
    #[serde(default)]
    pub continues: String,
    /// Names of other notes that this one links.
    #[serde(default)]
    pub links: Vec<String>,
}

/// `[loader]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loader {
    /// Samples per rank and step.
    pub batch_size: u64,
    /// Loader threads per rank; 0 loads on the step's own thread.
    pub workers: u32,
    /// Batches that each thread may be ahead.
    pub prefetch_factor: u32,
    /// Copy batches into page-locked memory (where there is a device to copy to).
    pub pin_memory: bool,
    /// A new order in each epoch.
    pub shuffle: bool,
    /// Leave out the samples that do not fill all ranks, and the last batch that is not full.
    pub drop_last: bool,
    /// Seed of the order.
    pub seed: u64,
    /// The most MiB of batches that a rank holds, in the making, ready and in the step; 0 is its share of six tenths of the
    /// free memory.
    #[serde(default)]
    pub buffer_mib: u64,
}

/// `[measure]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Steps that are recorded apart and never counted.
    pub warmup: u64,
    /// Steps that are measured.
    pub steps: u64,
    /// Epochs that the steps were taken from, the warm-up included; 0 where steps were given.
    #[serde(default)]
    pub epochs: u64,
    /// Runs of each variant.
    pub repeats: u32,
    /// All trials in one allocation, one after another in the order of the plan.
    #[serde(default)]
    pub interleave: bool,
    /// Seconds from one hardware sample to the next; 0 takes none.
    #[serde(default = "sample_every_default")]
    pub sample_every_s: f64,
    /// Drop the files that the steps read from the page cache before the first step of each run.
    #[serde(default)]
    pub cold_cache: bool,
}

/// As in the launcher's key table: jobs that are older than the key differ from later ones in nothing that is timed.
const fn sample_every_default() -> f64 {
    1.0
}

/// `[checkpoint]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// After every so many steps; 0 is never.
    pub every_steps: u64,
    /// After every so many minutes; 0 is never.
    pub every_min: u64,
    /// When the ranks are told to stop.
    pub on_signal: bool,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { every_steps: 0, every_min: 0, on_signal: true }
    }
}

/// `[launch]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Processes of a trial.
    pub ranks: u32,
    /// Nodes that they are spread over, the same number on each.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Threads of libtorch inside one operation, per rank.
    pub threads: u32,
    /// What they compute on.
    #[serde(default)]
    pub device: DeviceChoice,
    /// What they exchange tensors with.
    #[serde(default)]
    pub backend: BackendChoice,
    /// Seconds for all ranks to appear.
    pub rendezvous_timeout_s: u64,
    /// Seconds without a sign of life after which a rank counts as lost.
    pub heartbeat_timeout_s: u64,
    /// Seconds in one step after which a rank counts as stuck; 0 does not watch for that.
    #[serde(default = "hang_timeout_default")]
    pub hang_timeout_s: u64,
}

/// As in the launcher's key table: jobs that are older than the key differ from later ones in nothing.
const fn hang_timeout_default() -> u64 {
    600
}

const fn one() -> u32 {
    1
}

/// `[slurm]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slurm {
    /// Partition; empty leaves it to the cluster.
    pub partition: String,
    /// Account; empty leaves it to the cluster.
    pub account: String,
    /// Processors per rank.
    pub cpus_per_rank: u32,
    /// Memory of a trial with all its ranks in MiB; 0 leaves it to the cluster.
    pub memory_mib: u64,
    /// Time limit in minutes; 0 leaves it to the partition.
    pub time_min: u64,
    /// Tasks of the array that may run at once; 0 is no limit.
    pub throttle: u32,
    /// Times that a trial that keeps checkpoints goes back into the queue at its time limit.
    #[serde(default)]
    pub requeues: u32,
    /// Name of the cluster profile; empty is none.
    #[serde(default)]
    pub profile: String,
    /// Quality of service; empty leaves it to the cluster.
    #[serde(default)]
    pub qos: String,
    /// Features that a node must have; empty asks for none.
    #[serde(default)]
    pub constraint: String,
    /// Whole nodes, shared with no other job.
    #[serde(default)]
    pub exclusive: bool,
    /// GPUs per rank; 0 asks for none.
    #[serde(default)]
    pub gpus_per_rank: u32,
    /// Type of the GPUs; empty takes any.
    #[serde(default)]
    pub gpu_type: String,
    /// Container image that the ranks run in; empty runs them outside.
    #[serde(default)]
    pub image: String,
}
