use std::marker::PhantomData;

use expctl_pipeline::collate::{Batch, Layout, RemovedLists};
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
    /// A graph for each sample; with processor `lazy`.
    pub graphs: Option<GraphInputs>,
    /// Of each edge type, the positions of the edges that each sample lacks; with processor `shared`.
    pub removed: Option<&'batch [RemovedLists]>,
    batch: PhantomData<&'batch Batch>,
}

/// The graphs of a batch, joined, with ΣN genes together.
#[derive(Debug)]
pub struct GraphInputs {
    /// bool `[ΣN]`: whether the gene is kept.
    pub kept: Tensor,
    /// How many are kept: the host knows without waiting for the device.
    pub kept_genes: i64,
    /// int64 `[ΣN]`: the sample of each gene.
    pub batch: Tensor,
    /// The edge types, in the order of the graph.
    pub edges: Vec<EdgeInputs>,
}

/// One edge type over a batch.
#[derive(Debug)]
pub struct EdgeInputs {
    /// int64 `[2, ΣE]`: sources and targets.
    pub edge_index: Tensor,
    /// bool `[ΣE]`: whether the edge is kept.
    pub mask: Tensor,
}

impl<'batch> Inputs<'batch> {
    /// Tensors of `batch`; `masks` are those that the step made itself, one per edge type, and replace the batch's own.
    /// `with_graphs` asks for the graphs, if the batch has them.
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
                Some(GraphInputs {
                    kept: placed(place, &genes.kept, &[genes.kept.len() as i64], Kind::Bool)?,
                    kept_genes: genes.kept.iter().map(|kept| i64::from(*kept)).sum(),
                    batch: placed(place, &genes.batch, &[genes.batch.len() as i64], Kind::Int64)?,
                    edges,
                })
            }
            _ => None,
        };
        let removed = match &batch.layout {
            Layout::Shared { removed } => Some(removed.as_slice()),
            _ => None,
        };
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
            batch: PhantomData,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_pipeline::collate::{Common, Edges, Graphs};

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
}
