//! The layers of the lazy model where starting an operation costs more than a small operation takes, as on a GPU: what [`LazyLayer`] computes
//! for one edge type or pair of types after another is one product over all of them. The host computes them one by one, which takes less
//! memory at once.
//!
//! Invariant: the same function of the same parameters as [`LazyLayer::forward`], up to rounding.

use expctl_settings::Norm;
use tch::{Device, TchError, Tensor};

use crate::models::layers::Activation;
use crate::models::lazy::layers::{Aggregation, ChannelNorm, Convolution, EPS, GeluMlp, LazyLayer, Pairwise, pairs_of};

/// The types of each pair, in the order of [`Pairwise::pairs`]: int64 `[T (T + 1) / 2]` each. They lie on the device once, because a copy
/// would let the host wait.
#[derive(Debug)]
pub struct PairIndices {
    first: Tensor,
    second: Tensor,
}

impl PairIndices {
    /// The pairs of `types` edge types.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn new(types: usize, device: Device) -> Result<Self, TchError> {
        let (first, second): (Vec<i64>, Vec<i64>) = pairs_of(types).map(|(i, j)| (i as i64, j as i64)).unzip();
        let there = |indices: &[i64]| Tensor::f_from_slice(indices)?.f_to_device(device);
        Ok(Self { first: there(&first)?, second: there(&second)? })
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
    Pairwise { pairs: BatchedMlp, indices: &'a PairIndices, pairwise: &'a Pairwise },
    Sum,
    Mean,
}

impl<'a> BatchedLayer<'a> {
    /// # Errors
    /// The device has no memory.
    pub fn new(layer: &'a LazyLayer, indices: &'a PairIndices) -> Result<Self, TchError> {
        let eps: Vec<&Tensor> = layer.convolutions.iter().map(|convolution| &convolution.eps).collect();
        let aggregation = match &layer.aggregation {
            Aggregation::Pairwise(pairwise) => {
                let pairs = BatchedMlp::new(&pairwise.pairs.iter().collect::<Vec<_>>())?;
                BatchedAggregation::Pairwise { pairs, indices, pairwise }
            }
            Aggregation::Sum => BatchedAggregation::Sum,
            Aggregation::Mean => BatchedAggregation::Mean,
        };
        Ok(Self {
            own_weight: Tensor::f_stack(&eps, 0)?.f_add_scalar(1.0)?.f_unsqueeze(2)?,
            mlp: BatchedMlp::new(&layer.convolutions.iter().map(|convolution| &convolution.mlp).collect::<Vec<_>>())?,
            norm: BatchedNorm::new(&layer.convolutions)?,
            aggregation,
        })
    }

    /// float32 `[…, h]` to the same shape; `sums(t)` as for [`LazyLayer::forward`].
    ///
    /// # Errors
    /// `sums` fails, or libtorch has no memory.
    pub fn forward<E: From<TchError>>(
        &self,
        x: &Tensor,
        sums: impl Fn(usize) -> Result<Tensor, E>,
    ) -> Result<Tensor, E> {
        let shape = x.size();
        let channels = shape.last().copied().unwrap_or_default();
        let types = 0..self.own_weight.size()[0] as usize;
        let sums = types.map(|t| Ok(sums(t)?.f_view([-1, channels])?)).collect::<Result<Vec<_>, E>>()?;
        let rows = x.f_view([1, -1, channels])?;
        let inputs = Tensor::f_stack(&sums, 0)?.f_add(&rows.f_mul(&self.own_weight)?)?;
        let convolved = Activation::Gelu.apply(&self.norm.forward(&self.mlp.forward(&inputs)?)?)?;
        Ok(self.aggregation.forward(&convolved)?.f_view(shape.as_slice())?)
    }
}

impl BatchedAggregation<'_> {
    /// The results of the T edge types, `[T, rows, h]`, to `[rows, h]`.
    fn forward(&self, convolved: &Tensor) -> Result<Tensor, TchError> {
        let over_types = [0i64];
        match self {
            Self::Sum => convolved.f_sum_dim_intlist(over_types.as_slice(), false, None),
            Self::Mean => convolved.f_mean_dim(over_types.as_slice(), false, None),
            Self::Pairwise { pairs, indices, pairwise } => {
                let of = |types| convolved.f_index_select(0, types);
                let options = pairs.forward(&Tensor::f_cat(&[of(&indices.first)?, of(&indices.second)?], -1)?)?;
                let mean = convolved.f_mean_dim(over_types.as_slice(), true, None)?.f_to_kind(options.kind())?;
                let options = Tensor::f_cat(&[options, mean], 0)?;
                let weights = pairwise.scorer.forward(&options)?.f_softmax(0, None)?;
                let joined = options.f_mul(&weights)?.f_sum_dim_intlist(over_types.as_slice(), false, None)?;
                pairwise.norm.as_ref().map_or_else(|| Ok(joined.shallow_clone()), |norm| norm.forward(&joined))
            }
        }
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

    /// `[T, rows, h]` to the same shape; with [`Norm::Graph`] each type has one mean and one variance.
    fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let normalised = match self.over {
            Norm::Graph => {
                let of_type = [1i64, 2];
                let centred = x.f_sub(&x.f_mean_dim(of_type.as_slice(), true, None)?)?;
                let deviation = centred.f_std_dim(of_type.as_slice(), false, true)?.f_add_scalar(EPS)?;
                centred.f_div(&deviation)?
            }
            Norm::Node => x.f_layer_norm([x.size()[2]], None::<&Tensor>, None::<&Tensor>, EPS, false)?,
        };
        normalised.f_mul(&self.weight)?.f_add(&self.bias)
    }
}
