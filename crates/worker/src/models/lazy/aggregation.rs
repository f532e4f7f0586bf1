use expctl_record::Aggregation as Kind;
use tch::nn;
use tch::{TchError, Tensor};

use super::config::LazyConfig;
use super::mlp::Mlp;
use super::norm::Norm;

/// How a layer joins what its convolutions, one per edge type, yield.
#[derive(Debug)]
pub(super) enum Aggregation {
    /// An MLP for each pair of edge types, weighed by scores.
    Pairwise(Pairwise),
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
}

/// Pairwise interaction of T edge types.
#[derive(Debug)]
pub(super) struct Pairwise {
    /// T (T + 1) / 2 MLPs 2h → h/2 → h; that of the types i ≤ j stands at the place of (i, j) in (0, 0), (0, 1), …,
    /// (1, 1), (1, 2), …
    pub(super) pairs: Vec<Mlp>,
    /// h → h/2 → 1, the same for all options.
    pub(super) scorer: Mlp,
    /// Norm of the result.
    pub(super) norm: Option<Norm>,
}

impl Aggregation {
    pub fn new(vs: &nn::Path, config: &LazyConfig, types: &[&str]) -> Self {
        let h = config.hidden;
        match config.aggregation {
            Kind::Sum => Self::Sum,
            Kind::Mean => Self::Mean,
            Kind::PairwiseInteraction => Self::Pairwise(Pairwise {
                pairs: pairs_of(types.len())
                    .map(|(i, j)| Mlp::new(&(vs / "pair" / format!("{}-{}", types[i], types[j])), &[2 * h, h / 2, h]))
                    .collect(),
                scorer: Mlp::new(&(vs / "scorer"), &[h, h / 2, 1]),
                norm: config.normalises_aggregate().then(|| Norm::new(&(vs / "norm"), config.norm, h)),
            }),
        }
    }

    /// What the T edge types yield, each `[…, h]`, to `[…, h]`.
    pub fn forward(&self, yields: &[Tensor]) -> Result<Tensor, TchError> {
        match self {
            Self::Pairwise(pairwise) => pairwise.forward(yields),
            Self::Sum => Tensor::f_stack(yields, 0)?.f_sum_dim_intlist([0i64].as_slice(), false, None),
            Self::Mean => mean(yields),
        }
    }
}

/// The unordered pairs of `types` edge types, self pairs included, in the order of [`Pairwise::pairs`].
pub(super) fn pairs_of(types: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..types).flat_map(move |i| (i..types).map(move |j| (i, j)))
}

fn mean(yields: &[Tensor]) -> Result<Tensor, TchError> {
    Tensor::f_stack(yields, 0)?.f_mean_dim([0i64].as_slice(), false, None)
}

impl Pairwise {
    /// The options are the pairs and, as one more, the mean of all types; each row weighs them by the softmax of their
    /// scores.
    fn forward(&self, yields: &[Tensor]) -> Result<Tensor, TchError> {
        let mut options = Vec::with_capacity(self.pairs.len() + 1);
        for ((i, j), mlp) in pairs_of(yields.len()).zip(&self.pairs) {
            options.push(mlp.forward(&Tensor::f_cat(&[&yields[i], &yields[j]], -1)?)?);
        }
        options.push(mean(yields)?);
        let options = Tensor::f_stack(&options, -2)?;
        let weights = self.scorer.forward(&options)?.f_softmax(-2, None)?;
        let joined = options.f_mul(&weights)?.f_sum_dim_intlist([-2i64].as_slice(), false, None)?;
        match &self.norm {
            Some(norm) => norm.forward(&joined),
            None => Ok(joined),
        }
    }
}
