//! `Batch` is what a loader delivers: the tensors of B collated samples, as vectors whose dtype and shape each field documents. `Common` is in
//! every batch; `Layout` is what a processor adds.

/// The columns that every batch has. Σk is the number of perturbed genes over its B samples.
///
/// The published batches have `gene_sample` and `gene_ptr` only where `follow_batch` names `perturbation_indices`; here
/// they are always there, 8·(Σk + B + 1) B, because nothing that reads `genes` can do without.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Common {
    /// int64 `[Σk]`: perturbed genes, sample by sample, not offset (the published collation does not offset them).
    pub genes: Vec<i64>,
    /// int64 `[Σk]`: the sample of each perturbed gene, ascending.
    pub gene_sample: Vec<i64>,
    /// int64 `[B + 1]`: where each sample's genes start.
    pub gene_ptr: Vec<i64>,
    /// float32 `[B]`: gene interactions.
    pub labels: Vec<f32>,
    /// float32 `[B]`: p-values, NaN if there is none.
    pub p_values: Vec<f32>,
}

impl Common {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// No samples.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Perturbed genes of one sample.
    pub fn genes_of(&self, sample: usize) -> &[i64] {
        &self.genes[self.gene_ptr[sample] as usize..self.gene_ptr[sample + 1] as usize]
    }

    fn bytes(&self) -> usize {
        let Self { genes, gene_sample, gene_ptr, labels, p_values } = self;
        genes.bytes() + gene_sample.bytes() + gene_ptr.bytes() + labels.bytes() + p_values.bytes()
    }
}

/// The tensors of a batch besides [`Common`]: one of the published or faster layouts.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// A graph for each sample: lazy, subgraph, neighborhood.
    Graphs(Box<Graphs>),
    /// As the published DANGO pipeline collated: node tensors, no edges.
    Perturbation {
        /// Node tensors.
        genes: Nodes,
        /// Coordinates of labels and p-values.
        phenotype: Phenotype,
    },
    /// Removed entries of the shared graph: of each edge type in its order and, with metabolism, of reactions, gpr, rmr.
    Shared {
        /// A list for each mask.
        removed: Vec<RemovedLists>,
    },
    /// Masks of the shared graph, in the same order.
    Packed {
        /// Rows for each mask.
        masks: Vec<BitMasks>,
    },
    /// Nothing: masks are made where the batch is used.
    Ids,
}

/// A collated batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Genes and labels.
    pub common: Common,
    /// The rest.
    pub layout: Layout,
}

impl Batch {
    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let rest = match &self.layout {
            Layout::Graphs(graphs) => graphs.bytes(),
            Layout::Perturbation { genes, phenotype } => genes.bytes() + phenotype.bytes(),
            Layout::Shared { removed } => removed.iter().map(TensorBytes::bytes).sum(),
            Layout::Packed { masks } => masks.iter().map(TensorBytes::bytes).sum(),
            Layout::Ids => 0,
        };
        (self.common.bytes() + rest) as u64
    }
}

/// One kind of node over B samples, which have ΣN of them together. Tensors that a processor does not make are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// bool `[ΣN]`: 1 = kept.
    pub kept: Vec<u8>,
    /// bool `[ΣN]`, the complement; with the subgraph processors `[B·N of the whole graph]`, as published.
    pub perturbed: Vec<u8>,
    /// int64 `[ΣN]`: the node's index in the whole graph.
    pub original: Vec<i64>,
    /// int64 `[ΣN]`: the sample of each node.
    pub batch: Vec<i64>,
    /// int64 `[B + 1]`: where each sample's nodes start.
    pub ptr: Vec<i64>,
}

/// One edge type over B samples, which have ΣE edges together. Tensors that a processor does not make are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// int64 `[2, ΣE]`, row major: the nodes of each sample shifted by the number of nodes of those before it.
    pub edge_index: Vec<i64>,
    /// bool `[ΣE]`: 1 = kept.
    pub mask: Vec<u8>,
    /// bool `[B·E of the whole graph]`: 1 = removed (`pert_mask` of the subgraph processors).
    pub removed: Vec<u8>,
    /// int64 `[B]`: edges of each sample.
    pub num_edges: Vec<i64>,
}

impl Edges {
    /// Sources of all edges.
    pub fn sources(&self) -> &[i64] {
        &self.edge_index[..self.edge_index.len() / 2]
    }

    /// Targets of all edges.
    pub fn targets(&self) -> &[i64] {
        &self.edge_index[self.edge_index.len() / 2..]
    }
}

/// The tensors that `follow_batch` adds for one field: the sample of each of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// int64 `[rows]`: the sample of each row.
    pub batch: Vec<i64>,
    /// int64 `[B + 1]`: where each sample's rows start.
    pub ptr: Vec<i64>,
}

/// Coordinates of the phenotypes, int64 `[B]` each. A record has one phenotype, so all are 0; they are not offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phenotype {
    /// Index of the phenotype of a value.
    pub type_indices: Vec<i64>,
    /// Index of the record of a value within the sample.
    pub sample_indices: Vec<i64>,
    /// Index of the phenotype of a p-value.
    pub stat_type_indices: Vec<i64>,
    /// Index of the record of a p-value within the sample.
    pub stat_sample_indices: Vec<i64>,
}

/// Reactions and metabolites of B samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetabolicGraphs {
    /// Reactions.
    pub reactions: Nodes,
    /// float32 `[B·R]`: zeros, as in every published run. Lazy only.
    pub w_growth: Vec<f32>,
    /// Metabolites; always all of them.
    pub metabolites: Nodes,
    /// Gene to reaction.
    pub gpr: Edges,
    /// Reaction to metabolite.
    pub rmr: Edges,
    /// float32 `[ΣE]` of rmr.
    pub stoichiometry: Vec<f32>,
}

/// A graph for each sample, as PyTorch Geometric joins them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graphs {
    /// Genes.
    pub genes: Nodes,
    /// Followed field `x`, float32 `[ΣN, 0]`, which has no bytes: the embedding is the model's.
    pub x: Followed,
    /// Followed field `x_pert`, float32 `[Σk, 0]`, or `[ΣN, 0]` of the neighborhood; empty with lazy.
    pub x_pert: Followed,
    /// Coordinates of labels and p-values.
    pub phenotype: Phenotype,
    /// Edge types, in the order of the graph.
    pub edges: Vec<Edges>,
    /// With metabolism.
    pub metabolism: Option<MetabolicGraphs>,
}

/// One mask's False entries over B samples. What they are entries of stays with the graph, once for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedLists {
    /// int32 `[ΣF]`: positions of the False entries, ascending within a sample.
    pub positions: Vec<i32>,
    /// int64 `[B + 1]`: where each sample's positions start.
    pub ptr: Vec<i64>,
}

impl RemovedLists {
    /// No samples.
    pub(crate) fn clear(&mut self) {
        self.positions.clear();
        self.ptr.clear();
        self.ptr.push(0);
    }

    /// False positions of one sample.
    pub fn of(&self, sample: usize) -> &[i32] {
        &self.positions[self.ptr[sample] as usize..self.ptr[sample + 1] as usize]
    }
}

/// One mask over B samples, a bit per entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BitMasks {
    /// uint64 `[B, ceil(E / 64)]`, row major: bit i of word w is entry 64·w + i; 1 = kept; the bits behind the last entry
    /// are 0.
    pub words: Vec<u64>,
    /// Entries E of each sample.
    pub entries: usize,
}

impl BitMasks {
    /// Words of one sample.
    pub fn of(&self, sample: usize) -> &[u64] {
        let row = self.entries.div_ceil(64);
        &self.words[sample * row..(sample + 1) * row]
    }
}

/// Bytes of all tensors that something has.
trait TensorBytes {
    fn bytes(&self) -> usize;
}

impl<T: Copy> TensorBytes for Vec<T> {
    fn bytes(&self) -> usize {
        size_of_val(self.as_slice())
    }
}

/// Bytes of the named fields, which are all tensors of the type.
macro_rules! bytes_of_fields {
    ($($type:ty { $($field:ident),+ $(; $($skipped:ident),+)? })+) => {$(
        impl TensorBytes for $type {
            fn bytes(&self) -> usize {
                // A field that is added must be named here.
                let Self { $($field,)+ $($($skipped: _,)+)? } = self;
                [$($field.bytes()),+].iter().sum()
            }
        }
    )+};
}

bytes_of_fields! {
    Nodes { kept, perturbed, original, batch, ptr }
    Edges { edge_index, mask, removed, num_edges }
    Followed { batch, ptr }
    Phenotype { type_indices, sample_indices, stat_type_indices, stat_sample_indices }
    MetabolicGraphs { reactions, w_growth, metabolites, gpr, rmr, stoichiometry }
    RemovedLists { positions, ptr }
    BitMasks { words; entries }
}

impl TensorBytes for Graphs {
    fn bytes(&self) -> usize {
        let Self { genes, x, x_pert, phenotype, edges, metabolism } = self;
        let edges: usize = edges.iter().map(TensorBytes::bytes).sum();
        let metabolism = metabolism.as_ref().map_or(0, TensorBytes::bytes);
        genes.bytes() + x.bytes() + x_pert.bytes() + phenotype.bytes() + edges + metabolism
    }
}
