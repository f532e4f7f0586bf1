use super::size::Bytes;
use super::tensors::{BitMasks, Graphs, Nodes, Phenotype, RemovedLists};

/// What every batch has. Σk is the number of perturbed genes over its B samples.
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
    /// float32 `[B]`: p-values, NaN where there is none.
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

/// What a batch has besides [`Common`]: one of the published or faster layouts.
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
            Layout::Shared { removed } => removed.iter().map(Bytes::bytes).sum(),
            Layout::Packed { masks } => masks.iter().map(Bytes::bytes).sum(),
            Layout::Ids => 0,
        };
        (self.common.bytes() + rest) as u64
    }
}
