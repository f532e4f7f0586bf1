use super::own::OwnEdges;
use super::tensors::RemovedLists;
use crate::graph::{RemovedMetabolism, Visited};
use crate::mask::Union;

/// What one thread needs while it makes a batch. It holds nothing between batches, so a clone starts empty.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// What each sample removes of the metabolism.
    pub(super) removed: Vec<RemovedMetabolism>,
    pub(super) union: Union,
    pub(super) positions: Vec<i32>,
    pub(super) visited: Visited,
    pub(super) found: Vec<u32>,
    pub(super) gone: Vec<u8>,
    /// New number of each gene in the sample at hand.
    pub(super) table: Vec<u32>,
    /// New number of each reaction.
    pub(super) reaction_table: Vec<u32>,
    /// Genes of each sample.
    pub(super) genes: Vec<usize>,
    /// Edges of each type that the samples lose.
    pub(super) lost: Vec<RemovedLists>,
    /// Edge types and, with metabolism, gpr and rmr; of the subgraph processors only the latter.
    pub(super) edges: Vec<OwnEdges>,
}

impl Work {
    /// Forget the samples of the last batch.
    pub(super) fn clear(&mut self, edge_types: usize, metabolism: bool) {
        self.genes.clear();
        self.lost.resize_with(edge_types, RemovedLists::default);
        self.lost.iter_mut().for_each(RemovedLists::clear);
        self.edges.resize_with(edge_types + if metabolism { 2 } else { 0 }, OwnEdges::default);
        self.edges.iter_mut().for_each(OwnEdges::clear);
    }

    /// Bytes of the edges and tables that a thread holds for itself. What is left out is a few tables of the graph's genes.
    pub(super) fn own_bytes(&self) -> usize {
        let edges: usize = self.edges.iter().map(OwnEdges::capacity_bytes).sum();
        let lost: usize = self.lost.iter().map(|lost| 4 * lost.positions.capacity()).sum();
        edges + lost + 4 * (self.table.capacity() + self.reaction_table.capacity() + self.positions.capacity())
    }
}

impl Clone for Work {
    fn clone(&self) -> Self {
        Self::default()
    }
}
