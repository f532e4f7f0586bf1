/// What every batch has. Σk is the number of perturbed genes over its B samples.
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
        8 * (self.genes.len() + self.gene_sample.len() + self.gene_ptr.len())
            + 4 * (self.labels.len() + self.p_values.len())
    }
}

/// Node tensors of the published batches: G genes for each of B samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneMasks {
    /// bool `[G·B]`: 1 = kept.
    pub kept: Vec<u8>,
    /// bool `[G·B]`: 1 = perturbed.
    pub perturbed: Vec<u8>,
    /// int64 `[G·B]`: the sample of each node.
    pub batch: Vec<i64>,
    /// int64 `[B + 1]`: where each sample's nodes start.
    pub ptr: Vec<i64>,
}

impl GeneMasks {
    fn bytes(&self) -> usize {
        self.kept.len() + self.perturbed.len() + 8 * (self.batch.len() + self.ptr.len())
    }
}

/// One edge type, copied for every sample of the batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replicated {
    /// int64 `[2, B·E]`, row major: sample i's nodes shifted by i·G.
    pub edge_index: Vec<i64>,
    /// bool `[B·E]`: 1 = kept.
    pub mask: Vec<u8>,
    /// int64 `[B]`: edges of each sample.
    pub num_edges: Vec<i64>,
}

/// One edge type's removed edges. The edge index itself stays with the graph, once for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedLists {
    /// int32 `[ΣR]`: positions in the shared edge index, ascending within a sample.
    pub positions: Vec<i32>,
    /// int64 `[B + 1]`: where each sample's positions start.
    pub ptr: Vec<i64>,
}

impl RemovedLists {
    /// Removed positions of one sample.
    pub fn of(&self, sample: usize) -> &[i32] {
        &self.positions[self.ptr[sample] as usize..self.ptr[sample + 1] as usize]
    }
}

/// What a batch has besides [`Common`]: one of the published or faster layouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As the published lazy pipeline collated: masks, and the edge index replicated for each sample.
    Lazy {
        /// Node tensors.
        nodes: GeneMasks,
        /// Edge types, in the order of the graph.
        edges: Vec<Replicated>,
    },
    /// As the published DANGO pipeline collated: node tensors, no edges.
    Perturbation {
        /// Node tensors.
        nodes: GeneMasks,
    },
    /// Removed edges of the shared graph.
    Shared {
        /// Edge types, in the order of the graph.
        removed: Vec<RemovedLists>,
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
            Layout::Lazy { nodes, edges } => {
                nodes.bytes()
                    + edges.iter().map(|e| 8 * (e.edge_index.len() + e.num_edges.len()) + e.mask.len()).sum::<usize>()
            }
            Layout::Perturbation { nodes } => nodes.bytes(),
            Layout::Shared { removed } => removed.iter().map(|r| 4 * r.positions.len() + 8 * r.ptr.len()).sum(),
            Layout::Ids => 0,
        };
        (self.common.bytes() + rest) as u64
    }
}
