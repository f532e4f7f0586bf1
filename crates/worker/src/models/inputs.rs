//! The inputs of models as tensors of a batch, and the context of a step.

use cell_loader::CellBatch;
use graph_loader::{Batch, Common, Layout, Nodes, RemovedLists};
use tch::kind::Element;
use tch::{Device, Kind, TchError, Tensor};
use torch_dist::ProcessGroup;

use crate::activity::Activity;
use crate::models::array::ArrayInputs;
use crate::models::{InputError, ModelError};

/// A batch, and everything that a step computes on it with.
#[derive(Clone, Copy)]
pub struct StepContext<'a> {
    /// The batch of this rank.
    pub batch: &'a dyn ModelBatch,
    /// Edge masks that the step made itself, one for each edge type of the graph; empty where the loader makes all masks.
    pub masks: &'a [Tensor],
    /// Epoch of the batch, from 0.
    pub epoch: u64,
    /// All ranks of the trial.
    pub group: &'a ProcessGroup,
    /// Told what the step does, for the threads that watch it.
    pub activity: &'a Activity,
}

/// Makes tensors of the memory of a batch. Invariant: a batch asks for its tensors in the same order each time, so that one pass can copy
/// what another one views.
pub trait TensorBuilder {
    /// A tensor of `shape` with the values in `bytes`, of `kind`. libtorch never writes to it, and it must not outlive them.
    ///
    /// # Errors
    /// libtorch has no memory.
    fn build(&mut self, bytes: &[u8], shape: &[i64], kind: Kind) -> Result<Tensor, TchError>;
}

/// A tensor of `shape` with `values`, of `kind`.
pub(crate) fn build_tensor<T: Copy>(
    builder: &mut dyn TensorBuilder,
    values: &[T],
    shape: &[i64],
    kind: Kind,
) -> Result<Tensor, TchError> {
    debug_assert_eq!(size_of_val(values), shape.iter().product::<i64>() as usize * kind.elt_size_in_bytes());
    // SAFETY: any memory can be seen as bytes; numbers have no padding.
    let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
    builder.build(bytes, shape, kind)
}

/// Builds views where the device is the host, else copies that the host waits for.
#[derive(Debug)]
pub struct DirectBuilder {
    device: Device,
    /// Bytes copied so far.
    pub copied_bytes: u64,
}

impl DirectBuilder {
    /// A builder of tensors on `device`.
    pub fn new(device: Device) -> Self {
        Self { device, copied_bytes: 0 }
    }
}

impl TensorBuilder for DirectBuilder {
    fn build(&mut self, bytes: &[u8], shape: &[i64], kind: Kind) -> Result<Tensor, TchError> {
        let mut strides = vec![1i64; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i];
        }
        // SAFETY: the memory holds as many elements as the shape says (checked by the callers' types: int64, int32, float32 and bytes
        // that are 0 or 1), and outlives the tensor, which the callers tie to the batch. Nothing writes through it.
        let host = unsafe { Tensor::f_from_blob(bytes.as_ptr().cast(), shape, &strides, kind, Device::Cpu) }?;
        if self.device == Device::Cpu {
            return Ok(host);
        }
        self.copied_bytes += bytes.len() as u64;
        host.f_to_device(self.device)
    }
}

/// A tensor on `device` that owns a copy of `values`: a GPU copies it from page-locked memory, and the host goes on.
pub(crate) fn copy_to_device<T: Element>(values: &[T], device: Device) -> Result<Tensor, TchError> {
    let host = Tensor::f_from_slice(values)?;
    if device == Device::Cpu {
        return Ok(host);
    }
    host.f_pin_memory(device)?.f_to_device_(device, host.kind(), true, true)
}

/// The inputs of a model for one batch.
#[derive(Debug)]
pub enum ModelInputs<'batch> {
    /// Samples of a graph.
    Samples(SampleInputs<'batch>),
    /// Rows of an array.
    Rows(ArrayInputs<'batch>),
}

impl ModelInputs<'_> {
    /// The labels to predict: float32 `[B]` of samples, int64 `[B]` of rows, where -1 is unknown.
    ///
    /// # Errors
    /// The batch has no labels.
    pub fn labels(&self) -> Result<&Tensor, ModelError> {
        match self {
            Self::Samples(inputs) => Ok(&inputs.labels),
            Self::Rows(inputs) => inputs.classes.as_ref().ok_or_else(|| ModelError::from(InputError::NoLabels)),
        }
    }
}

/// A batch that models read.
pub trait ModelBatch {
    /// The inputs as tensors of `builder`. `masks` are those that the step made itself, `with_graphs` asks for the graph of each sample, or
    /// the edges that it lacks: both matter for samples of a graph alone.
    ///
    /// # Errors
    /// libtorch has no memory.
    fn inputs_from(
        &self,
        masks: &[Tensor],
        with_graphs: bool,
        builder: &mut dyn TensorBuilder,
    ) -> Result<ModelInputs<'_>, ModelError>;

    /// The inputs on `device`.
    ///
    /// # Errors
    /// libtorch has no memory.
    fn inputs(&self, masks: &[Tensor], with_graphs: bool, device: Device) -> Result<ModelInputs<'_>, ModelError> {
        self.inputs_from(masks, with_graphs, &mut DirectBuilder::new(device))
    }

    /// Number of samples.
    fn samples(&self) -> u64;
}

impl ModelBatch for Batch {
    fn inputs_from(
        &self,
        masks: &[Tensor],
        with_graphs: bool,
        builder: &mut dyn TensorBuilder,
    ) -> Result<ModelInputs<'_>, ModelError> {
        Ok(ModelInputs::Samples(SampleInputs::from_builder(self, masks, with_graphs, builder)?))
    }

    fn samples(&self) -> u64 {
        self.common.len() as u64
    }
}

impl ModelBatch for CellBatch {
    fn inputs_from(
        &self,
        _: &[Tensor],
        _: bool,
        builder: &mut dyn TensorBuilder,
    ) -> Result<ModelInputs<'_>, ModelError> {
        Ok(ModelInputs::Rows(ArrayInputs::from_builder(self, None, builder)?))
    }

    fn samples(&self) -> u64 {
        self.len() as u64
    }
}

/// The inputs of a model for B samples of a graph, as tensors on the device.
///
/// Invariant: where the device is the host, large tensors are views of the batch's own memory and copy nothing; they must not outlive it.
#[derive(Debug)]
pub struct SampleInputs<'batch> {
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
    /// For each edge type, the positions of the edges that each sample lacks, on the host; with processor `shared`.
    pub removed: Option<&'batch [RemovedLists]>,
    /// `removed` on the device, for a model that reads graphs; empty for any other.
    pub removed_edges: Vec<RemovedInputs>,
    /// Masks that the step made, one for each edge type of the graph: bool `[B·E]`, sample by sample, 1 = kept. Empty where it made none.
    pub masks: Vec<Tensor>,
    /// Genes and labels on the host.
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
    /// bool `[ΣN]`: whether the gene is kept; `[0]` where the graphs contain the kept genes alone.
    pub kept: Tensor,
    /// Number of kept genes: the host knows it without waiting for the device.
    pub kept_genes: i64,
    /// int64 `[ΣN]`: the sample of each gene.
    pub batch: Tensor,
    /// Index in the whole graph of each of the ΣN genes.
    pub nodes: NodeGenes,
    /// The edge types, in the order of the graph.
    pub edges: Vec<EdgeInputs>,
}

/// Index in the whole graph, of N genes, of each node of a batch's graphs.
#[derive(Debug)]
pub enum NodeGenes {
    /// All genes in their order, once for each sample: processor `lazy`.
    All,
    /// int64 `[ΣN]`: these genes; processor `neighborhood`.
    Listed(Tensor),
    /// bool `[B·N]`, 1 = removed: all other genes in their order; processors `subgraph` and `incidence_subgraph`.
    Without(Tensor),
}

/// One edge type over a batch.
#[derive(Debug)]
pub struct EdgeInputs {
    /// int64 `[2, ΣE]`: sources and targets.
    pub edge_index: Tensor,
    /// bool `[ΣE]`: whether the edge is kept; `[0]` where the graphs contain the kept edges alone.
    pub mask: Tensor,
}

impl<'batch> SampleInputs<'batch> {
    /// Tensors of `batch` on `device`. `masks` are those that the step made itself, one per edge type, and replace the batch's own.
    /// `with_graphs` asks for the graphs or the removed edges of its samples, if the batch has them.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn new(batch: &'batch Batch, masks: &[Tensor], with_graphs: bool, device: Device) -> Result<Self, ModelError> {
        Self::from_builder(batch, masks, with_graphs, &mut DirectBuilder::new(device))
    }

    /// Tensors of `batch`, made by `builder`.
    ///
    /// # Errors
    /// libtorch has no memory.
    pub fn from_builder(
        batch: &'batch Batch,
        masks: &[Tensor],
        with_graphs: bool,
        builder: &mut dyn TensorBuilder,
    ) -> Result<Self, ModelError> {
        let common = &batch.common;
        let graphs = match &batch.layout {
            Layout::Graphs(graphs) if with_graphs => {
                let mut edges = Vec::with_capacity(graphs.edges.len());
                for (i, list) in graphs.edges.iter().enumerate() {
                    let entries = list.edge_index.len() as i64 / 2;
                    let edge_index = build_tensor(builder, &list.edge_index, &[2, entries], Kind::Int64)?;
                    // Also where the step made another mask: which tensors a batch has does not depend on that.
                    let shipped = build_tensor(builder, &list.mask, &[list.mask.len() as i64], Kind::Bool)?;
                    edges.push(EdgeInputs { edge_index, mask: masks.get(i).map_or(shipped, Tensor::shallow_clone) });
                }
                let genes = &graphs.genes;
                let (nodes, kept_genes) = NodeGenes::from_nodes(genes, builder)?;
                Some(GraphInputs {
                    kept: build_tensor(builder, &genes.kept, &[genes.kept.len() as i64], Kind::Bool)?,
                    kept_genes,
                    batch: build_tensor(builder, &genes.batch, &[genes.batch.len() as i64], Kind::Int64)?,
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
                positions: build_tensor(builder, &lists.positions, &[lists.positions.len() as i64], Kind::Int)?,
                ptr: build_tensor(builder, &lists.ptr, &[lists.ptr.len() as i64], Kind::Int64)?,
            });
        }
        let mut long = |values: &[i64]| build_tensor(builder, values, &[values.len() as i64], Kind::Int64);
        let (genes, gene_sample, gene_ptr) =
            (long(&common.genes)?, long(&common.gene_sample)?, long(&common.gene_ptr)?);
        Ok(Self {
            genes,
            gene_sample,
            gene_ptr,
            labels: build_tensor(builder, &common.labels, &[common.len() as i64], Kind::Float)?,
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
    /// The nodes of a batch, and how many of them are kept. Lists that a processor does not make are empty.
    fn from_nodes(genes: &Nodes, builder: &mut dyn TensorBuilder) -> Result<(Self, i64), ModelError> {
        let ones = |flags: &[u8]| flags.iter().map(|flag| i64::from(*flag)).sum::<i64>();
        if !genes.original.is_empty() || genes.batch.is_empty() {
            let listed = build_tensor(builder, &genes.original, &[genes.original.len() as i64], Kind::Int64)?;
            return Ok((Self::Listed(listed), ones(&genes.kept)));
        }
        if !genes.kept.is_empty() {
            return Ok((Self::All, ones(&genes.kept)));
        }
        let all = genes.perturbed.len() as i64;
        let removed = build_tensor(builder, &genes.perturbed, &[all], Kind::Bool)?;
        Ok((Self::Without(removed), all - ones(&genes.perturbed)))
    }
}

#[cfg(test)]
mod tests {
    use graph_loader::{Edges, Graphs};

    use super::*;

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
        let inputs = SampleInputs::new(&batch, &[], true, Device::Cpu).unwrap();
        let edges = &inputs.graphs.as_ref().unwrap().edges[0];
        assert_eq!(edges.edge_index.size(), [2, 3]);
        assert_eq!(edges.edge_index.int64_value(&[1, 0]), 3);
        assert_eq!(edges.mask.int64_value(&[1]), 0);
        let Layout::Graphs(graphs) = &batch.layout else { unreachable!() };
        assert_eq!(edges.edge_index.data_ptr() as usize, graphs.edges[0].edge_index.as_ptr() as usize);
        let made = SampleInputs::new(&batch, &[Tensor::from_slice(&[false, false, true])], true, Device::Cpu).unwrap();
        assert_eq!(made.graphs.unwrap().edges[0].mask.int64_value(&[0]), 0);
        assert!(SampleInputs::new(&batch, &[], false, Device::Cpu).unwrap().graphs.is_none());
    }

    #[test]
    fn nodes_are_known_by_what_their_processor_makes() {
        let of = |genes: Nodes| NodeGenes::from_nodes(&genes, &mut DirectBuilder::new(Device::Cpu)).unwrap();
        let nodes_of = |kept: &[u8], perturbed: &[u8], original: &[i64], batch: &[i64]| Nodes {
            kept: kept.to_vec(),
            perturbed: perturbed.to_vec(),
            original: original.to_vec(),
            batch: batch.to_vec(),
            ptr: Vec::new(),
        };
        // Two samples of three genes: all of them, those around a perturbed one, and all others.
        let (nodes, kept) = of(nodes_of(&[1, 0, 1, 1, 1, 0], &[0, 1, 0, 0, 0, 1], &[], &[0, 0, 0, 1, 1, 1]));
        assert!(matches!(nodes, NodeGenes::All) && kept == 4, "{nodes:?}");
        let (nodes, kept) = of(nodes_of(&[1, 0, 0], &[0, 1, 1], &[0, 1, 2], &[0, 0, 1]));
        assert!(matches!(&nodes, NodeGenes::Listed(genes) if genes.int64_value(&[2]) == 2) && kept == 1, "{nodes:?}");
        let (nodes, kept) = of(nodes_of(&[], &[0, 1, 0, 0, 0, 1], &[], &[0, 0, 1, 1]));
        assert!(matches!(&nodes, NodeGenes::Without(gone) if gone.size() == [6]) && kept == 4, "{nodes:?}");
        // Neighborhoods of no gene at all.
        let (nodes, kept) = of(nodes_of(&[], &[], &[], &[]));
        assert!(matches!(&nodes, NodeGenes::Listed(genes) if genes.size() == [0]) && kept == 0, "{nodes:?}");
    }

    #[test]
    fn removed_edges_come_along_for_a_model_that_reads_graphs() {
        let lists = RemovedLists { positions: vec![3, 5, 1], ptr: vec![0, 2, 3] };
        let common = Common { labels: vec![0.0; 2], gene_ptr: vec![0, 0, 0], ..Common::default() };
        let batch = Batch { common, layout: Layout::Shared { removed: vec![lists] } };
        let inputs = SampleInputs::new(&batch, &[], true, Device::Cpu).unwrap();
        let there = &inputs.removed_edges[0];
        assert_eq!(Vec::<i32>::try_from(&there.positions).unwrap(), [3, 5, 1]);
        assert_eq!(Vec::<i64>::try_from(&there.ptr).unwrap(), [0, 2, 3]);
        let without = SampleInputs::new(&batch, &[], false, Device::Cpu).unwrap();
        assert!(without.removed_edges.is_empty() && without.removed.is_some());
    }
}
