use expctl_dist::{Neighbours, sums_of_differing};
use tch::{Device, Kind, Tensor};

use super::super::model::Encoded;
use super::super::parameters::{Parameters, Readout};
use super::first_layer::FirstLayer;
use super::removed::{BatchRemoved, Edges};
use crate::models::wide::wide;
use crate::models::{EdgeList, Inputs, ModelError};

/// The kernels are for processors.
const HOST: Device = Device::Cpu;

/// The encoder on one graph for all samples with expctl's kernels, on the host: `[N, B, h]`, so that a gene's rows of all samples lie
/// together.
#[derive(Debug)]
pub(in super::super) struct Shared {
    neighbours: Neighbours,
    edges: Vec<Edges>,
}

impl Shared {
    /// `places` says where each edge type stands among those of a batch. The lists are checked ones.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(graphs: &[EdgeList], places: &[usize], genes: i64) -> Result<Self, ModelError> {
        if graphs.len() != places.len() {
            return Err(ModelError::Size(format!("{} edge types at {} places", graphs.len(), places.len())));
        }
        Ok(Self {
            neighbours: Neighbours::new(genes, graphs.iter().map(|list| (list.sources, list.targets)))?,
            edges: graphs.iter().zip(places).map(|(list, place)| Edges::new(list, *place, genes as usize)).collect(),
        })
    }

    /// # Errors
    /// A removed edge or a gene is out of range, or there is no memory.
    pub fn forward(&self, parameters: &Parameters, inputs: &Inputs<'_>) -> Result<Encoded, ModelError> {
        let (genes, h) = parameters.embedding.size2()?;
        let batch = inputs.batch_size;
        let removed = BatchRemoved::of(inputs, &self.edges, genes as usize, HOST)?;
        let first = FirstLayer::of(&removed, HOST)?;
        let everywhere = removed.of_all_rows(HOST)?;

        let start = contiguous(&parameters.preprocessor.forward(&parameters.embedding)?)?;
        let mut wild_type = start.shallow_clone();
        let mut samples = None;
        for layer in &parameters.layers {
            let eps = layer.eps()?;
            let sums = self.neighbours.sums(&wild_type, &eps, None)?;
            samples = Some(match samples {
                None => {
                    let sums = sums_of_differing(&sums, &start, &first.copied, &first.removed)?;
                    let made = contiguous(&layer.rows(&sums, Some(&first.weights.f_to_kind(start.kind())?))?)?;
                    made.f_index_select(0, &first.row_of)?.f_view([genes, batch, h])?
                }
                Some(x) => {
                    let sums = self.neighbours.sums(&x, &eps, Some(&everywhere))?;
                    drop(x);
                    let made = layer.rows(&sums.f_view([-1, genes * batch, h])?, None)?;
                    contiguous(&made)?.f_view([genes, batch, h])?
                }
            });
            wild_type = contiguous(&layer.rows(&sums, None)?)?;
        }
        let samples = samples.ok_or_else(|| ModelError::Size("0 message passing layers".to_owned()))?;
        read_out(&parameters.readout, wild_type, &samples, &removed.kept)
    }
}

/// What was encoded with its readouts: `wild_type` float32 `[N, h]`, `samples` `[N, B, h]`, `gene_mask` bool `[N, B]`, 0 = removed.
pub(super) fn read_out(
    readout: &Readout,
    wild_type: Tensor,
    samples: &Tensor,
    gene_mask: &Tensor,
) -> Result<Encoded, ModelError> {
    let all = Tensor::f_ones([wild_type.size()[0], 1], (Kind::Bool, gene_mask.device()))?;
    Ok(Encoded {
        wild_type: readout.of_samples(&wild_type.f_unsqueeze(1)?, &all)?,
        samples: readout.of_samples(samples, gene_mask)?,
        genes: wild_type,
    })
}

/// Sums and norms are float32 under autocast, too.
pub(super) fn contiguous(x: &Tensor) -> Result<Tensor, tch::TchError> {
    wide(x)?.f_contiguous()
}

impl Readout {
    /// Σ softmax(gate) · GELU(W x + b) over the kept genes of each sample: `x` float32 `[N, B, h]`, `kept` bool `[N, B]`, to
    /// `[B, h]`. Without any kept gene the sum is 0.
    fn of_samples(&self, x: &Tensor, kept: &Tensor) -> Result<Tensor, tch::TchError> {
        let gates = contiguous(&self.gate.forward(x)?)?.f_squeeze_dim(-1)?;
        let gates = gates.f_masked_fill(&kept.f_logical_not()?, -1e30)?;
        let weights = gates.f_softmax(0, None)?.f_mul(kept)?;
        let weighed = contiguous(&self.values(x)?)?.f_mul(&weights.f_unsqueeze(-1)?)?;
        weighed.f_sum_dim_intlist([0i64].as_slice(), false, None)
    }
}
