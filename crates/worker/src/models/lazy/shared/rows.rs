use expctl_dist::{DistError, Join, LayerShape, layer_rows};
use expctl_record::Norm as Over;
use tch::{TchError, Tensor, nn};

use super::super::aggregation::Aggregation;
use super::super::norm::{EPS, Norm};
use super::super::parameters::Layer;
use crate::models::ModelError;

impl Layer {
    /// ε of each edge type, float32 `[T]`.
    pub(super) fn eps(&self) -> Result<Tensor, TchError> {
        Tensor::f_cat(&self.convolutions.iter().map(|c| &c.eps).collect::<Vec<_>>(), 0)
    }

    /// What the layer makes of sums over neighbours, float32 `[T, R, h]` to `[R, h]`. `weights`, float32 `[R]`, says of how
    /// many equal rows each is one.
    pub(super) fn rows(&self, sums: &Tensor, weights: Option<&Tensor>) -> Result<Tensor, ModelError> {
        let mut parameters = Vec::new();
        for convolution in &self.convolutions {
            for linear in &convolution.mlp.linears {
                push(&mut parameters, linear)?;
            }
            parameters.extend([&convolution.norm.weight, &convolution.norm.bias]);
        }
        let first = self.convolutions.first().ok_or_else(|| ModelError::Size("no edge types".to_owned()))?;
        let mut shape = LayerShape {
            linears: first.mlp.linears.len() as i64,
            pair_hidden: 0,
            scorer_hidden: 0,
            join: Join::Sum,
            node_norm: first.norm.over == Over::Node,
            eps: EPS,
        };
        let mut norm = None;
        match &self.aggregation {
            Aggregation::Sum => {}
            Aggregation::Mean => shape.join = Join::Mean,
            Aggregation::Pairwise(pairwise) => {
                shape.join = Join::Pairwise;
                for linear in pairwise.pairs.iter().flat_map(|mlp| &mlp.linears) {
                    push(&mut parameters, linear)?;
                }
                for linear in &pairwise.scorer.linears {
                    push(&mut parameters, linear)?;
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
            Some(norm) => Ok(weighted(norm, &joined, weights)?),
        }
    }
}

fn push<'a>(parameters: &mut Vec<&'a Tensor>, linear: &'a nn::Linear) -> Result<(), DistError> {
    let bias = linear.bs.as_ref().ok_or_else(|| DistError::Torch {
        operation: "rows of a layer".to_owned(),
        message: "a linear layer has no bias".to_owned(),
    })?;
    parameters.extend([&linear.ws, bias]);
    Ok(())
}

/// The norm of rows that stand for several equal ones each.
fn weighted(norm: &Norm, x: &Tensor, weights: Option<&Tensor>) -> Result<Tensor, TchError> {
    let Some(weights) = weights.filter(|_| norm.over == Over::Graph) else { return norm.forward(x) };
    let weights = weights.f_unsqueeze(1)?;
    let count = weights.f_sum(None)?.f_mul_scalar(x.size()[1])?;
    let mean = |values: &Tensor| values.f_mul(&weights)?.f_sum(None)?.f_div(&count);
    let centred = x.f_sub(&mean(x)?)?;
    let deviation = mean(&centred.f_square()?)?.f_sqrt()?.f_add_scalar(EPS)?;
    centred.f_div(&deviation)?.f_mul(&norm.weight)?.f_add(&norm.bias)
}
