//! `pairwise_join` combines the edge types of a graph layer by pairs, like `EdgeTypeJoin::Pairwise` of `layer_rows`, but with libtorch's
//! operations: it runs on GPUs and in 16 bits too.

use tch::{Kind, TchError, Tensor};

use crate::DistError;
use crate::ffi::bridge;
use crate::graph_layer::new_tensor;
use crate::group::address;

/// Parameters of [`pairwise_join`], all of the dtype of its `types`: T types, P = T (T + 1) / 2 pairs, h channels, m hidden channels of a pair,
/// s of the scorer.
#[derive(Debug)]
pub struct PairwiseParameters {
    /// `[T h, P m]`: the first layers of all pairs. The rows of a type are 0 in the columns of a pair that it is not in.
    pub first: Tensor,
    /// `[P m]`.
    pub first_bias: Tensor,
    /// `[P m, h]`: the second layers, one below the other.
    pub second: Tensor,
    /// `[P, h]`.
    pub second_bias: Tensor,
    /// `[P, m, s]`: the scorer's first layer behind each second layer, as one matrix.
    pub scored: Tensor,
    /// `[P, 1, s]`.
    pub scored_bias: Tensor,
    /// `[1, s]`: the scorer's second layer.
    pub scorer: Tensor,
    /// `[1]`.
    pub scorer_bias: Tensor,
}

impl PairwiseParameters {
    fn all(&self) -> [&Tensor; 8] {
        [
            &self.first,
            &self.first_bias,
            &self.second,
            &self.second_bias,
            &self.scored,
            &self.scored_bias,
            &self.scorer,
            &self.scorer_bias,
        ]
    }

    /// The same in another dtype; gradients flow through the conversion.
    ///
    /// # Errors
    /// There is no memory.
    pub fn to_kind(&self, kind: Kind) -> Result<Self, TchError> {
        let converted = |tensor: &Tensor| tensor.f_to_kind(kind);
        Ok(Self {
            first: converted(&self.first)?,
            first_bias: converted(&self.first_bias)?,
            second: converted(&self.second)?,
            second_bias: converted(&self.second_bias)?,
            scored: converted(&self.scored)?,
            scored_bias: converted(&self.scored_bias)?,
            scorer: converted(&self.scorer)?,
            scorer_bias: converted(&self.scorer_bias)?,
        })
    }
}

/// The join of a graph layer's edge types by pairs, in libtorch's operations on any device: `types` `[T, R, h]` to `[R, h]`.
///
/// Row by row: hidden = GELU(types · first + first bias) `[P, m]`; option p = hidden_p · second_p + second bias_p `[h]`; score p =
/// GELU(hidden_p · scored_p + scored bias_p) · scorer + scorer bias; one more option is `mean`, with the score `mean_score`; the result is
/// Σ softmax(scores) · option. Options are never made: their weighted sum is one product of the weighted hidden values.
///
/// `mean` `[R, h]` and `mean_score` `[R]` are float32 for `types` in 16 bits, else of their dtype, as the result is. Gradients flow into all
/// tensors. Between passes only the arguments are stored: the backward pass computes the values between again, `rows_at_once` rows at a time.
/// Autocast does not reach inside.
///
/// # Errors
/// Shapes or dtypes do not fit, or there is no memory.
pub fn pairwise_join(
    types: &Tensor,
    mean: &Tensor,
    mean_score: &Tensor,
    parameters: &PairwiseParameters,
    rows_at_once: i64,
) -> Result<Tensor, DistError> {
    let parameters = parameters.all().map(address);
    new_tensor(
        "join of pairs",
        bridge::pairwise_join(address(types), address(mean), address(mean_score), &parameters, rows_at_once),
    )
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    const TYPES: i64 = 3;
    const PAIRS: i64 = 6;
    const ROWS: i64 = 10;
    const H: i64 = 4;
    const M: i64 = 3;
    const S: i64 = 2;

    /// Types, mean, its score and the eight parameters, all with gradients.
    fn arguments() -> Vec<Tensor> {
        let shapes: [&[i64]; 11] = [
            &[TYPES, ROWS, H],
            &[ROWS, H],
            &[ROWS],
            &[TYPES * H, PAIRS * M],
            &[PAIRS * M],
            &[PAIRS * M, H],
            &[PAIRS, H],
            &[PAIRS, M, S],
            &[PAIRS, 1, S],
            &[1, S],
            &[1],
        ];
        let one = |shape: &&[i64]| Tensor::randn(*shape, (Kind::Double, Device::Cpu)).set_requires_grad(true);
        shapes.iter().map(one).collect()
    }

    fn parameters(arguments: &[Tensor]) -> PairwiseParameters {
        let [first, first_bias, second, second_bias, scored, scored_bias, scorer, scorer_bias] =
            std::array::from_fn(|i| arguments[i + 3].shallow_clone());
        PairwiseParameters { first, first_bias, second, second_bias, scored, scored_bias, scorer, scorer_bias }
    }

    /// The same by the formula, from options that are made.
    fn by_formula(arguments: &[Tensor]) -> Tensor {
        let p = parameters(arguments);
        let rows = arguments[0].transpose(0, 1).reshape([ROWS, TYPES * H]);
        let hidden = (rows.matmul(&p.first) + &p.first_bias).gelu("none").view([ROWS, PAIRS, M]).transpose(0, 1);
        let options = hidden.matmul(&p.second.view([PAIRS, M, H])) + p.second_bias.unsqueeze(1);
        let scores = (hidden.matmul(&p.scored) + &p.scored_bias).gelu("none").matmul(&p.scorer.tr()) + &p.scorer_bias;
        let scores = Tensor::cat(&[scores, arguments[2].view([1, ROWS, 1])], 0);
        let options = Tensor::cat(&[options, arguments[1].unsqueeze(0)], 0);
        (scores.softmax(0, None) * options).sum_dim_intlist([0i64].as_slice(), false, None)
    }

    #[test]
    fn values_and_gradients_are_those_of_the_formula_however_many_rows_are_computed_at_once() {
        let arguments = arguments();
        let weight = Tensor::randn([ROWS, H], (Kind::Double, Device::Cpu));
        let with_gradients = |joined: Tensor| {
            let gradients = Tensor::run_backward(&[(&joined * &weight).sum(None)], &arguments, false, false);
            std::iter::once(joined.detach()).chain(gradients).collect::<Vec<_>>()
        };
        let expected = with_gradients(by_formula(&arguments));
        for rows_at_once in [3, ROWS, 1000] {
            let joined =
                pairwise_join(&arguments[0], &arguments[1], &arguments[2], &parameters(&arguments), rows_at_once);
            for (i, (got, expected)) in with_gradients(joined.unwrap()).iter().zip(&expected).enumerate() {
                let apart = (got - expected).abs().max().double_value(&[]) / expected.abs().max().double_value(&[]);
                assert!(apart < 1e-12, "{i}, {rows_at_once} rows at once: {apart}");
            }
        }
    }

    #[test]
    fn misfits_are_errors() {
        let arguments = arguments();
        let join = |types: &Tensor, rows| {
            pairwise_join(types, &arguments[1], &arguments[2], &parameters(&arguments), rows).unwrap_err().to_string()
        };
        assert!(join(&arguments[0].narrow(0, 0, 2), 5).contains("there are 3 pairs of 2 types"));
        assert!(join(&arguments[0].to_kind(Kind::Float), 5).contains("of the dtype of the types"));
        assert!(join(&arguments[0].narrow(1, 0, 5), 5).contains("the mean has to be"));
        assert!(join(&arguments[0], 0).contains("rows_at_once has to be positive"));
    }
}
