//! `ReplicatedEncoder` is the reference for the other encoders: it passes messages on a graph of its own for each sample, `[ΣN, h]`, as
//! the published code does.

use tch::{Device, Kind, TchError, Tensor};

use crate::models::lazy::Encodings;
use crate::models::lazy::layers::{LazyParameters, Readout};
use crate::models::{EdgeList, GraphInputs, InputError, ModelError, NodeGenes, SampleInputs};

/// The encoder as published: it runs on the graph of the wild type, and on the graphs of a batch. These are copies of the wild type's graph
/// with masks, as published, or subgraphs of it: without the removed genes and edges, or with the genes around the removed ones alone.
#[derive(Debug)]
pub struct ReplicatedEncoder {
    /// All edges of each type, int64 `[2, E]`.
    wild_type: Vec<Tensor>,
    /// Index of each type among the edge types of a batch.
    indices: Vec<usize>,
    names: Vec<String>,
}

/// The edges of one type, and which of them are kept: all, without a mask.
pub struct MaskedEdges {
    /// int64 `[2, E]`.
    pub index: Tensor,
    /// bool `[E, 1]`.
    pub mask: Option<Tensor>,
}

impl ReplicatedEncoder {
    pub fn new(graphs: &[EdgeList], indices: &[usize], device: Device) -> Result<Self, ModelError> {
        let index = |list: &EdgeList| {
            let rows = [list.sources, list.targets].map(Tensor::f_from_slice);
            let [sources, targets] = rows;
            Tensor::f_stack(&[sources?, targets?], 0)?.f_to_device(device)
        };
        Ok(Self {
            wild_type: graphs.iter().map(index).collect::<Result<_, TchError>>()?,
            indices: indices.to_vec(),
            names: graphs.iter().map(|list| list.name.to_owned()).collect(),
        })
    }

    pub fn forward(&self, parameters: &LazyParameters, inputs: &SampleInputs<'_>) -> Result<Encodings, ModelError> {
        let graphs = inputs.graphs.as_ref().ok_or(InputError::NoGraphs)?;
        let embedding = &parameters.embedding;
        let (genes, batch) = (embedding.size()[0], inputs.batch_size);
        let start = rows(embedding, graphs, batch)?;
        let edges = self.indices.iter().zip(&self.names).map(|(index, name)| edges(graphs, *index, name));
        let edges: Vec<MaskedEdges> = edges.collect::<Result<_, _>>()?;
        let all = |index: &Tensor| MaskedEdges { index: index.shallow_clone(), mask: None };
        let all: Vec<MaskedEdges> = self.wild_type.iter().map(all).collect();

        let wild_type = encode(parameters, embedding, &all)?;
        let encoded = encode(parameters, &start, &edges)?;
        let (encoded, sample) = match graphs.nodes {
            NodeGenes::Without(_) => (encoded, graphs.batch.shallow_clone()),
            NodeGenes::All | NodeGenes::Listed(_) => {
                let kept = ones(&graphs.kept, graphs.kept_genes)?;
                (encoded.f_index_select(0, &kept)?, graphs.batch.f_index_select(0, &kept)?)
            }
        };
        let samples = parameters.readout.forward(&encoded, &sample, batch)?;
        let one = Tensor::f_zeros([genes], (Kind::Int64, embedding.device()))?;
        let readout = parameters.readout.forward(&wild_type, &one, 1)?;
        Ok(Encodings { genes: wild_type, wild_type: readout, samples })
    }
}

/// Initial rows of the nodes of `graphs`, `[ΣN, h]`: the embedding of their genes. Every sample starts from the same embedding; its rows are
/// copied, and everything is computed for each copy.
fn rows(embedding: &Tensor, graphs: &GraphInputs, batch: i64) -> Result<Tensor, ModelError> {
    let (genes, hidden) = embedding.size2()?;
    let all = genes * batch;
    let nodes = graphs.batch.size()[0];
    match &graphs.nodes {
        NodeGenes::All if graphs.kept.size() != [all] || nodes != all => {
            Err(InputError::NotAllNodes { genes, samples: batch }.into())
        }
        NodeGenes::All => Ok(embedding.f_expand([batch, genes, hidden], false)?.f_reshape([all, hidden])?),
        NodeGenes::Listed(listed) if listed.size() != [nodes] || graphs.kept.size() != [nodes] => {
            Err(InputError::NodeGenes { nodes }.into())
        }
        NodeGenes::Listed(listed) => Ok(embedding.f_index_select(0, listed)?),
        NodeGenes::Without(removed) if removed.size() != [all] || graphs.kept_genes != nodes => {
            Err(InputError::RemovedNodes { genes, nodes }.into())
        }
        NodeGenes::Without(removed) => {
            // Positions among the genes of all samples, sample by sample.
            let kept = ones(&removed.f_logical_not()?, nodes)?;
            Ok(embedding.f_index_select(0, &kept.f_remainder(genes)?)?)
        }
    }
}

/// The edges of the type with index `edge_type` in `graphs`.
fn edges(graphs: &GraphInputs, edge_type: usize, name: &str) -> Result<MaskedEdges, ModelError> {
    let edges = graphs.edges.get(edge_type).ok_or_else(|| InputError::NoEdges(name.to_owned()))?;
    let (index, mask) = (&edges.edge_index, &edges.mask);
    if let NodeGenes::Without(_) = graphs.nodes {
        // The removed edges are not among them.
        return Ok(MaskedEdges { index: index.shallow_clone(), mask: None });
    }
    if index.size() != [2, mask.size().iter().product()] {
        return Err(InputError::EdgeMasks { of: name.to_owned(), edges: index.size(), masks: mask.size() }.into());
    }
    Ok(MaskedEdges { index: index.shallow_clone(), mask: Some(mask.f_flatten(0, -1)?.f_unsqueeze(1)?) })
}

/// Positions of the ones of `flags`, bool `[n]`, of which there are `count`: int64 `[count]`.
fn ones(flags: &Tensor, count: i64) -> Result<Tensor, TchError> {
    let positions = match flags.device() {
        Device::Cpu => flags.f_nonzero()?,
        // Without the count the host would wait for the device.
        _ => flags.f_nonzero_static(count, 0)?,
    };
    positions.f_squeeze_dim(1)
}

/// Preprocessor and message passing layers over the rows of `x`, float32 `[rows, h]`, to the same shape.
fn encode(parameters: &LazyParameters, x: &Tensor, edges: &[MaskedEdges]) -> Result<Tensor, TchError> {
    let x = parameters.preprocessor.forward(x)?;
    parameters.layers.iter().try_fold(x, |x, layer| layer.forward(&x, |t| edges[t].sums(&x)))
}

impl MaskedEdges {
    /// The sum over the kept edges into each row of `x` of their source rows.
    pub fn sums(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let mut messages = x.f_index_select(0, &self.index.f_select(0, 0)?)?;
        if let Some(mask) = &self.mask {
            messages = messages.f_mul(mask)?;
        }
        x.f_zeros_like()?.f_index_add(0, &self.index.f_select(0, 1)?, &messages)
    }
}

impl Readout {
    /// Σ softmax(gate) · GELU(W x + b) over the rows of each sample: `x` float32 `[n, h]`, `sample` int64 `[n]`, to
    /// `[batch, h]`. The softmax is within a sample; a sample without rows sums to 0.
    pub fn forward(&self, x: &Tensor, sample: &Tensor, batch: i64) -> Result<Tensor, TchError> {
        let gates = self.gate.forward(x)?.f_squeeze_dim(1)?;
        let values = self.values(x)?;
        let kind = gates.kind();
        // The largest gate of each sample only keeps exp in range, and takes no part in the gradient.
        let largest = Tensor::f_full([batch], f64::NEG_INFINITY, (kind, x.device()))?;
        let largest = largest.f_internal_scatter_reduce(0, sample, &gates.detach(), "amax", true)?;
        let weights = gates.f_sub(&largest.f_index_select(0, sample)?)?.f_exp()?;
        let zeros = Tensor::f_zeros([batch], (weights.kind(), x.device()))?;
        let sums = zeros.f_index_add(0, sample, &weights)?.f_add_scalar(1e-16)?;
        let weights = weights.f_div(&sums.f_index_select(0, sample)?)?;
        let weighed = values.f_mul(&weights.f_unsqueeze(1)?)?;
        let zeros = Tensor::f_zeros([batch, values.size()[1]], (weighed.kind(), x.device()))?;
        zeros.f_index_add(0, sample, &weighed)
    }
}
