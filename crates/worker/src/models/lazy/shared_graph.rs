//! The lazy model on one graph for all samples, with the kernels of the host: docs/reference/lazy-model.md says why it gives the same.
//!
//! Invariant: a sample differs from the wild type by its removed edges alone, and every sample starts from the same embedding. So the sums
//! of the wild type are corrected, and the first layer is computed for the rows that differ.

use expctl_settings::Norm;
use graph_loader::{Common, EdgeType, Incidence, RemovedLists};
use tch::kind::Element;
use tch::{Device, Kind, TchError, Tensor, nn};
use torch_dist::{DistError, EdgeTypeJoin, LayerShape, Neighbours, RemovedRows, layer_rows, sums_of_differing};

use crate::models::layers::upcast;
use crate::models::lazy::Encodings;
use crate::models::lazy::layers::{Aggregation, ChannelNorm, EPS, LazyLayer, LazyParameters, Readout};
use crate::models::{EdgeList, InputError, ModelError, SampleInputs, SizeError};

/// The kernels run on the host alone.
const HOST: Device = Device::Cpu;

/// The encoder on one graph for all samples with the kernels of [`torch_dist::layer_rows`]: `[N, B, h]`, so that the rows of a gene for all
/// samples lie together.
#[derive(Debug)]
pub struct SharedEncoder {
    neighbours: Neighbours,
    edges: Vec<EdgeEnds>,
}

impl SharedEncoder {
    /// `indices` are those of the edge types among the edge types of a batch. The lists have been checked.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(graphs: &[EdgeList], indices: &[usize], genes: i64) -> Result<Self, ModelError> {
        Ok(Self {
            neighbours: Neighbours::new(genes, graphs.iter().map(|list| (list.sources, list.targets)))?,
            edges: graphs
                .iter()
                .zip(indices)
                .map(|(list, index)| EdgeEnds::new(list, *index, genes as usize))
                .collect(),
        })
    }

    /// The encodings of a batch.
    ///
    /// # Errors
    /// A removed edge or a gene is out of range, or there is no memory.
    pub fn forward(&self, parameters: &LazyParameters, inputs: &SampleInputs<'_>) -> Result<Encodings, ModelError> {
        let (genes, h) = parameters.embedding.size2()?;
        let batch = inputs.batch_size;
        let removed = RemovedEdges::from_inputs(inputs, &self.edges, genes as usize, HOST)?;
        let first = FirstLayerRows::new(&removed, HOST)?;
        let all_removed = removed.in_all_rows(HOST)?;

        let start = contiguous(&parameters.preprocessor.forward(&parameters.embedding)?)?;
        let mut wild_type = start.shallow_clone();
        let mut samples = None;
        for layer in &parameters.layers {
            let eps = layer.eps()?;
            let sums = self.neighbours.sums(&wild_type, &eps, None)?;
            samples = Some(match samples {
                None => {
                    let sums = sums_of_differing(&sums, &start, &first.copied, &first.removed)?;
                    let rows = contiguous(&layer.rows(&sums, Some(&first.weights.f_to_kind(start.kind())?))?)?;
                    rows.f_index_select(0, &first.row_of)?.f_view([genes, batch, h])?
                }
                Some(x) => {
                    let sums = self.neighbours.sums(&x, &eps, Some(&all_removed))?;
                    drop(x);
                    let rows = layer.rows(&sums.f_view([-1, genes * batch, h])?, None)?;
                    contiguous(&rows)?.f_view([genes, batch, h])?
                }
            });
            wild_type = contiguous(&layer.rows(&sums, None)?)?;
        }
        let samples = samples.ok_or(SizeError::MessagePassingLayers(0))?;
        read_out(&parameters.readout, wild_type, &samples, &removed.kept)
    }
}

/// The encodings with their readouts: `wild_type` float32 `[N, h]`, `samples` `[N, B, h]`, `gene_mask` bool `[N, B]`, 0 = removed.
pub fn read_out(
    readout: &Readout,
    wild_type: Tensor,
    samples: &Tensor,
    gene_mask: &Tensor,
) -> Result<Encodings, ModelError> {
    let all = Tensor::f_ones([wild_type.size()[0], 1], (Kind::Bool, gene_mask.device()))?;
    Ok(Encodings {
        wild_type: readout.forward_samples(&wild_type.f_unsqueeze(1)?, &all)?,
        samples: readout.forward_samples(samples, gene_mask)?,
        genes: wild_type,
    })
}

/// `x` in memory order, float32 also under autocast, as sums and norms need it.
pub fn contiguous(x: &Tensor) -> Result<Tensor, TchError> {
    upcast(x)?.f_contiguous()
}

impl Readout {
    /// Σ softmax(gate) · GELU(W x + b) over the kept genes of each sample: `x` float32 `[N, B, h]`, `kept` bool `[N, B]`, to `[B, h]`. A sample
    /// without kept genes sums to 0.
    fn forward_samples(&self, x: &Tensor, kept: &Tensor) -> Result<Tensor, TchError> {
        let gates = contiguous(&self.gate.forward(x)?)?.f_squeeze_dim(-1)?;
        let gates = gates.f_masked_fill(&kept.f_logical_not()?, -1e30)?;
        let weights = gates.f_softmax(0, None)?.f_mul(kept)?;
        let weighed = contiguous(&self.values(x)?)?.f_mul(&weights.f_unsqueeze(-1)?)?;
        weighed.f_sum_dim_intlist([0i64].as_slice(), false, None)
    }
}

/// The distinct rows of the first layer: one for each gene of the wild type, and behind them one for each gene and sample that a removed edge
/// leads into. All other rows of samples are equal to those of the wild type.
#[derive(Debug)]
pub struct FirstLayerRows {
    /// int64 `[D]`: the gene of each row behind the first N.
    pub copied: Tensor,
    /// The source rows `[N]` that rows `[N + D]` lose.
    pub removed: RemovedRows,
    /// float32 `[N + D]`: the number of rows of the batch that each stands for.
    pub weights: Tensor,
    /// int64 `[N · B]`: the row of each gene and sample.
    pub row_of: Tensor,
}

impl FirstLayerRows {
    pub fn new(batch: &RemovedEdges, device: Device) -> Result<Self, TchError> {
        let (genes, samples) = (batch.genes, batch.batch);
        let mut row_of: Vec<i64> = (0..genes * samples).map(|i| (i / samples) as i64).collect();
        let mut weights = vec![samples as f32; genes];
        let mut copied = Vec::new();
        for edge in batch.edges.iter().flatten() {
            let row = &mut row_of[edge.target as usize * samples + edge.sample as usize];
            if (*row as usize) < genes {
                *row = (genes + copied.len()) as i64;
                weights[edge.target as usize] -= 1.0;
                copied.push(i64::from(edge.target));
            }
        }
        weights.resize(genes + copied.len(), 1.0);
        let rows = weights.len();
        let removed = removed_rows(&batch.edges, device, |t, edge| {
            let row = row_of[edge.target as usize * samples + edge.sample as usize];
            ((t * rows) as i64 + row, i64::from(edge.source))
        })?;
        Ok(Self {
            copied: on_device(&copied, device)?,
            removed,
            weights: on_device(&weights, device)?,
            row_of: on_device(&row_of, device)?,
        })
    }
}

/// The ends of the edges of one type, and the edges of each gene: 16 B per edge.
#[derive(Debug)]
pub struct EdgeEnds {
    name: String,
    /// Index among the edge types of a batch.
    index: usize,
    /// Source and target of each edge.
    ends: Vec<[u32; 2]>,
    incidence: Incidence,
}

/// A removed edge of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedEdge {
    pub source: u32,
    pub target: u32,
    pub sample: u32,
}

/// The removed edges of a batch and its perturbed genes.
#[derive(Debug)]
pub struct RemovedEdges {
    /// By edge type.
    pub edges: Vec<Vec<RemovedEdge>>,
    /// bool `[N, B]`: whether the gene is kept.
    pub kept: Tensor,
    pub genes: usize,
    pub batch: usize,
}

impl EdgeEnds {
    /// The list has been checked.
    pub fn new(list: &EdgeList, index: usize, genes: usize) -> Self {
        let ends = list.sources.iter().zip(list.targets).map(|(s, t)| [*s as u32, *t as u32]).collect();
        let edge_type = EdgeType { name: list.name.to_owned(), edge_index: [list.sources, list.targets].concat() };
        Self { name: list.name.to_owned(), index, ends, incidence: Incidence::build(&edge_type, genes) }
    }

    /// The removed edges at the positions that the loader found.
    fn listed(&self, lists: &[RemovedLists], batch: usize) -> Result<Vec<RemovedEdge>, ModelError> {
        let list = lists.get(self.index).filter(|list| list.ptr.len() == batch + 1);
        let list = list.ok_or_else(|| InputError::NoRemovedEdges(self.name.clone()))?;
        let mut removed = Vec::with_capacity(list.positions.len());
        for sample in 0..batch {
            for &position in list.of(sample) {
                let ends = usize::try_from(position).ok().and_then(|p| self.ends.get(p));
                let [source, target] = *ends.ok_or_else(|| InputError::EdgeOutside {
                    edge_type: self.name.clone(),
                    position,
                    edges: self.ends.len(),
                })?;
                removed.push(RemovedEdge { source, target, sample: sample as u32 });
            }
        }
        Ok(removed)
    }

    /// The removed edges at the perturbed genes of each sample; an edge between two perturbed genes once.
    fn incident(&self, genes_of: &[Vec<u32>]) -> Vec<RemovedEdge> {
        let mut removed = Vec::new();
        for (sample, genes) in genes_of.iter().enumerate() {
            for (i, &gene) in genes.iter().enumerate() {
                for &position in self.incidence.of(i64::from(gene)) {
                    let [source, target] = self.ends[position as usize];
                    let other = if source == gene { target } else { source };
                    if !genes[..i].contains(&other) {
                        removed.push(RemovedEdge { source, target, sample: sample as u32 });
                    }
                }
            }
        }
        removed
    }
}

impl RemovedEdges {
    /// The removed edges of a batch: those of its lists or, where it has none, those at its genes.
    ///
    /// # Errors
    /// A gene, a sample or a position is out of range.
    pub fn from_inputs(
        inputs: &SampleInputs<'_>,
        edges: &[EdgeEnds],
        genes: usize,
        device: Device,
    ) -> Result<Self, ModelError> {
        let batch = inputs.batch_size as usize;
        let mut genes_of = vec![Vec::<u32>::new(); batch];
        let mut kept = vec![true; genes * batch];
        for (gene, sample) in perturbed_genes(inputs.common, genes)? {
            let of_sample = &mut genes_of[sample];
            if !of_sample.contains(&(gene as u32)) {
                of_sample.push(gene as u32);
                kept[gene * batch + sample] = false;
            }
        }
        let edges = match inputs.removed {
            Some(lists) => edges.iter().map(|e| e.listed(lists, batch)).collect::<Result<_, _>>()?,
            None => edges.iter().map(|e| e.incident(&genes_of)).collect(),
        };
        let kept = Tensor::f_from_slice(&kept)?.f_to_device(device)?.f_to_kind(Kind::Bool)?;
        Ok(Self { edges, kept: kept.f_view([genes as i64, batch as i64])?, genes, batch })
    }

    /// The source rows `[N · B]` that rows `[T · N · B]` of sums lose.
    fn in_all_rows(&self, device: Device) -> Result<RemovedRows, TchError> {
        let (genes, batch) = (self.genes as i64, self.batch as i64);
        let row = |gene: u32, sample: u32| i64::from(gene) * batch + i64::from(sample);
        removed_rows(&self.edges, device, |t, edge| {
            (t as i64 * genes * batch + row(edge.target, edge.sample), row(edge.source, edge.sample))
        })
    }
}

/// The perturbed genes of a batch, each with its sample, all in range. They are checked on the host, because on a GPU an index that is out
/// of range ends the process.
///
/// # Errors
/// A gene is not among the `genes` genes of the graph, or its sample is not among those of the batch.
pub fn perturbed_genes(common: &Common, genes: usize) -> Result<Vec<(usize, usize)>, ModelError> {
    let batch = common.len();
    let check = |(gene, sample): (&i64, &i64)| -> Result<(usize, usize), ModelError> {
        let gene = usize::try_from(*gene).ok().filter(|gene| *gene < genes);
        let gene = gene.ok_or(InputError::GeneOutside { genes })?;
        let index = usize::try_from(*sample).ok().filter(|sample| *sample < batch);
        let index = index.ok_or(InputError::SampleOutside { sample: *sample, samples: batch })?;
        Ok((gene, index))
    };
    common.genes.iter().zip(&common.gene_sample).map(check).collect()
}

/// A tensor of `values`. To a GPU it is sent from page-locked memory, so that the host does not wait until the GPU gets there.
fn on_device<T: Element>(values: &[T], device: Device) -> Result<Tensor, TchError> {
    let here = Tensor::f_from_slice(values)?;
    if !device.is_cuda() {
        return here.f_to_device(device);
    }
    here.f_pin_memory(device)?.f_to_device_(device, here.kind(), true, false)
}

/// The target and source rows of all removed edges; `rows` gives both for an edge of type `t`.
fn removed_rows(
    edges: &[Vec<RemovedEdge>],
    device: Device,
    mut rows: impl FnMut(usize, &RemovedEdge) -> (i64, i64),
) -> Result<RemovedRows, TchError> {
    let (into, from): (Vec<i64>, Vec<i64>) = edges
        .iter()
        .enumerate()
        .flat_map(|(t, edges)| edges.iter().map(move |edge| (t, edge)))
        .map(|(t, edge)| rows(t, edge))
        .unzip();
    Ok(RemovedRows { into: on_device(&into, device)?, from: on_device(&from, device)? })
}

impl LazyLayer {
    /// ε of each edge type, float32 `[T]`.
    fn eps(&self) -> Result<Tensor, TchError> {
        Tensor::f_cat(&self.convolutions.iter().map(|c| &c.eps).collect::<Vec<_>>(), 0)
    }

    /// The layer over sums of neighbours, float32 `[T, R, h]` to `[R, h]`. `weights`, float32 `[R]`: the number of equal rows that each row
    /// stands for.
    fn rows(&self, sums: &Tensor, weights: Option<&Tensor>) -> Result<Tensor, ModelError> {
        let mut parameters = Vec::new();
        for convolution in &self.convolutions {
            for layer in &convolution.mlp.linears {
                push_linear(&mut parameters, layer)?;
            }
            parameters.extend([&convolution.norm.weight, &convolution.norm.bias]);
        }
        let first = self.convolutions.first().ok_or(SizeError::NoEdgeTypes)?;
        let mut shape = LayerShape {
            linears: first.mlp.linears.len() as i64,
            pair_hidden: 0,
            scorer_hidden: 0,
            join: EdgeTypeJoin::Sum,
            node_norm: first.norm.over == Norm::Node,
            eps: EPS,
        };
        let mut norm = None;
        match &self.aggregation {
            Aggregation::Sum => {}
            Aggregation::Mean => shape.join = EdgeTypeJoin::Mean,
            Aggregation::Pairwise(pairwise) => {
                shape.join = EdgeTypeJoin::Pairwise;
                for layer in pairwise.pairs.iter().flat_map(|mlp| &mlp.linears) {
                    push_linear(&mut parameters, layer)?;
                }
                for layer in &pairwise.scorer.linears {
                    push_linear(&mut parameters, layer)?;
                }
                let inner = |linears: &[nn::Linear]| linears.first().map_or(0, |l| l.ws.size()[0]);
                shape.pair_hidden = pairwise.pairs.first().map_or(0, |mlp| inner(&mlp.linears));
                shape.scorer_hidden = inner(&pairwise.scorer.linears);
                norm = pairwise.norm.as_ref();
            }
        }
        let joined = layer_rows(sums, &parameters, weights, &shape)?;
        match norm {
            None => Ok(joined),
            Some(norm) => Ok(weighted_norm(norm, &joined, weights)?),
        }
    }
}

fn push_linear<'a>(parameters: &mut Vec<&'a Tensor>, layer: &'a nn::Linear) -> Result<(), DistError> {
    let bias = layer.bs.as_ref().ok_or_else(|| DistError::Torch {
        operation: "rows of a layer".to_owned(),
        message: "a linear layer has no bias".to_owned(),
    })?;
    parameters.extend([&layer.ws, bias]);
    Ok(())
}

/// The norm of rows that each stand for several equal rows.
pub fn weighted_norm(norm: &ChannelNorm, x: &Tensor, weights: Option<&Tensor>) -> Result<Tensor, TchError> {
    let Some(weights) = weights.filter(|_| norm.over == Norm::Graph) else { return norm.forward(x) };
    let weights = weights.f_unsqueeze(1)?;
    let count = weights.f_sum(None)?.f_mul_scalar(x.size()[1])?;
    let mean = |values: &Tensor| values.f_mul(&weights)?.f_sum(None)?.f_div(&count);
    let centred = x.f_sub(&mean(x)?)?;
    let deviation = mean(&centred.f_square()?)?.f_sqrt()?.f_add_scalar(EPS)?;
    centred.f_div(&deviation)?.f_mul(&norm.weight)?.f_add(&norm.bias)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_batch_is_counted_once() {
        let edge = |source, target, sample| RemovedEdge { source, target, sample };
        let edges = vec![vec![edge(0, 1, 0), edge(2, 1, 0), edge(0, 2, 1)], vec![edge(1, 1, 1), edge(1, 1, 0)]];
        let kept = Tensor::ones([4, 2], (Kind::Bool, Device::Cpu));
        let batch = RemovedEdges { edges, kept, genes: 4, batch: 2 };
        let first = FirstLayerRows::new(&batch, Device::Cpu).unwrap();
        let list = |t: &Tensor| Vec::<i64>::try_from(t).unwrap();
        assert_eq!(list(&first.copied), [1, 2, 1]);
        assert_eq!(Vec::<f32>::try_from(&first.weights).unwrap(), [2.0, 0.0, 1.0, 2.0, 1.0, 1.0, 1.0]);
        assert_eq!(list(&first.row_of), [0, 0, 4, 6, 2, 5, 3, 3]);
        assert_eq!(list(&first.removed.into), [4, 4, 5, 7 + 6, 7 + 4]);
        assert_eq!(list(&first.removed.from), [0, 2, 0, 1, 1]);
    }
}
