use tch::{Kind, TchError, Tensor, nn, nn::Init};

use super::linear::{Activation, apply};
use super::wide::wide;

/// In what the models that use it differ.
#[derive(Clone, Copy)]
pub(super) struct Make<'a> {
    /// Of the static embedding.
    pub activation: Activation,
    /// Whether a gene that is alone in its sample, and attends to nothing, is still moved by the bias of the output layer.
    pub moves_lone_gene: bool,
    /// Makes a linear layer of so many inputs and outputs, initialised as the model has it.
    pub linear: &'a dyn Fn(nn::Path, i64, i64) -> nn::Linear,
}

/// One layer of attention within each sample, a gene not attending to itself, with a learned residual weight.
#[derive(Debug)]
struct Attention {
    query: nn::Linear,
    key: nn::Linear,
    value: nn::Linear,
    output: nn::Linear,
    residual: Tensor,
    heads: i64,
    moves_lone_gene: bool,
}

impl Attention {
    fn new(vs: nn::Path, hidden: i64, heads: i64, make: Make) -> Self {
        let linear = |name: &str| (make.linear)(&vs / name, hidden, hidden);
        Self {
            query: linear("q"),
            key: linear("k"),
            value: linear("v"),
            output: linear("o"),
            residual: vs.var("beta", &[1], Init::Const(0.01)),
            heads,
            moves_lone_gene: make.moves_lone_gene,
        }
    }

    /// `x` float32 `[n, h]`; `barred` bool `[n, n]`, true where row must not attend to column.
    fn forward(&self, x: &Tensor, barred: &Tensor) -> Result<Tensor, TchError> {
        let (n, hidden) = (x.size()[0], x.size()[1]);
        let split = |linear| apply(linear, x)?.f_view([n, self.heads, hidden / self.heads])?.f_permute([1, 0, 2]);
        let (q, k, v) = (split(&self.query)?, split(&self.key)?, split(&self.value)?);
        let scores = q.f_matmul(&k.f_transpose(-2, -1)?)?.f_div_scalar(((hidden / self.heads) as f64).sqrt())?;
        // A sample's only gene may attend to nothing: its row of weights is NaN, which becomes 0.
        let weights = scores.f_masked_fill(barred, f64::NEG_INFINITY)?.f_softmax(-1, None)?;
        let weights = weights.f_nan_to_num(0.0, None, None)?;
        let mixed = weights.f_matmul(&v)?.f_permute([1, 0, 2])?.f_contiguous()?.f_view([n, hidden])?;
        let mut update = apply(&self.output, &mixed)?.f_mul(&self.residual)?;
        if !self.moves_lone_gene {
            let alone = barred.f_all_dim(1, true)?;
            update = update.f_masked_fill(&alone, 0.0)?;
        }
        update.f_add(x)
    }
}

/// Scores each sample's set of genes by how far attention moves them from a static embedding.
#[derive(Debug)]
pub(super) struct HyperSagnn {
    fixed: nn::Linear,
    activation: Activation,
    layers: Vec<Attention>,
    score: nn::Linear,
}

impl HyperSagnn {
    /// `layers` layers of attention with `heads` heads, which divide `hidden`.
    pub fn new(vs: &nn::Path, hidden: i64, heads: i64, layers: i64, make: Make) -> Self {
        Self {
            fixed: (make.linear)(vs / "static", hidden, hidden),
            activation: make.activation,
            layers: (0..layers).map(|l| Attention::new(vs / format!("attention{l}"), hidden, heads, make)).collect(),
            score: (make.linear)(vs / "prediction", hidden, 1),
        }
    }

    /// `genes` float32 `[n, h]`, `sample` int64 `[n]` in 0..batch: float32 `[batch]`, 0 for a sample without genes.
    ///
    /// # Errors
    /// A sample that does not exist, or libtorch has no memory.
    pub fn forward(&self, genes: &Tensor, sample: &Tensor, batch: i64) -> Result<Tensor, TchError> {
        let n = genes.size()[0];
        let fixed = self.activation.apply(&apply(&self.fixed, genes)?)?;
        let other_sample = sample.f_unsqueeze(1)?.f_ne_tensor(&sample.f_unsqueeze(0)?)?;
        let barred = other_sample.f_logical_or(&Tensor::f_eye(n, (Kind::Bool, genes.device()))?)?;
        let mut moved = genes.shallow_clone();
        for layer in &self.layers {
            moved = layer.forward(&moved, &barred)?;
        }
        let scores = wide(&apply(&self.score, &moved.f_sub(&fixed)?.f_square()?)?.f_squeeze_dim(1)?)?;
        let zeros = Tensor::f_zeros([batch], (scores.kind(), genes.device()))?;
        let counts = zeros.f_index_add(0, sample, &scores.f_ones_like()?)?.f_clamp_min(1.0)?;
        zeros.f_index_add(0, sample, &scores)?.f_div(&counts)
    }
}
