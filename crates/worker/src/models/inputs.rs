use graph_loader::{Batch, Common, Layout, Nodes, RemovedLists};
use tch::{Device, Kind, Tensor};

use super::ModelError;
use super::place::{Direct, Place, placed};

/// What models read of one batch of B samples, as tensors on the device.
///
/// Invariant: where the device is the host, large tensors are views of the batch's own memory and copy nothing; they must
/// not outlive it.
#[derive(Debug)]
pub struct Inputs<'batch> {
    /// int64 `[Σk]`: perturbed genes of all samples.
    pub genes: Tensor,
    /// int64 `[Σk]`: the sample of each, ascending.
    pub gene_sample: Tensor,
    /// int64 `[B + 1]`: where each sample's genes start.
    pub gene_ptr: Tensor,
    /// float32 `[B]`.
    pub labels: Tensor,
    /// B.
    pub batch_size: i64,
    /// A graph for each sample; with the processors that make one.
    pub graphs: Option<GraphInputs>,
    /// Of each edge type, the positions of the edges that each sample lacks, on the host; with processor `shared`.
    pub removed: Option<&'batch [RemovedLists]>,
    /// The same on the device, in the same order, for a model that reads graphs; empty for any other.
    pub removed_edges: Vec<RemovedInputs>,
    /// Masks that the step made, one for each edge type of the graph: bool `[B·E]`, sample by sample, 1 = kept. Empty where it
    /// made none.
    pub masks: Vec<Tensor>,
    /// Genes and labels as they lie on the host.
    pub common: &'batch Common,
}

/// The removed edges of one edge type over a batch.
#[derive(Debug)]
pub struct RemovedInputs {
    /// int32 `[ΣF]`: positions among the edges of the type, sample by sample.
    pub positions: Tensor,
    /// int64 `[B + 1]`: where each sample's positions start.
    pub ptr: Tensor,
}

/// The graphs of a batch, joined, with ΣN genes together.
#[derive(Debug)]
pub struct GraphInputs {
    /// bool `[ΣN]`: whether the gene is kept; `[0]` where the graphs have the kept genes alone.
    pub kept: Tensor,
    /// How many are kept: the host knows without waiting for the device.
    pub kept_genes: i64,
    /// int64 `[ΣN]`: the sample of each gene.
    pub batch: Tensor,
    /// Which gene of the whole graph each of the ΣN is.
    pub nodes: NodeGenes,
    /// The edge types, in the order of the graph.
    pub edges: Vec<EdgeInputs>,
}

/// Which gene of the whole graph, of N genes, each node of a batch's graphs is.
#[derive(Debug)]
pub enum NodeGenes {
    /// All of them in their order, once for each sample: processor `lazy`.
    All,
    /// int64 `[ΣN]`: these; processor `neighborhood`.
    Listed(Tensor),
    /// bool `[B·N]`, 1 = removed: all others in their order; processors `subgraph` and `incidence_subgraph`.
    Without(Tensor),
}

/// One edge type over a batch.
#[derive(Debug)]
pub struct EdgeInputs {
    /// int64 `[2, ΣE]`: sources and targets.
    pub edge_index: Tensor,
    /// bool `[ΣE]`: whether the edge is kept; `[0]` where the graphs have the kept edges alone.
    pub mask: Tensor,
}

impl<'batch> Inputs<'batch> {
    /// Tensors of `batch`; `masks` are those that the step made itself, one per edge type, and replace the batch's own.
    /// `with_graphs` asks for the graphs or the removed edges of its samples, if the batch has them.
    ///
    /// # Errors
    /// There is no room on the device.
    pub fn of(batch: &'batch Batch, masks: &[Tensor], with_graphs: bool, device: Device) -> Result<Self, ModelError> {
        Self::placed(batch, masks, with_graphs, &mut Direct::to(device))
    }

    /// The same, with the tensors where `place` puts them.
    ///
    /// # Errors
    /// There is no room.
    pub fn placed(
        batch: &'batch Batch,
        masks: &[Tensor],
        with_graphs: bool,
        place: &mut dyn Place,
    ) -> Result<Self, ModelError> {
        let common = &batch.common;
        let graphs = match &batch.layout {
            Layout::Graphs(graphs) if with_graphs => {
                let mut edges = Vec::with_capacity(graphs.edges.len());
                for (i, list) in graphs.edges.iter().enumerate() {
                    let entries = list.edge_index.len() as i64 / 2;
                    let edge_index = placed(place, &list.edge_index, &[2, entries], Kind::Int64)?;
                    // Also where the step made another one: which parts a batch has does not depend on that.
                    let shipped = placed(place, &list.mask, &[list.mask.len() as i64], Kind::Bool)?;
                    edges.push(EdgeInputs { edge_index, mask: masks.get(i).map_or(shipped, Tensor::shallow_clone) });
                }
                let genes = &graphs.genes;
                let (nodes, kept_genes) = NodeGenes::of(genes, place)?;
                Some(GraphInputs {
                    kept: placed(place, &genes.kept, &[genes.kept.len() as i64], Kind::Bool)?,
                    kept_genes,
                    batch: placed(place, &genes.batch, &[genes.batch.len() as i64], Kind::Int64)?,
                    nodes,
                    edges,
                })
            }
            _ => None,
        };
        let removed = match &batch.layout {
            Layout::Shared { removed } => Some(removed.as_slice()),
            _ => None,
        };
        let mut removed_edges = Vec::new();
        for lists in removed.filter(|_| with_graphs).into_iter().flatten() {
            removed_edges.push(RemovedInputs {
                positions: placed(place, &lists.positions, &[lists.positions.len() as i64], Kind::Int)?,
                ptr: placed(place, &lists.ptr, &[lists.ptr.len() as i64], Kind::Int64)?,
            });
        }
        let mut long = |values: &[i64]| placed(place, values, &[values.len() as i64], Kind::Int64);
        let (genes, gene_sample, gene_ptr) =
            (long(&common.genes)?, long(&common.gene_sample)?, long(&common.gene_ptr)?);
        Ok(Self {
            genes,
            gene_sample,
            gene_ptr,
            labels: placed(place, &common.labels, &[common.len() as i64], Kind::Float)?,
            batch_size: common.len() as i64,
            graphs,
            removed,
            removed_edges,
            masks: masks.iter().map(Tensor::shallow_clone).collect(),
            common,
        })
    }
}

impl NodeGenes {
    /// Of the genes of a batch, and how many of these are kept. What a processor does not make is empty.
    fn of(genes: &Nodes, place: &mut dyn Place) -> Result<(Self, i64), ModelError> {
        let ones = |flags: &[u8]| flags.iter().map(|flag| i64::from(*flag)).sum::<i64>();
        if !genes.original.is_empty() || genes.batch.is_empty() {
            let listed = placed(place, &genes.original, &[genes.original.len() as i64], Kind::Int64)?;
            return Ok((Self::Listed(listed), ones(&genes.kept)));
        }
        if !genes.kept.is_empty() {
            return Ok((Self::All, ones(&genes.kept)));
        }
        let all = genes.perturbed.len() as i64;
        let removed = placed(place, &genes.perturbed, &[all], Kind::Bool)?;
        Ok((Self::Without(removed), all - ones(&genes.perturbed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph_loader::{Edges, Graphs};

    #[test]
    fn a_batch_is_seen_as_it_lies_in_memory() {
        let common = Common {
            genes: vec![4, 2],
            gene_sample: vec![0, 0],
            gene_ptr: vec![0, 2],
            labels: vec![0.5],
            p_values: vec![0.1],
        };
        let mut graphs = Graphs::default();
        graphs.edges.push(Edges { edge_index: vec![0, 1, 2, 3, 4, 5], mask: vec![1, 0, 1], ..Edges::default() });
        let batch = Batch { common, layout: Layout::Graphs(Box::new(graphs)) };
        let inputs = Inputs::of(&batch, &[], true, Device::Cpu).unwrap();
        let edges = &inputs.graphs.as_ref().unwrap().edges[0];
        assert_eq!(edges.edge_index.size(), [2, 3]);
        assert_eq!(edges.edge_index.int64_value(&[1, 0]), 3);
        assert_eq!(edges.mask.int64_value(&[1]), 0);
        let Layout::Graphs(graphs) = &batch.layout else { unreachable!() };
        assert_eq!(edges.edge_index.data_ptr() as usize, graphs.edges[0].edge_index.as_ptr() as usize);
        let made = Inputs::of(&batch, &[Tensor::from_slice(&[false, false, true])], true, Device::Cpu).unwrap();
        assert_eq!(made.graphs.unwrap().edges[0].mask.int64_value(&[0]), 0);
        assert!(Inputs::of(&batch, &[], false, Device::Cpu).unwrap().graphs.is_none());
    }

    #[test]
    fn nodes_are_known_by_what_their_processor_makes() {
        let of = |genes: Nodes| NodeGenes::of(&genes, &mut Direct::to(Device::Cpu)).unwrap();
        let two = |kept: &[u8], perturbed: &[u8], original: &[i64], batch: &[i64]| Nodes {
            kept: kept.to_vec(),
            perturbed: perturbed.to_vec(),
            original: original.to_vec(),
            batch: batch.to_vec(),
            ptr: Vec::new(),
        };
        // Two samples of three genes: all of them, those around a perturbed one, and all others.
        let (nodes, kept) = of(two(&[1, 0, 1, 1, 1, 0], &[0, 1, 0, 0, 0, 1], &[], &[0, 0, 0, 1, 1, 1]));
        assert!(matches!(nodes, NodeGenes::All) && kept == 4, "{nodes:?}");
        let (nodes, kept) = of(two(&[1, 0, 0], &[0, 1, 1], &[0, 1, 2], &[0, 0, 1]));
        assert!(matches!(&nodes, NodeGenes::Listed(genes) if genes.int64_value(&[2]) == 2) && kept == 1, "{nodes:?}");
        let (nodes, kept) = of(two(&[], &[0, 1, 0, 0, 0, 1], &[], &[0, 0, 1, 1]));
        assert!(matches!(&nodes, NodeGenes::Without(gone) if gone.size() == [6]) && kept == 4, "{nodes:?}");
        // Neighborhoods of no gene at all.
        let (nodes, kept) = of(two(&[], &[], &[], &[]));
        assert!(matches!(&nodes, NodeGenes::Listed(genes) if genes.size() == [0]) && kept == 0, "{nodes:?}");
    }

    #[test]
    fn removed_edges_come_along_for_a_model_that_reads_graphs() {
        let lists = RemovedLists { positions: vec![3, 5, 1], ptr: vec![0, 2, 3] };
        let common = Common { labels: vec![0.0; 2], gene_ptr: vec![0, 0, 0], ..Common::default() };
        let batch = Batch { common, layout: Layout::Shared { removed: vec![lists] } };
        let inputs = Inputs::of(&batch, &[], true, Device::Cpu).unwrap();
        let there = &inputs.removed_edges[0];
        assert_eq!(Vec::<i32>::try_from(&there.positions).unwrap(), [3, 5, 1]);
        assert_eq!(Vec::<i64>::try_from(&there.ptr).unwrap(), [0, 2, 3]);
        let without = Inputs::of(&batch, &[], false, Device::Cpu).unwrap();
        assert!(without.removed_edges.is_empty() && without.removed.is_some());
    }
}
