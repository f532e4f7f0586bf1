use tch::{Device, Kind, TchError, Tensor};
use torch_dist::{MatrixEntry, RemovedRows, SparseMatrix};

use crate::models::lazy::Encodings;
use crate::models::lazy::batched::{BatchedLayer, PairIndices};
use crate::models::lazy::layers::LazyParameters;
use crate::models::lazy::shared_graph::{contiguous, perturbed_genes, read_out};
use crate::models::{EdgeList, InputError, ModelError, SampleInputs, SizeError};

/// The encoder on one graph for all samples in libtorch's own operations, on any device: `[N, B, h]`.
///
/// The edges lie on the device once. A batch brings its gene ids and, with processor `shared`, the positions of its removed edges; the edges
/// that samples lack are found on the device, and the host waits for nothing.
#[derive(Debug)]
pub struct OperationsEncoder {
    edges: Vec<TypeEdges>,
    /// Where edge types and pairs are computed at once, as on a GPU.
    pairs: Option<PairIndices>,
}

/// The edges of one type on the device: 16 B per edge for the products, 16 B for their two ends.
#[derive(Debug)]
struct TypeEdges {
    name: String,
    /// Index among the edge types of a batch.
    index: usize,
    /// `[N, N]`: row v sums the rows of v's sources; an edge that is listed twice counts twice.
    sources_of: SparseMatrix,
    /// int64 `[E]`.
    sources: Tensor,
    /// int64 `[E]`.
    targets: Tensor,
}

/// The edges that the samples of a batch lack.
#[derive(Debug)]
enum MissingEdges {
    /// By genes: an edge is removed with either of its ends. bool `[N, B, 1]`, 0 = removed.
    Genes(Tensor),
    /// By lists, which may come from a store: for each type the rows, of `[N · B, h]`, that lose edges, and their source rows.
    Edges(Vec<RemovedRows>),
    /// By masks that the step made: for each type bool `[E, B, 1]`, 0 = removed.
    Masks(Vec<Tensor>),
}

impl OperationsEncoder {
    /// `indices` are those of the edge types among the edge types of a batch. The lists have been checked, over `genes` genes.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn new(graphs: &[EdgeList], indices: &[usize], genes: i64, device: Device) -> Result<Self, ModelError> {
        let rows = u32::try_from(genes).map_err(|_| SizeError::Genes(genes))?;
        let edges = graphs.iter().zip(indices).map(|(list, index)| TypeEdges::new(list, *index, rows, device));
        let mut encoder = Self { edges: edges.collect::<Result<_, _>>()?, pairs: None };
        if device != Device::Cpu {
            encoder.batch_types(device)?;
        }
        Ok(encoder)
    }

    /// Compute edge types and pairs at once from now on.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn batch_types(&mut self, device: Device) -> Result<(), TchError> {
        self.pairs = Some(PairIndices::new(self.edges.len(), device)?);
        Ok(())
    }

    /// # Errors
    /// A removed edge or a gene is out of range, the masks are those of another graph, or there is no memory.
    pub fn forward(&self, parameters: &LazyParameters, inputs: &SampleInputs<'_>) -> Result<Encodings, ModelError> {
        let (genes, h) = parameters.embedding.size2()?;
        let batch = inputs.batch_size;
        let gene_mask = gene_mask(inputs, genes, parameters.embedding.device())?;
        let missing = self.missing_edges(inputs, &gene_mask)?;

        let mut wild_type = contiguous(&parameters.preprocessor.forward(&parameters.embedding)?)?;
        let mut samples = wild_type.f_unsqueeze(1)?.f_expand([genes, batch, h], false)?.f_contiguous()?;
        for layer in &parameters.layers {
            let sources = match &missing {
                // A removed gene sends nothing; what it would receive is removed from the sums.
                MissingEdges::Genes(mask) => samples.f_mul(mask)?,
                MissingEdges::Edges(_) | MissingEdges::Masks(_) => samples.shallow_clone(),
            };
            let of_samples = |t: usize| self.edges[t].sums_of_samples(&sources, &missing, t);
            let of_wild_type = |t: usize| self.edges[t].sums(&wild_type);
            let (next, next_wild_type) = match &self.pairs {
                Some(pairs) => {
                    let layer = BatchedLayer::new(layer, pairs)?;
                    (layer.forward(&samples, of_samples)?, layer.forward(&wild_type, of_wild_type)?)
                }
                None => (layer.forward(&samples, of_samples)?, layer.forward(&wild_type, of_wild_type)?),
            };
            (samples, wild_type) = (contiguous(&next)?, contiguous(&next_wild_type)?);
        }
        read_out(&parameters.readout, wild_type, &samples, &gene_mask)
    }

    fn missing_edges(&self, inputs: &SampleInputs<'_>, gene_mask: &Tensor) -> Result<MissingEdges, ModelError> {
        if inputs.removed.is_some() {
            let removed = self.edges.iter().map(|edges| edges.removed(inputs));
            return Ok(MissingEdges::Edges(removed.collect::<Result<_, _>>()?));
        }
        if inputs.masks.is_empty() {
            return Ok(MissingEdges::Genes(gene_mask.f_unsqueeze(2)?));
        }
        let masks = self.edges.iter().map(|edges| edges.mask(inputs));
        Ok(MissingEdges::Masks(masks.collect::<Result<_, _>>()?))
    }
}

/// bool `[N, B]`, 0 = removed: the perturbed genes of each sample.
fn gene_mask(inputs: &SampleInputs<'_>, genes: i64, device: Device) -> Result<Tensor, ModelError> {
    perturbed_genes(inputs.common, genes as usize)?;
    let batch = inputs.batch_size;
    let removed = inputs.genes.f_mul_scalar(batch)?.f_add(&inputs.gene_sample)?;
    let mut mask = Tensor::f_ones([genes * batch], (Kind::Bool, device))?;
    let _ = mask.f_index_fill_(0, &removed, 0i64)?;
    Ok(mask.f_view([genes, batch])?)
}

impl TypeEdges {
    fn new(list: &EdgeList, index: usize, genes: u32, device: Device) -> Result<Self, ModelError> {
        let entry =
            |(source, target): (&i64, &i64)| MatrixEntry { row: *target as u32, column: *source as u32, value: 1.0 };
        let entries = list.sources.iter().zip(list.targets).map(entry).collect();
        let ends = |genes: &[i64]| Tensor::f_from_slice(genes)?.f_to_device(device);
        Ok(Self {
            name: list.name.to_owned(),
            index,
            sources_of: SparseMatrix::new(genes, genes, entries, device)?,
            sources: ends(list.sources)?,
            targets: ends(list.targets)?,
        })
    }

    fn len(&self) -> i64 {
        self.sources.size()[0]
    }

    /// The sum over all edges into each row of `x` of their source rows: float32 `[N, …]` to the same shape, float64 where `x` is.
    fn sums(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        if self.sources_of.num_entries() == 0 {
            return Ok(x.f_zeros_like()?);
        }
        let rows = x.f_reshape([x.size()[0], -1])?;
        Ok(self.sources_of.matmul(&rows)?.f_view(x.size().as_slice())?)
    }

    /// The sums over the edges of each sample, without its `missing` ones of this type, index `t`: `x` `[N, B, h]` to the same shape, with
    /// removed genes at 0 for [`MissingEdges::Genes`].
    fn sums_of_samples(&self, x: &Tensor, missing: &MissingEdges, t: usize) -> Result<Tensor, ModelError> {
        match missing {
            MissingEdges::Genes(mask) => Ok(self.sums(x)?.f_mul(mask)?),
            MissingEdges::Edges(removed) => {
                let RemovedRows { into, from } = &removed[t];
                let h = x.size()[2];
                let messages = x.f_view([-1, h])?.f_index_select(0, from)?.f_neg()?;
                let sums = self.sums(x)?.f_view([-1, h])?.f_index_add(0, into, &messages)?;
                Ok(sums.f_view(x.size().as_slice())?)
            }
            MissingEdges::Masks(masks) => {
                let messages = x.f_index_select(0, &self.sources)?.f_mul(&masks[t])?;
                Ok(x.f_zeros_like()?.f_index_add(0, &self.targets, &messages)?)
            }
        }
    }

    /// The target and source rows of the removed edges, of `[N · B, h]`.
    fn removed(&self, inputs: &SampleInputs<'_>) -> Result<RemovedRows, ModelError> {
        let batch = inputs.batch_size;
        let lists = inputs.removed.and_then(|lists| lists.get(self.index));
        let lists = lists.filter(|lists| {
            lists.ptr.len() as i64 == batch + 1 && lists.ptr.last() == Some(&(lists.positions.len() as i64))
        });
        let (Some(lists), Some(on_device)) = (lists, inputs.removed_edges.get(self.index)) else {
            return Err(InputError::NoRemovedEdges(self.name.clone()).into());
        };
        let edges = self.len();
        if let Some(&position) = lists.positions.iter().find(|position| !(0..edges).contains(&i64::from(**position))) {
            let edges = edges as usize;
            return Err(InputError::EdgeOutside { edge_type: self.name.clone(), position, edges }.into());
        }
        let removed = lists.positions.len() as i64;
        let counts = on_device.ptr.f_narrow(0, 1, batch)?.f_sub(&on_device.ptr.f_narrow(0, 0, batch)?)?;
        let samples = Tensor::f_arange(batch, (Kind::Int64, counts.device()))?;
        let samples = samples.f_repeat_interleave_self_tensor(&counts, 0i64, removed)?;
        let positions = on_device.positions.f_to_kind(Kind::Int64)?;
        let rows = |ends: &Tensor| -> Result<Tensor, TchError> {
            ends.f_index_select(0, &positions)?.f_mul_scalar(batch)?.f_add(&samples)
        };
        Ok(RemovedRows { into: rows(&self.targets)?, from: rows(&self.sources)? })
    }

    /// The mask that the step made, bool `[E, B, 1]`.
    fn mask(&self, inputs: &SampleInputs<'_>) -> Result<Tensor, ModelError> {
        let (edges, batch) = (self.len(), inputs.batch_size);
        let mask = inputs.masks.get(self.index).filter(|mask| mask.size() == [batch * edges]);
        let mask = mask.ok_or_else(|| InputError::NoStepMasks(self.name.clone()))?;
        Ok(mask.f_view([batch, edges])?.f_transpose(0, 1)?.f_unsqueeze(2)?)
    }
}
