//! `GraphBatchOptions` and its enums say which tensors a batch has and how they are made. `GraphBatchOptions::check` refuses options that contradict
//! each other before anything is built.

/// What a loader thread makes of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// A byte mask over all edges of each sample.
    #[default]
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
    /// The word for it in messages.
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

    /// Whether each sample has edges of its own, so that there is no edge index to share.
    pub const fn has_own_edges(self) -> bool {
        matches!(self, Self::Subgraph | Self::IncidenceSubgraph | Self::Neighborhood)
    }
}

/// How samples become a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Collation {
    /// As PyTorch Geometric: edge index replicated and offset, `batch` and `ptr` of each kind of node, `follow_batch`.
    #[default]
    Pyg,
    /// `batch`, but neither `ptr` nor `follow_batch`.
    LazyCollater,
    /// Masks alone: the edge index stays with the graph.
    SharedIndex,
}

/// Which steps lead from a perturbed gene to its neighborhood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    /// From target to source, all steps within one edge type, and the types' results put together: PyTorch Geometric's
    /// `k_hop_subgraph` once per type. An undirected edge is stored once, so the walk takes it one way only.
    #[default]
    PerType,
    /// Along edges of any type in either direction; each step may take another type.
    Union,
    /// From target to source along edges of any type. A sample has the edges that the steps followed, not all between its genes:
    /// what so many layers of message passing read, and what neighbour samplers that take all neighbours give.
    Incoming,
}

/// What the masks of edges between genes are made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskSource {
    /// For each gene the list of its edges.
    #[default]
    Incidence,
    /// For each gene a mask of a bit per edge; those of a sample's genes are combined.
    GeneMasks,
}

/// How a record of a store holds a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// JSON, as the base store has it: names of genes, label, p-value.
    Json,
    /// NPZ: positions of the False entries of every mask.
    FalsePositions,
    /// NPZ: every mask, a byte per entry.
    ByteMasks,
    /// NPZ: every mask, a bit per entry.
    BitMasks,
    /// Gene ids, label and p-value alone.
    Ids,
}

/// What batches hold, and how they are made.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphBatchOptions {
    /// What a loader thread makes of a record.
    pub processor: Processor,
    /// How samples become a batch.
    pub collation: Collation,
    /// Fields for which the batch names the sample of each entry: `x`, `x_pert`, `perturbation_indices`.
    pub follow_batch: Vec<String>,
    /// Hops of the neighborhood, 1 to 3.
    pub hops: u32,
    /// Steps of the neighborhood.
    pub walk: Walk,
    /// What masks are made from.
    pub mask_source: MaskSource,
    /// Maximum bytes of masks of single genes.
    pub gene_mask_bytes: u64,
    /// Probability with which an edge that a sample removes is masked, in (0, 1]; below 1 masks are approximate.
    pub mask_fraction: f64,
    /// Seed of the edges that are masked if not all are.
    pub mask_seed: u64,
}

impl Default for GraphBatchOptions {
    fn default() -> Self {
        Self {
            processor: Processor::default(),
            collation: Collation::default(),
            follow_batch: FOLLOW_BATCH_FIELDS.map(str::to_owned).to_vec(),
            hops: 1,
            walk: Walk::default(),
            mask_source: MaskSource::default(),
            gene_mask_bytes: u64::MAX,
            mask_fraction: 1.0,
            mask_seed: 42,
        }
    }
}

/// Fields that [`GraphBatchOptions::follow_batch`] can name.
const FOLLOW_BATCH_FIELDS: [&str; 3] = ["x", "x_pert", "perturbation_indices"];

/// Options that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The edge index cannot stay with the graph.
    #[error("with {} each sample has edges of its own: there is no index to share", processor.name())]
    NoSharedIndex {
        /// The processor, whose samples have edges of their own.
        processor: Processor,
    },
    /// Approximate masks are asked for where all removed edges are needed.
    #[error("approximate masks are of processor `lazy`, not of `{}`", processor.name())]
    NotApproximate {
        /// The processor.
        processor: Processor,
    },
    /// Masks of single genes are asked for where no exact mask of edges is made.
    #[error("masks of single genes are of processors that make exact masks of edges")]
    NoGeneMasks,
    /// A neighborhood of 0 hops or more than 3.
    #[error("a neighborhood has 1 to 3 hops, not {hops}")]
    Hops {
        /// The hops.
        hops: u32,
    },
    /// A field that batches do not have.
    #[error("follow_batch can name {}, not {field}", FOLLOW_BATCH_FIELDS.join(", "))]
    FollowBatch {
        /// The field.
        field: String,
    },
}

impl GraphBatchOptions {
    /// A processor with all else as by default.
    pub fn new(processor: Processor) -> Self {
        Self { processor, ..Self::default() }
    }

    /// Whether masks leave out some of the edges that their samples remove.
    pub fn is_approximate(&self) -> bool {
        self.mask_fraction < 1.0
    }

    /// Whether `field` is followed, if the collation follows any.
    pub(crate) fn follows(&self, field: &str) -> bool {
        self.collation != Collation::LazyCollater && self.follow_batch.iter().any(|followed| followed == field)
    }

    /// Check that the options fit together.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), OptionsError> {
        let Self { processor, collation, hops, follow_batch, .. } = self;
        let processor = *processor;
        if processor.has_own_edges() && *collation == Collation::SharedIndex {
            return Err(OptionsError::NoSharedIndex { processor });
        }
        if self.is_approximate() && processor != Processor::Lazy {
            return Err(OptionsError::NotApproximate { processor });
        }
        let masked = [Processor::Lazy, Processor::IncidenceSubgraph, Processor::Shared, Processor::Packed];
        if self.mask_source == MaskSource::GeneMasks && (self.is_approximate() || !masked.contains(&processor)) {
            return Err(OptionsError::NoGeneMasks);
        }
        if processor == Processor::Neighborhood && !(1..=3).contains(hops) {
            return Err(OptionsError::Hops { hops: *hops });
        }
        if let Some(field) = follow_batch.iter().find(|field| !FOLLOW_BATCH_FIELDS.contains(&field.as_str())) {
            return Err(OptionsError::FollowBatch { field: field.clone() });
        }
        Ok(())
    }
}
