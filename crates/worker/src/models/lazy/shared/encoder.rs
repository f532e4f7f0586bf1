use expctl_dist::{Neighbours, sums_of_differing};
use tch::{Device, Kind, Tensor};

use super::super::model::Encoded;
use super::super::parameters::{Parameters, Readout};
use super::first_layer::FirstLayer;
use super::removed::{BatchRemoved, Edges};
use crate::models::wide::wide;
use crate::models::{EdgeList, Inputs, ModelError};

/// The encoder on one graph for all samples: `[N, B, h]`, so that a gene's rows of all samples lie together.
#[derive(Debug)]
pub(in super::super) struct Shared {
    neighbours: Neighbours,
    edges: Vec<Edges>,
    device: Device,
}

impl Shared {
    /// `places` says where each edge type stands among those of a batch. The lists are checked ones.
    ///
    /// # Errors
    /// The device is not the host.
    pub fn new(graphs: &[EdgeList], places: &[usize], genes: i64, device: Device) -> Result<Self, ModelError> {
        if graphs.len() != places.len() {
            return Err(ModelError::Size(format!("{} edge types at {} places", graphs.len(), places.len())));
        }
        if device != Device::Cpu {
            return Err(ModelError::Size("the shared lazy model runs on the host only".to_owned()));
        }
        Ok(Self {
            neighbours: Neighbours::new(genes, graphs.iter().map(|list| (list.sources, list.targets)))?,
            edges: graphs.iter().zip(places).map(|(list, place)| Edges::new(list, *place, genes as usize)).collect(),
            device,
        })
    }

    /// # Errors
    /// A removed edge or a gene is out of range, or there is no memory.
    pub fn forward(&self, parameters: &Parameters, inputs: &Inputs<'_>) -> Result<Encoded, ModelError> {
        let (genes, h) = parameters.embedding.size2()?;
        let batch = inputs.batch_size;
        let removed = BatchRemoved::of(inputs, &self.edges, genes as usize, self.device)?;
        let first = FirstLayer::of(&removed, self.device)?;
        let everywhere = removed.of_all_rows(self.device)?;

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
        let all = Tensor::f_ones([genes, 1], (Kind::Bool, self.device))?;
        Ok(Encoded {
            wild_type: parameters.readout.of_samples(&wild_type.f_unsqueeze(1)?, &all)?,
            samples: parameters.readout.of_samples(&samples, &removed.kept)?,
            genes: wild_type,
        })
    }
}

/// Sums and norms are float32 under autocast, too.
fn contiguous(x: &Tensor) -> Result<Tensor, tch::TchError> {
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
