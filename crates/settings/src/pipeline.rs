//! `[pipeline]`: how a sample is made from a record, and a batch from samples.

use serde::{Deserialize, Serialize};

use crate::{GraphType, graph_types};

/// What a loader thread makes of a record.
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
    /// Nothing: rows of an array become a batch as they are.
    Rows,
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
            Self::Rows => "rows",
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

    /// Whether its records hold the masks of their samples.
    pub const fn has_masks(self) -> bool {
        matches!(self, Self::Compressed | Self::FullMasks | Self::PackedMasks)
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

/// What loader threads make the masks of edges between genes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskSource {
    /// For each gene the list of its edges.
    #[default]
    Incidence,
    /// For each gene a mask of a bit per edge; those of a sample's genes are combined.
    GeneMasks,
}

impl MaskSource {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incidence => "incidence",
            Self::GeneMasks => "gene_masks",
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// What records are read from.
    #[serde(default)]
    pub store: StoreKind,
    /// What a loader thread makes of a record.
    pub processor: Processor,
    /// Hops of the neighborhood.
    #[serde(default = "one_hop")]
    pub hops: u32,
    /// Steps of the neighborhood.
    #[serde(default)]
    pub walk: Walk,
    /// Networks of the graph, in order; each is an edge type, unless it is merged.
    pub edge_types: Vec<String>,
    /// Networks that are one edge type together, as [`graph_types`] reads them.
    #[serde(default)]
    pub merge_edge_types: Vec<String>,
    /// Reactions and metabolites as well.
    #[serde(default)]
    pub metabolism: bool,
    /// How samples become a batch.
    #[serde(default)]
    pub collation: Collation,
    /// Fields for which the batch names the sample of each entry.
    #[serde(default = "follow_batch_default")]
    pub follow_batch: Vec<String>,
    /// What masks are made from.
    #[serde(default)]
    pub mask_source: MaskSource,
    /// The most MiB that the masks of single genes may take in each rank; 0 is a share of the free memory.
    #[serde(default)]
    pub gene_masks_mib: u64,
    /// Probability with which an edge that a sample removes is masked, in (0, 1]; below 1 masks are approximate.
    #[serde(default = "all_edges")]
    pub mask_fraction: f64,
    /// Seed of the edges that are masked where not all are.
    #[serde(default = "mask_seed_default")]
    pub mask_seed: u64,
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
            merge_edge_types: Vec::new(),
            metabolism: false,
            collation: Collation::default(),
            follow_batch: follow_batch_default(),
            mask_source: MaskSource::default(),
            gene_masks_mib: 0,
            mask_fraction: all_edges(),
            mask_seed: mask_seed_default(),
            device_masks: DeviceMasks::default(),
        }
    }

    /// The edge types of the graph, in order.
    ///
    /// # Errors
    /// As [`graph_types`].
    pub fn graph_types(&self) -> Result<Vec<GraphType>, (usize, String)> {
        graph_types(&self.edge_types, &self.merge_edge_types)
    }

    /// Whether masks leave out some of the edges that their samples remove.
    pub fn is_approximate(&self) -> bool {
        self.mask_fraction < 1.0
    }
}

/// As in the launcher's key table: trials that are older than the key masked all edges.
const fn all_edges() -> f64 {
    1.0
}

/// As in the launcher's key table.
const fn mask_seed_default() -> u64 {
    42
}

const fn one_hop() -> u32 {
    1
}

/// As in the main lazy script.
fn follow_batch_default() -> Vec<String> {
    ["x", "x_pert", "perturbation_indices"].map(str::to_owned).to_vec()
}
