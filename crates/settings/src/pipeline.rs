//! `[pipeline]` and `[loader]`: how a sample is made from a record and a batch from samples, and how batches are loaded ahead of the step.

use expctl_settings_derive::{Words, section};
use serde::{Deserialize, Serialize};

use crate::{GraphType, MergeError, graph_types};

/// The processor: how a loader thread makes a sample from a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Processor {
    /// A byte mask over all edges of each sample.
    Lazy,
    /// The graph without the perturbed genes, relabelled, for each sample; every edge is looked at.
    Subgraph,
    /// The same graph, made from the incidence of the perturbed genes.
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
    /// Nothing: rows of an array become a batch as they are.
    Rows,
}

/// The store of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Words)]
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
    /// Whether its records hold the masks of their samples.
    pub const fn has_masks(self) -> bool {
        matches!(self, Self::Compressed | Self::FullMasks | Self::PackedMasks)
    }
}

/// How samples become a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
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

/// Which steps lead from a perturbed gene to its neighborhood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Walk {
    /// From target to source, all steps within one edge type, and the types' results put together. This is what the
    /// published processor did: it asked PyTorch Geometric's `k_hop_subgraph` once per type, which goes against the edges,
    /// and an undirected edge is stored once. It finds fewer genes than its notes say.
    #[default]
    PerType,
    /// Along edges of any type in either direction; each step may take another type.
    Union,
    /// From target to source along edges of any type. A sample has the edges that the steps followed, not all between its
    /// genes: what so many layers of message passing read, and what PyTorch Geometric's `NeighborLoader` and DGL's
    /// `NeighborSampler` give with all neighbours.
    Incoming,
}

/// The source of the masks of edges between genes that loader threads make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum MaskSource {
    /// For each gene the list of its edges.
    #[default]
    Incidence,
    /// For each gene a mask of a bit per edge; those of a sample's genes are combined.
    GeneMasks,
}

/// Masks that are made where the batch is used, from the incidence that lies there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum DeviceMasks {
    /// None.
    #[default]
    None,
    /// Sample by sample and type by type, as published in 081.
    Looped,
    /// All samples of a type at once, from a padded table of the incidence, as published in 082.
    Vectorised,
}

/// `[pipeline]`
#[section("pipeline", workloads(Graph))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// What records are read from; any but `json` is made from it first. `lazy`, `packed`, `shared` and `incidence_subgraph` take stored
    /// masks, other processors go by the genes.
    #[setting(default = StoreKind::Json, added, workloads(Graph, Program))]
    pub store: StoreKind,
    /// What a loader thread makes of a record; not to be set with `array.format`.
    #[setting(required, workloads(Graph, Array))]
    pub processor: Processor,
    /// With `neighborhood`: how far from the perturbed genes.
    #[setting(default = 1, added, min = 1, max = 3)]
    pub hops: u32,
    /// With `neighborhood`: against the edges within each type, as published; either way along all types; or against the edges of all
    /// types, with the edges followed alone.
    #[setting(default = Walk::PerType, added)]
    pub walk: Walk,
    /// Edge types of the graph, in order.
    #[setting(derived = "all networks of the recipe, in its order")]
    pub edge_types: Vec<String>,
    /// Edge types that are one together, the union of their edges: `"NAME=TYPE+TYPE"`, or `"NAME=PREFIX*"` for all whose names begin so.
    ///
    /// [`graph_types`] reads them.
    #[setting(default = [], added)]
    pub merge_edge_types: Vec<String>,
    /// Reactions and metabolites as well, with the edges gpr and rmr.
    #[setting(default = false, added)]
    pub metabolism: bool,
    /// How samples become a batch: as PyTorch Geometric does, as the published collater was written, or without edge index.
    #[setting(default = Collation::Pyg, added)]
    pub collation: Collation,
    /// With `pyg`: fields for which the batch names the sample of each entry; for `perturbation_indices` every batch does.
    #[setting(default = ["x", "x_pert", "perturbation_indices"], added)]
    pub follow_batch: Vec<String>,
    /// What `lazy`, `packed`, `shared` and `incidence_subgraph` make masks of edges from: lists of the edges of each gene, or a mask of a
    /// bit per edge for each gene.
    #[setting(default = MaskSource::Incidence, added)]
    pub mask_source: MaskSource,
    /// With `gene_masks`: the most MiB that these masks may take in each rank; more is refused. 0 is a rank's share of six tenths of the
    /// free memory.
    #[setting(default = 0, added)]
    pub gene_masks_mib: u64,
    /// With `lazy`: probability with which an edge that a sample removes is masked. Below 1 masks are approximate, and so is whatever is
    /// computed with them.
    #[setting(default = 1.0, added, above = 0.0, max = 1.0)]
    pub mask_fraction: f64,
    /// With `mask_fraction` below 1: seed of the edges that are masked.
    #[setting(default = 42, added)]
    pub mask_seed: u64,
    /// Edge masks made where the batch is used: sample by sample, or all samples at once.
    #[setting(default = DeviceMasks::None, added)]
    pub device_masks: DeviceMasks,
}

impl Pipeline {
    /// A pipeline with this processor and these edge types, and defaults for everything else.
    pub fn new(processor: Processor, edge_types: Vec<String>) -> Self {
        Self {
            store: StoreKind::default(),
            processor,
            hops: Self::default_hops(),
            walk: Walk::default(),
            edge_types,
            merge_edge_types: Vec::new(),
            metabolism: false,
            collation: Collation::default(),
            follow_batch: Self::default_follow_batch(),
            mask_source: MaskSource::default(),
            gene_masks_mib: 0,
            mask_fraction: Self::default_mask_fraction(),
            mask_seed: Self::default_mask_seed(),
            device_masks: DeviceMasks::default(),
        }
    }

    /// The edge types of the graph, in order.
    ///
    /// # Errors
    /// Those of [`graph_types`].
    pub fn graph_types(&self) -> Result<Vec<GraphType>, MergeError> {
        graph_types(&self.edge_types, &self.merge_edge_types)
    }

    /// Whether masks leave out some of the edges that their samples remove.
    pub fn is_approximate(&self) -> bool {
        self.mask_fraction < 1.0
    }
}

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
