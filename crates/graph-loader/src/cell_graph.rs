use super::Metabolism;

/// One edge type of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeType {
    /// Name, for example `physical`.
    pub name: String,
    /// int64 `[2, E]`, row major: all sources, then all targets. Undirected edges are stored once; each gene has one
    /// self-loop, at the end.
    pub edge_index: Vec<i64>,
}

impl EdgeType {
    /// Number of edges, self-loops included.
    pub fn num_edges(&self) -> usize {
        self.edge_index.len() / 2
    }

    /// Source gene of each edge.
    pub fn sources(&self) -> &[i64] {
        &self.edge_index[..self.num_edges()]
    }

    /// Target gene of each edge.
    pub fn targets(&self) -> &[i64] {
        &self.edge_index[self.num_edges()..]
    }
}

/// Genes, the edge types between them, and what they catalyse. Invariant: genes are sorted by name, and a gene's index is
/// its position.
#[derive(Clone, Debug, PartialEq)]
pub struct CellGraph {
    /// Systematic names, ascending.
    pub genes: Vec<String>,
    /// Edge types, in the order in which they were asked for.
    pub edge_types: Vec<EdgeType>,
    /// Reactions and metabolites, if they were asked for.
    pub metabolism: Option<Metabolism>,
}

impl CellGraph {
    /// Number of genes.
    pub fn num_genes(&self) -> usize {
        self.genes.len()
    }

    /// Number of edges over all types between genes.
    pub fn num_edges(&self) -> usize {
        self.edge_types.iter().map(EdgeType::num_edges).sum()
    }
}
