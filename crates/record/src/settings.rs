//! The resolved settings of a trial: the typed side of the config language.
//!
//! Invariants: these structs and the launcher's key table describe the same keys (a test of the launcher walks both). A
//! ledger stays readable: unknown keys are ignored here, because a newer expctl may have written them (configs are
//! checked by the launcher), and a key that is added gets `#[serde(default)]`, because an older one has not.

use serde::{Deserialize, Serialize};

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
    /// How batches are loaded.
    pub loader: Loader,
    /// Which model.
    pub model: Model,
    /// What a step does.
    pub train: Train,
    /// How much is measured.
    pub measure: Measure,
    /// When the state is kept.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// What runs it.
    pub launch: Launch,
    /// What Slurm is asked for.
    pub slurm: Slurm,
}

impl Settings {
    /// Whether steps change a state that later ones depend on; without, there is nothing to keep in a checkpoint.
    pub fn keeps_state(&self) -> bool {
        self.train.mode == Mode::Train
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
}

/// Which edges the STRING networks that ship have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Networks {
    /// The real STRING 9.1 edges, as they are.
    Real,
    /// The real edges, completed with generated ones to the edge counts of STRING 12.0.
    Completed,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// Name of the recipe: a folder in experiments/.
    pub set: String,
    /// Number of samples.
    pub samples: u64,
    /// Share of the genes, in (0, 1].
    pub scale: f64,
    /// Which edges the shipped networks have.
    pub networks: Networks,
    /// Seed of everything that is generated.
    pub seed: u64,
}

impl Data {
    /// Name of the folder that such a data set is built in: everything that determines its content.
    pub fn folder_name(&self) -> String {
        let networks = match self.networks {
            Networks::Real => "real",
            Networks::Completed => "completed",
        };
        format!("scale-{}_samples-{}_{networks}_seed-{}", self.scale, self.samples, self.seed)
    }
}

/// Which samples are candidates, by their perturbed genes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleSet {
    /// All of them, as the published DANGO script.
    #[default]
    All,
    /// Those that perturb at least one gene of a reaction, as the published lazy script.
    Metabolic,
}

impl SampleSet {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Metabolic => "metabolic",
        }
    }
}

/// Which part of all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// All of them.
    #[default]
    All,
    /// Four fifths, and what rounding leaves.
    Train,
    /// A tenth.
    Val,
    /// A tenth.
    Test,
}

impl Split {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

/// `[select]`: a split of all samples, of this the candidates by genes, of these a subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Select {
    /// Candidates.
    pub samples: SampleSet,
    /// The most samples that are taken, drawn per number of perturbed genes; 0 takes all.
    pub subset: u64,
    /// Which part.
    pub split: Split,
    /// Seed of subset and split.
    pub seed: u64,
}

impl Default for Select {
    fn default() -> Self {
        Self { samples: SampleSet::All, subset: 0, split: Split::All, seed: 42 }
    }
}

/// What a worker makes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Processor {
    /// A byte mask over all edges of each sample.
    Lazy,
    /// The graph without the perturbed genes, relabelled, for each sample; every edge is looked at.
    Subgraph,
    /// The same from the incidence of the perturbed genes.
    IncidenceSubgraph,
    /// The genes within some hops of the perturbed ones and the edges between them, relabelled.
    Neighborhood,
    /// Gene ids and gene masks, no edges.
    Perturbation,
    /// One edge index for all, and each sample's list of removed edges.
    Shared,
    /// One edge index for all, and each sample's mask of a bit per edge.
    Packed,
    /// Gene ids and labels only.
    Ids,
}

impl Processor {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Subgraph => "subgraph",
            Self::IncidenceSubgraph => "incidence_subgraph",
            Self::Neighborhood => "neighborhood",
            Self::Perturbation => "perturbation",
            Self::Shared => "shared",
            Self::Packed => "packed",
            Self::Ids => "ids",
        }
    }
}

/// What records are read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// The base store: JSON.
    #[default]
    Json,
    /// Positions of the False entries of every mask.
    Compressed,
    /// Every mask, a byte per entry.
    FullMasks,
    /// Every mask, a bit per entry.
    PackedMasks,
    /// Gene ids and labels alone.
    Ids,
}

impl StoreKind {
    /// All kinds; the base store first.
    pub const ALL: [Self; 5] = [Self::Json, Self::Compressed, Self::FullMasks, Self::PackedMasks, Self::Ids];

    /// The word used in configs, tables and folder names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Compressed => "compressed",
            Self::FullMasks => "full_masks",
            Self::PackedMasks => "packed_masks",
            Self::Ids => "ids",
        }
    }
}

/// How samples become a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collation {
    /// As PyTorch Geometric's default, which is what the published runs did: edge index replicated and offset, `batch` and
    /// `ptr` of each kind of node, `follow_batch`.
    #[default]
    Pyg,
    /// As the published LazyCollater was written (it never ran): `batch`, but neither `ptr` nor `follow_batch`.
    LazyCollater,
    /// Masks alone: the edge index stays with the graph.
    SharedIndex,
}

impl Collation {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pyg => "pyg",
            Self::LazyCollater => "lazy_collater",
            Self::SharedIndex => "shared_index",
        }
    }
}

/// Which steps lead from a perturbed gene to its neighborhood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Walk {
    /// From target to source, all steps within one edge type, and the types' results put together. This is what the
    /// published processor did: it asked PyTorch Geometric's `k_hop_subgraph` once per type, which goes against the edges,
    /// and an undirected edge is stored once. It finds fewer genes than its notes say.
    #[default]
    PerType,
    /// Along edges of any type in either direction; each step may take another type.
    Union,
}

impl Walk {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerType => "per_type",
            Self::Union => "union",
        }
    }
}

/// Masks that are made where the batch is used, from the incidence that lies there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceMasks {
    /// None.
    #[default]
    None,
    /// Sample by sample and type by type, as published in 081.
    Looped,
    /// All samples of a type at once, from a padded table of the incidence, as published in 082.
    Vectorised,
}

impl DeviceMasks {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Looped => "looped",
            Self::Vectorised => "vectorised",
        }
    }
}

/// `[pipeline]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipeline {
    /// What records are read from.
    #[serde(default)]
    pub store: StoreKind,
    /// What a worker makes of a record.
    pub processor: Processor,
    /// Hops of the neighborhood.
    #[serde(default = "one")]
    pub hops: u32,
    /// Steps of the neighborhood.
    #[serde(default)]
    pub walk: Walk,
    /// Edge types of the graph, in order.
    pub edge_types: Vec<String>,
    /// Reactions and metabolites as well.
    #[serde(default)]
    pub metabolism: bool,
    /// How samples become a batch.
    #[serde(default)]
    pub collation: Collation,
    /// Fields for which the batch names the sample of each entry.
    #[serde(default = "follow_batch_default")]
    pub follow_batch: Vec<String>,
    /// Masks that are made where the batch is used.
    #[serde(default)]
    pub device_masks: DeviceMasks,
}

impl Pipeline {
    /// This processor over these edge types; all else as in a config that says no more.
    pub fn new(processor: Processor, edge_types: Vec<String>) -> Self {
        Self {
            store: StoreKind::default(),
            processor,
            hops: 1,
            walk: Walk::default(),
            edge_types,
            metabolism: false,
            collation: Collation::default(),
            follow_batch: follow_batch_default(),
            device_masks: DeviceMasks::default(),
        }
    }
}

/// As in the main lazy script.
fn follow_batch_default() -> Vec<String> {
    ["x", "x_pert", "perturbation_indices"].map(str::to_owned).to_vec()
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

/// Which model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// DANGO: graph encoders with reconstruction, meta-embedding, hypergraph attention.
    Dango,
}

/// `[model]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Which model.
    pub kind: ModelKind,
    /// Channels.
    pub hidden: u32,
    /// Attention heads.
    pub heads: u32,
    /// Attention layers.
    pub layers: u32,
    /// Edge types that the model reads.
    pub edge_types: Vec<String>,
    /// Seed of the initial parameters.
    pub seed: u64,
}

/// What a step does after the batch has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    Data,
    /// Model and loss.
    Forward,
    /// Model, loss and gradients.
    ForwardBackward,
    /// A full training step.
    Train,
}

impl Mode {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Forward => "forward",
            Self::ForwardBackward => "forward_backward",
            Self::Train => "train",
        }
    }
}

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// AdamW (decoupled weight decay).
    Adamw,
    /// Plain stochastic gradient descent.
    Sgd,
}

/// Weight of the reconstruction loss against the interaction loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reconstruction {
    /// 1.0 falling to 0.5 over ten epochs, as published.
    LinearUntilUniform,
    /// 0.5 throughout.
    Uniform,
    /// Interaction loss only.
    Off,
}

/// `[train]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// What a step does.
    pub mode: Mode,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Its learning rate.
    pub learning_rate: f64,
    /// Its weight decay.
    pub weight_decay: f64,
    /// Largest norm of the gradient; 0 leaves it alone.
    pub clip_norm: f64,
    /// Weight of the reconstruction loss.
    pub reconstruction: Reconstruction,
}

/// `[measure]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Steps that are recorded apart and never counted.
    pub warmup: u64,
    /// Steps that are measured.
    pub steps: u64,
    /// Runs of each variant.
    pub repeats: u32,
    /// All trials in one allocation, one after another in the order of the plan.
    #[serde(default)]
    pub interleave: bool,
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
