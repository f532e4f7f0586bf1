//! `OperationsEncoder` encodes all samples of a batch on the one graph that they share: the edges stay on the device, and each sample is the
//! wild type less its removed edges. On a GPU it also runs where the shared implementation is asked for, whose kernels are for CPUs.

use tch::{Device, Kind, TchError, Tensor};
use torch_dist::{MatrixEntry, RemovedRows, SparseMatrix};

use crate::models::lazy::Encodings;
use crate::models::lazy::batched::{BatchedLayer, PairIndices};
use crate::models::lazy::layers::LazyParameters;
use crate::models::lazy::shared_graph::{
    EdgeEnds, FirstLayerRows, RemovedEdges, contiguous, perturbed_genes, read_out,
};
use crate::models::{EdgeList, InputError, ModelError, SampleInputs, SizeError};

/// The encoder on one graph for all samples in libtorch's own operations, on any device: `[N, B, h]`.
///
/// The edges lie on the device once. A batch brings its gene ids and, with processor `shared`, the positions of its removed edges; the edges
/// that samples lack are found on the device, and the host waits for nothing.
#[derive(Debug)]
pub struct OperationsEncoder {
    edges: Vec<TypeEdges>,
    products: Products,
}

/// How the edge types and their pairs are computed.
#[derive(Debug)]
enum Products {
    /// One after another, which takes less memory at once. A matrix `[N, N]` for each type: row v sums the rows of v's sources; an edge that is
    /// listed twice counts twice.
    ByType(Vec<SparseMatrix>),
    /// At once, as on a GPU.
    AtOnce(AllTypes),
}

/// What edge types that are computed at once need beside their edges.
#[derive(Debug)]
struct AllTypes {
    pairs: PairIndices,
    /// The matrices of all types one below the other, `[T N, N]`.
    sources_of: SparseMatrix,
    /// On the host: which rows of the first layer differ between samples.
    ends: Vec<EdgeEnds>,
}

/// The edges of one type on the device, 16 B per edge.
#[derive(Debug)]
struct TypeEdges {
    name: String,
    /// Index among the edge types of a batch.
    index: usize,
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
        let edges = graphs.iter().zip(indices).map(|(list, index)| TypeEdges::new(list, *index, device));
        let edges = edges.collect::<Result<_, _>>()?;
        let mut encoder = Self { edges, products: Products::ByType(Vec::new()) };
        if device == Device::Cpu {
            let matrices = graphs.iter().map(|list| sources_of(std::slice::from_ref(list), genes, device));
            encoder.products = Products::ByType(matrices.collect::<Result<_, _>>()?);
        } else {
            encoder.batch_types(genes, device)?;
        }
        Ok(encoder)
    }

    /// Compute edge types and pairs at once from now on.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn batch_types(&mut self, genes: i64, device: Device) -> Result<(), ModelError> {
        let ends = |genes: &Tensor| Vec::<i64>::try_from(genes);
        let ends = self.edges.iter().map(|edges| Ok((ends(&edges.sources)?, ends(&edges.targets)?)));
        let ends = ends.collect::<Result<Vec<_>, TchError>>()?;
        let lists: Vec<EdgeList<'_>> = self
            .edges
            .iter()
            .zip(&ends)
            .map(|(edges, (sources, targets))| EdgeList { name: &edges.name, sources, targets })
            .collect();
        let ends = lists.iter().zip(&self.edges).map(|(list, edges)| EdgeEnds::new(list, edges.index, genes as usize));
        self.products = Products::AtOnce(AllTypes {
            pairs: PairIndices::new(lists.len(), device)?,
            ends: ends.collect(),
            sources_of: sources_of(&lists, genes, device)?,
        });
        Ok(())
    }

    /// # Errors
    /// A removed edge or a gene is out of range, the masks are those of another graph, or there is no memory.
    pub fn forward(&self, parameters: &LazyParameters, inputs: &SampleInputs<'_>) -> Result<Encodings, ModelError> {
        let gene_mask = gene_mask(inputs, parameters.embedding.size()[0], parameters.embedding.device())?;
        let missing = self.missing_edges(inputs, &gene_mask)?;
        let start = contiguous(&parameters.preprocessor.forward(&parameters.embedding)?)?;
        let (samples, wild_type) = match &self.products {
            Products::ByType(matrices) => self.by_type(matrices, parameters, &missing, start, inputs.batch_size)?,
            Products::AtOnce(all) => self.at_once(all, parameters, &missing, start, inputs)?,
        };
        read_out(&parameters.readout, wild_type, &samples, &gene_mask)
    }

    /// Rows of the samples, `[N, B, h]`, and of the wild type, `[N, h]`, one edge type after another.
    fn by_type(
        &self,
        matrices: &[SparseMatrix],
        parameters: &LazyParameters,
        missing: &MissingEdges,
        start: Tensor,
        batch: i64,
    ) -> Result<(Tensor, Tensor), ModelError> {
        let mut samples = for_each_sample(&start, batch)?;
        let mut wild_type = start;
        for layer in &parameters.layers {
            let sources = missing.sending(&samples)?;
            let next = layer.forward(&samples, |t| {
                let sums = || sums(&matrices[t], &sources);
                self.edges[t].sums_of_samples(&sources, missing, t, sums)
            })?;
            let next_wild_type = layer.forward(&wild_type, |t| sums(&matrices[t], &wild_type))?;
            (samples, wild_type) = (contiguous(&next)?, contiguous(&next_wild_type)?);
        }
        Ok((samples, wild_type))
    }

    /// The same with one product for all edge types. The first layer is computed for the rows that differ: all samples start from the same
    /// embedding, so a row that no edge is removed from is that of every other such sample.
    fn at_once(
        &self,
        all: &AllTypes,
        parameters: &LazyParameters,
        missing: &MissingEdges,
        start: Tensor,
        inputs: &SampleInputs<'_>,
    ) -> Result<(Tensor, Tensor), ModelError> {
        let (genes, h) = start.size2()?;
        let (batch, device) = (inputs.batch_size, start.device());
        let mut samples = None;
        let mut first = None;
        if matches!(missing, MissingEdges::Masks(_)) {
            samples = Some(for_each_sample(&start, batch)?);
        } else {
            let removed = RemovedEdges::from_inputs(inputs, &all.ends, genes as usize, Device::Cpu)?;
            first = Some(FirstLayerRows::new(&removed, device)?);
        }
        let mut wild_type = start;
        for layer in &parameters.layers {
            let layer = BatchedLayer::new(layer, &all.pairs)?;
            let sums = all.sums(&wild_type)?;
            let next = match (samples.take(), &first) {
                (None, Some(first)) => {
                    let rows = Tensor::f_cat(&[&Tensor::f_arange(genes, (Kind::Int64, device))?, &first.copied], 0)?;
                    let lost = wild_type.f_index_select(0, &first.removed.from)?.f_neg()?;
                    let sums = sums.f_index_select(1, &rows)?;
                    let shape = sums.size();
                    let sums =
                        sums.f_view([-1, h])?.f_index_add(0, &first.removed.into, &lost)?.f_view(shape.as_slice())?;
                    let weights = first.weights.f_to_kind(wild_type.kind())?;
                    let next = layer.forward(&wild_type.f_index_select(0, &rows)?, &sums, Some(&weights))?;
                    contiguous(&next)?.f_index_select(0, &first.row_of)?
                }
                (before, _) => {
                    let x = before.ok_or(SizeError::MessagePassingLayers(0))?;
                    let sums = self.sums_at_once(all, &x, missing)?;
                    contiguous(&layer.forward(&x.f_view([-1, h])?, &sums, None)?)?
                }
            };
            samples = Some(next.f_view([genes, batch, h])?);
            wild_type = contiguous(&layer.forward(&wild_type, &sums, None)?)?;
        }
        Ok((samples.ok_or(SizeError::MessagePassingLayers(0))?, wild_type))
    }

    /// The sums over the edges of each type and sample, without the `missing` ones: `x` `[N, B, h]` to `[T, N B, h]`.
    fn sums_at_once(&self, all: &AllTypes, x: &Tensor, missing: &MissingEdges) -> Result<Tensor, ModelError> {
        let (genes, batch, h) = x.size3()?;
        let types = self.edges.len() as i64;
        let by_row = [types, genes * batch, h];
        match missing {
            MissingEdges::Genes(mask) => {
                let sums = all.sums(&x.f_mul(mask)?)?.f_view([types, genes, batch, h])?;
                Ok(sums.f_mul(mask)?.f_view(by_row)?)
            }
            MissingEdges::Edges(removed) => {
                let from: Vec<&Tensor> = removed.iter().map(|rows| &rows.from).collect();
                let into = removed.iter().zip(0..).map(|(rows, t)| rows.into.f_add_scalar(t * genes * batch));
                let into = Tensor::f_cat(&into.collect::<Result<Vec<_>, _>>()?, 0)?;
                let lost = x.f_view([-1, h])?.f_index_select(0, &Tensor::f_cat(&from, 0)?)?.f_neg()?;
                Ok(all.sums(x)?.f_view([-1, h])?.f_index_add(0, &into, &lost)?.f_view(by_row)?)
            }
            MissingEdges::Masks(masks) => {
                let sums = self.edges.iter().zip(masks).map(|(edges, mask)| edges.masked_sums(x, mask));
                Ok(Tensor::f_stack(&sums.collect::<Result<Vec<_>, _>>()?, 0)?.f_view(by_row)?)
            }
        }
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

/// Matrices `[N, N]` of the edges of `lists` one below the other: row t N + v sums the rows of v's sources along the edges of list t.
fn sources_of(lists: &[EdgeList<'_>], genes: i64, device: Device) -> Result<SparseMatrix, ModelError> {
    let rows = |lists: usize| {
        u32::try_from(genes).ok().and_then(|genes| genes.checked_mul(lists as u32)).ok_or(SizeError::Genes(genes))
    };
    let mut entries = Vec::new();
    for (t, list) in lists.iter().enumerate() {
        let first = rows(t)?;
        entries.extend(list.sources.iter().zip(list.targets).map(|(source, target)| MatrixEntry {
            row: first + *target as u32,
            column: *source as u32,
            value: 1.0,
        }));
    }
    Ok(SparseMatrix::new(rows(lists.len())?, rows(1)?, entries, device)?)
}

/// The sum over all edges into each row of `x` of their source rows: float32 `[N, …]` to the same shape, float64 where `x` is.
fn sums(sources_of: &SparseMatrix, x: &Tensor) -> Result<Tensor, ModelError> {
    if sources_of.num_entries() == 0 {
        return Ok(x.f_zeros_like()?);
    }
    let rows = x.f_reshape([x.size()[0], -1])?;
    Ok(sources_of.matmul(&rows)?.f_view(x.size().as_slice())?)
}

/// `[N, h]` to a copy for each sample, `[N, B, h]`.
fn for_each_sample(start: &Tensor, batch: i64) -> Result<Tensor, TchError> {
    let (genes, h) = start.size2()?;
    start.f_unsqueeze(1)?.f_expand([genes, batch, h], false)?.f_contiguous()
}

impl AllTypes {
    /// The sums over each row's sources along the edges of each type: `[N, …, h]` to `[T, N …, h]`.
    fn sums(&self, x: &Tensor) -> Result<Tensor, ModelError> {
        let (rows, h) = (x.size()[0], x.size().last().copied().unwrap_or_default());
        let types = self.ends.len() as i64;
        let shape = [types, x.numel() as i64 / h.max(1), h];
        if self.sources_of.num_entries() == 0 {
            return Ok(Tensor::f_zeros(shape, (x.kind(), x.device()))?);
        }
        Ok(self.sources_of.matmul(&x.f_reshape([rows, -1])?)?.f_view(shape)?)
    }
}

impl MissingEdges {
    /// The rows that samples send along edges: a removed gene sends nothing. What it would receive is removed from the sums.
    fn sending(&self, x: &Tensor) -> Result<Tensor, TchError> {
        match self {
            Self::Genes(mask) => x.f_mul(mask),
            Self::Edges(_) | Self::Masks(_) => Ok(x.shallow_clone()),
        }
    }
}

impl TypeEdges {
    fn new(list: &EdgeList, index: usize, device: Device) -> Result<Self, TchError> {
        let ends = |genes: &[i64]| Tensor::f_from_slice(genes)?.f_to_device(device);
        Ok(Self { name: list.name.to_owned(), index, sources: ends(list.sources)?, targets: ends(list.targets)? })
    }

    fn len(&self) -> i64 {
        self.sources.size()[0]
    }

    /// The sums over the edges of each sample, without its `missing` ones of this type, index `t`: `x` `[N, B, h]` to the same shape, with
    /// removed genes at 0 for [`MissingEdges::Genes`]. `sums`: those over all edges.
    fn sums_of_samples(
        &self,
        x: &Tensor,
        missing: &MissingEdges,
        t: usize,
        sums: impl Fn() -> Result<Tensor, ModelError>,
    ) -> Result<Tensor, ModelError> {
        match missing {
            MissingEdges::Genes(mask) => Ok(sums()?.f_mul(mask)?),
            MissingEdges::Edges(removed) => {
                let RemovedRows { into, from } = &removed[t];
                let h = x.size()[2];
                let messages = x.f_view([-1, h])?.f_index_select(0, from)?.f_neg()?;
                let sums = sums()?.f_view([-1, h])?.f_index_add(0, into, &messages)?;
                Ok(sums.f_view(x.size().as_slice())?)
            }
            MissingEdges::Masks(masks) => self.masked_sums(x, &masks[t]),
        }
    }

    /// The sums of the messages that `mask`, `[E, B, 1]`, keeps: `x` `[N, B, h]` to the same shape.
    fn masked_sums(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor, ModelError> {
        let messages = x.f_index_select(0, &self.sources)?.f_mul(mask)?;
        Ok(x.f_zeros_like()?.f_index_add(0, &self.targets, &messages)?)
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
