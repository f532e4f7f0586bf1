use tch::{Device, TchError, Tensor};

use super::model::Encoded;
use super::parameters::{Layer, Parameters, Readout};
use crate::models::{EdgeInputs, EdgeList, Inputs, ModelError};

/// The encoder as published: it runs on the graph of the wild type, and on B copies of it with the masks of a batch.
#[derive(Debug)]
pub(super) struct Replicated {
    /// All edges of each type, int64 `[2, E]`.
    wild_type: Vec<Tensor>,
    /// Where each type stands among those of a batch.
    places: Vec<usize>,
    names: Vec<String>,
}

/// The edges of one type, and which of them are kept; all, without a mask.
pub(super) struct Edges {
    /// int64 `[2, E]`.
    pub(super) index: Tensor,
    /// bool `[E, 1]`.
    pub(super) mask: Option<Tensor>,
}

impl Replicated {
    pub fn new(graphs: &[EdgeList], places: &[usize], device: Device) -> Result<Self, ModelError> {
        if graphs.len() != places.len() {
            return Err(ModelError::Size(format!("{} edge types at {} places", graphs.len(), places.len())));
        }
        let index = |list: &EdgeList| {
            let rows = [list.sources, list.targets].map(Tensor::f_from_slice);
            let [sources, targets] = rows;
            Tensor::f_stack(&[sources?, targets?], 0)?.f_to_device(device)
        };
        Ok(Self {
            wild_type: graphs.iter().map(index).collect::<Result<_, TchError>>()?,
            places: places.to_vec(),
            names: graphs.iter().map(|list| list.name.to_owned()).collect(),
        })
    }

    pub fn forward(&self, parameters: &Parameters, inputs: &Inputs<'_>) -> Result<Encoded, ModelError> {
        let absent = || ModelError::Inputs("the graph of each sample".to_owned());
        let graphs = inputs.graphs.as_ref().ok_or_else(absent)?;
        let embedding = &parameters.embedding;
        let (genes, hidden, batch) = (embedding.size()[0], embedding.size()[1], inputs.batch_size);
        let rows = genes * batch;
        if graphs.kept.size() != [rows] || graphs.batch.size() != [rows] {
            return Err(ModelError::Inputs(format!("all {genes} genes of each of {batch} samples")));
        }
        let edges = self.places.iter().zip(&self.names).map(|(place, name)| masked(graphs.edges.get(*place), name));
        let edges: Vec<Edges> = edges.collect::<Result<_, _>>()?;
        let all = |index: &Tensor| Edges { index: index.shallow_clone(), mask: None };
        let all: Vec<Edges> = self.wild_type.iter().map(all).collect();

        let wild_type = encode(parameters, embedding, &all)?;
        // Every sample starts from the same embedding; the rows are copied, and everything is computed for each copy.
        let copies = embedding.f_expand([batch, genes, hidden], false)?.f_reshape([rows, hidden])?;
        let encoded = encode(parameters, &copies, &edges)?;
        let kept = match graphs.kept.device() {
            Device::Cpu => graphs.kept.f_nonzero()?,
            // How many there are would have to come from the device first.
            _ => graphs.kept.f_nonzero_static(graphs.kept_genes, 0)?,
        };
        let kept = kept.f_squeeze_dim(1)?;
        let sample = graphs.batch.f_index_select(0, &kept)?;
        let samples = parameters.readout.forward(&encoded.f_index_select(0, &kept)?, &sample, batch)?;
        let one = Tensor::f_zeros([genes], (tch::Kind::Int64, embedding.device()))?;
        let readout = parameters.readout.forward(&wild_type, &one, 1)?;
        Ok(Encoded { genes: wild_type, wild_type: readout, samples })
    }
}

fn masked(edges: Option<&EdgeInputs>, name: &str) -> Result<Edges, ModelError> {
    let edges = edges.ok_or_else(|| ModelError::Inputs(format!("the edges of {name}")))?;
    let (index, mask) = (&edges.edge_index, &edges.mask);
    if index.size() != [2, mask.size().iter().product()] {
        let reason = format!("edges and masks of {name}: {:?} and {:?}", index.size(), mask.size());
        return Err(ModelError::Inputs(reason));
    }
    Ok(Edges { index: index.shallow_clone(), mask: Some(mask.f_flatten(0, -1)?.f_unsqueeze(1)?) })
}

/// Preprocessor and message passing layers over the rows of `x`, float32 `[rows, h]`, to the same shape.
fn encode(parameters: &Parameters, x: &Tensor, edges: &[Edges]) -> Result<Tensor, TchError> {
    let x = parameters.preprocessor.forward(x)?;
    parameters.layers.iter().try_fold(x, |x, layer| layer.forward(&x, edges))
}

impl Layer {
    fn forward(&self, x: &Tensor, edges: &[Edges]) -> Result<Tensor, TchError> {
        let convolved = self.convolutions.iter().zip(edges).map(|(conv, edges)| conv.forward(&edges.sums(x)?, x));
        self.aggregation.forward(&convolved.collect::<Result<Vec<_>, _>>()?)
    }
}

impl Edges {
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
