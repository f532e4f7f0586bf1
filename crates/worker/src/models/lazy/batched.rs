//! The layers of the lazy model where starting an operation costs more than a small operation takes, as on a GPU: what [`LazyLayer`] computes
//! for one edge type or pair of types after another is one product over all of them. The host computes them one by one.
//!
//! Invariant: the same function of the same parameters as [`LazyLayer::forward`], up to rounding.

use expctl_settings::Norm;
use tch::{Device, Kind, TchError, Tensor};
use torch_dist::{Autocast, PairwiseParameters, pairwise_join};

use crate::models::ModelError;
use crate::models::layers::{Activation, upcast};
use crate::models::lazy::layers::{Aggregation, ChannelNorm, Convolution, EPS, GeluMlp, LazyLayer, Pairwise, pairs_of};
use crate::models::lazy::shared_graph::weighted_norm;

/// Rows of which the values between types and joined pairs are in memory at once, 0.1 MB for each at the published size. On an H200 fewer
/// rows leave the GPU waiting for the host, and more are no faster.
const ROWS_AT_ONCE: i64 = 32_768;

/// Places of the pairs in a table of types × pairs. They lie on the device once, because a copy would let the host wait.
#[derive(Debug)]
pub struct PairIndices {
    /// int64 `[P]`: for pair p of the types i ≤ j, i P + p.
    first: Tensor,
    /// j P + p.
    second: Tensor,
    types: i64,
}

impl PairIndices {
    /// The pairs of `types` edge types.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn new(types: usize, device: Device) -> Result<Self, TchError> {
        let pairs = pairs_of(types).count() as i64;
        let place = |pick: fn((usize, usize)) -> usize| -> Result<Tensor, TchError> {
            let places = pairs_of(types).zip(0..).map(|(pair, p)| pick(pair) as i64 * pairs + p);
            Tensor::f_from_slice(&places.collect::<Vec<i64>>())?.f_to_device(device)
        };
        Ok(Self { first: place(|(i, _)| i)?, second: place(|(_, j)| j)?, types: types as i64 })
    }
}

/// A layer with the parameters of its edge types, and of its pairs, beside each other. Made for a step; gradients reach the parameters of the
/// layer.
pub struct BatchedLayer<'a> {
    /// 1 + ε of each type, `[T, 1, 1]`.
    own_weight: Tensor,
    mlp: BatchedMlp,
    norm: BatchedNorm,
    aggregation: BatchedAggregation<'a>,
}

enum BatchedAggregation<'a> {
    Pairwise(BatchedPairs<'a>),
    Sum,
    Mean,
}

impl<'a> BatchedLayer<'a> {
    /// # Errors
    /// The device has no memory.
    pub fn new(layer: &'a LazyLayer, indices: &PairIndices) -> Result<Self, TchError> {
        let eps: Vec<&Tensor> = layer.convolutions.iter().map(|convolution| &convolution.eps).collect();
        Ok(Self {
            own_weight: Tensor::f_stack(&eps, 0)?.f_add_scalar(1.0)?.f_unsqueeze(2)?,
            mlp: BatchedMlp::new(&layer.convolutions.iter().map(|convolution| &convolution.mlp).collect::<Vec<_>>())?,
            norm: BatchedNorm::new(&layer.convolutions)?,
            aggregation: match &layer.aggregation {
                Aggregation::Pairwise(pairwise) => BatchedAggregation::Pairwise(BatchedPairs::new(pairwise, indices)?),
                Aggregation::Sum => BatchedAggregation::Sum,
                Aggregation::Mean => BatchedAggregation::Mean,
            },
        })
    }

    /// Rows float32 `[R, h]` and the sums over each row's sources along the edges of each type, `[T, R, h]`, to `[R, h]`. `weights`, `[R]`: the
    /// number of equal rows that each row stands for; norms over all rows count them.
    ///
    /// # Errors
    /// libtorch has no memory.
    pub fn forward(&self, rows: &Tensor, sums: &Tensor, weights: Option<&Tensor>) -> Result<Tensor, ModelError> {
        let inputs = sums.f_addcmul(&rows.f_unsqueeze(0)?, &self.own_weight)?;
        let normalised = self.norm.forward(&self.mlp.forward(&inputs)?, weights)?;
        self.aggregation.forward(&Activation::Gelu.apply(&normalised)?, weights)
    }
}

impl BatchedAggregation<'_> {
    /// The results of the T edge types, `[T, R, h]`, to `[R, h]`, float32 also of types in 16 bits.
    fn forward(&self, convolved: &Tensor, weights: Option<&Tensor>) -> Result<Tensor, ModelError> {
        let (over_types, wide) = ([0i64], wide_kind(convolved));
        match self {
            Self::Sum => Ok(convolved.f_sum_dim_intlist(over_types.as_slice(), false, wide)?),
            Self::Mean => Ok(convolved.f_mean_dim(over_types.as_slice(), false, wide)?),
            Self::Pairwise(pairs) => {
                let joined = pairs.forward(convolved)?;
                pairs.norm.map_or_else(|| Ok(joined.shallow_clone()), |norm| Ok(weighted_norm(norm, &joined, weights)?))
            }
        }
    }
}

/// Dtype of sums over values of `x`.
fn wide_kind(x: &Tensor) -> Kind {
    if x.kind() == Kind::Double { Kind::Double } else { Kind::Float }
}

/// The MLPs of all pairs and the scorer, as [`pairwise_join`] takes them.
struct BatchedPairs<'a> {
    parameters: PairwiseParameters,
    scorer: &'a GeluMlp,
    norm: Option<&'a ChannelNorm>,
}

impl<'a> BatchedPairs<'a> {
    fn new(pairwise: &'a Pairwise, indices: &PairIndices) -> Result<Self, TchError> {
        let BatchedMlp { linears } = BatchedMlp::new(&pairwise.pairs.iter().collect::<Vec<_>>())?;
        let [(first, first_bias), (second, second_bias)] = linears.as_slice() else {
            return Err(TchError::Shape("the MLP of a pair has two linear layers".to_owned()));
        };
        let [scored, scorer] = pairwise.scorer.linears.as_slice() else {
            return Err(TchError::Shape("the scorer has two linear layers".to_owned()));
        };
        let bias = |linear: &tch::nn::Linear| {
            linear
                .bs
                .as_ref()
                .map(Tensor::shallow_clone)
                .ok_or_else(|| TchError::Shape("a scorer has biases".to_owned()))
        };
        // [P, 2h, m]: a pair's weights at its first type, and at its second.
        let (pairs, twice_h, m) = first.size3()?;
        let (h, types) = (twice_h / 2, indices.types);
        let half = |start| first.f_narrow(1, start, h)?.f_reshape([pairs, h * m]);
        let table = Tensor::f_zeros([types * pairs, h * m], (first.kind(), first.device()))?
            .f_index_add(0, &indices.first, &half(0)?)?
            .f_index_add(0, &indices.second, &half(h)?)?;
        let table = table.f_view([types, pairs, h, m])?.f_permute([0, 2, 1, 3])?.f_reshape([types * h, pairs * m])?;

        let _all_digits = Autocast::paused(first.device());
        let to_scorer = scored.ws.f_transpose(0, 1)?;
        let parameters = PairwiseParameters {
            first: table,
            first_bias: first_bias.f_reshape([-1])?,
            second: second.f_reshape([pairs * m, h])?,
            second_bias: second_bias.f_squeeze_dim(1)?,
            scored: second.f_matmul(&to_scorer)?,
            scored_bias: second_bias.f_matmul(&to_scorer)?.f_add(&bias(scored)?)?,
            scorer: scorer.ws.shallow_clone(),
            scorer_bias: bias(scorer)?,
        };
        Ok(Self { parameters, scorer: &pairwise.scorer, norm: pairwise.norm.as_ref() })
    }

    /// The results of the T edge types, `[T, R, h]`, to `[R, h]`.
    fn forward(&self, convolved: &Tensor) -> Result<Tensor, ModelError> {
        let mean = convolved.f_mean_dim([0i64].as_slice(), false, wide_kind(convolved))?;
        let score = upcast(&self.scorer.forward(&mean)?)?.f_squeeze_dim(-1)?;
        let parameters = self.parameters.to_kind(convolved.kind())?;
        Ok(pairwise_join(convolved, &mean, &score, &parameters, ROWS_AT_ONCE)?)
    }
}

/// Several [`GeluMlp`] of the same widths: weight `[G, inputs, outputs]` and bias `[G, 1, outputs]` of each of their layers.
struct BatchedMlp {
    linears: Vec<(Tensor, Tensor)>,
}

impl BatchedMlp {
    fn new(mlps: &[&GeluMlp]) -> Result<Self, TchError> {
        let depth = mlps.first().map_or(0, |mlp| mlp.linears.len());
        let layer = |l: usize| {
            let weights: Vec<&Tensor> = mlps.iter().map(|mlp| &mlp.linears[l].ws).collect();
            let biases: Vec<&Tensor> = mlps.iter().filter_map(|mlp| mlp.linears[l].bs.as_ref()).collect();
            Ok((Tensor::f_stack(&weights, 0)?.f_transpose(1, 2)?, Tensor::f_stack(&biases, 0)?.f_unsqueeze(1)?))
        };
        Ok(Self { linears: (0..depth).map(layer).collect::<Result<_, TchError>>()? })
    }

    /// `[G, rows, first width]` to `[G, rows, last width]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let mut x = x.shallow_clone();
        for (i, (weight, bias)) in self.linears.iter().enumerate() {
            let inner = if i == 0 { x } else { Activation::Gelu.apply(&x)? };
            x = bias.f_baddbmm(&inner, weight, 1, 1)?;
        }
        Ok(x)
    }
}

/// The [`ChannelNorm`] of each edge type: weight and bias `[T, 1, h]`.
struct BatchedNorm {
    over: Norm,
    weight: Tensor,
    bias: Tensor,
}

impl BatchedNorm {
    fn new(convolutions: &[Convolution]) -> Result<Self, TchError> {
        let stacked = |of: fn(&ChannelNorm) -> &Tensor| {
            let all: Vec<&Tensor> = convolutions.iter().map(|convolution| of(&convolution.norm)).collect();
            Tensor::f_stack(&all, 0)?.f_unsqueeze(1)
        };
        Ok(Self {
            over: convolutions.first().map_or(Norm::Graph, |convolution| convolution.norm.over),
            weight: stacked(|norm| &norm.weight)?,
            bias: stacked(|norm| &norm.bias)?,
        })
    }

    /// `[T, R, h]` to the same shape and dtype; with [`Norm::Graph`] each type has one mean and one variance, over rows that count as `weights`.
    fn forward(&self, x: &Tensor, weights: Option<&Tensor>) -> Result<Tensor, TchError> {
        let kind = x.kind();
        if self.over == Norm::Node {
            let normalised = x.f_layer_norm([x.size()[2]], None::<&Tensor>, None::<&Tensor>, EPS, false)?;
            return normalised.f_mul(&self.weight)?.f_add(&self.bias)?.f_to_kind(kind);
        }
        let (deviation, mean) = deviation_and_mean(&upcast(x)?, weights)?;
        // One multiplication and one addition for each value.
        let scale = self.weight.f_div(&deviation.f_add_scalar(EPS)?)?;
        let shift = self.bias.f_sub(&mean.f_mul(&scale)?)?;
        shift.f_to_kind(kind)?.f_addcmul(x, &scale.f_to_kind(kind)?)
    }
}

/// Standard deviation and mean over rows and channels of `x` `[T, R, h]`: `[T, 1, 1]` each.
fn deviation_and_mean(x: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor), TchError> {
    let of_type = [1i64, 2];
    let Some(weights) = weights else { return x.f_std_mean_correction(of_type.as_slice(), 0, true) };
    let weights = weights.f_unsqueeze(1)?;
    let count = weights.f_sum(None)?.f_mul_scalar(x.size()[2])?;
    let mean =
        |values: &Tensor| values.f_mul(&weights)?.f_sum_dim_intlist(of_type.as_slice(), true, None)?.f_div(&count);
    let middle = mean(x)?;
    Ok((mean(&x.f_sub(&middle)?.f_square()?)?.f_sqrt()?, middle))
}
