use super::own::OwnEdges;
use crate::graph::{RemovedMetabolism, Visited};
use crate::mask::Union;

/// What one thread needs while it makes a batch. It holds nothing between batches, so a clone starts empty.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) removed: RemovedMetabolism,
    pub(super) union: Union,
    pub(super) positions: Vec<i32>,
    pub(super) visited: Visited,
    pub(super) found: Vec<u32>,
    pub(super) gone: Vec<bool>,
    /// New number of each gene in the sample at hand.
    pub(super) table: Vec<u32>,
    /// New number of each reaction.
    pub(super) reaction_table: Vec<u32>,
    /// Genes of each sample.
    pub(super) genes: Vec<usize>,
    /// Edge types and, with metabolism, gpr and rmr.
    pub(super) edges: Vec<OwnEdges>,
}

impl Work {
    /// Forget the samples of the last batch.
    pub(super) fn clear(&mut self, edges: usize) {
        self.genes.clear();
        self.edges.resize_with(edges, OwnEdges::default);
        self.edges.iter_mut().for_each(OwnEdges::clear);
    }

    /// Bytes of the edges and tables that a thread holds for itself.
    #[cfg(test)]
    pub(super) fn own_bytes(&self) -> usize {
        let edges: usize = self.edges.iter().map(OwnEdges::capacity_bytes).sum();
        edges + 4 * (self.table.capacity() + self.reaction_table.capacity() + self.positions.capacity())
    }
}

impl Clone for Work {
    fn clone(&self) -> Self {
        Self::default()
    }
}
