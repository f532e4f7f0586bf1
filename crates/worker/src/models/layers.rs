//! Layers that several models share.

use tch::nn::{self, Init};
use tch::{Kind, TchError, Tensor};

/// x Wᵀ + b, float32 `[…, inputs]` to `[…, outputs]`; unlike tch's own function it returns errors.
pub fn linear(layer: &nn::Linear, x: &Tensor) -> Result<Tensor, TchError> {
    x.f_linear(&layer.ws, layer.bs.as_ref())
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x Φ(x), by the error function and not its approximation.
    Gelu,
}

impl Activation {
    /// Apply the function to each element.
    pub fn apply(self, x: &Tensor) -> Result<Tensor, TchError> {
        match self {
            Self::Relu => x.f_relu(),
            Self::Gelu => x.f_gelu("none"),
        }
    }
}

/// `x` in the dtype of sums and predictions: float64 where it is float64, else float32, also where layers compute in bfloat16.
pub fn upcast(x: &Tensor) -> Result<Tensor, TchError> {
    x.f_to_kind(if x.kind() == Kind::Double { Kind::Double } else { Kind::Float })
}

/// Options of [`HyperSagnn`], in which the models that use it differ.
#[derive(Clone, Copy)]
pub struct HyperSagnnOptions<'a> {
    /// Activation of the static embedding.
    pub activation: Activation,
    /// Whether the bias of the output layer moves a gene that is alone in its sample, and attends to nothing.
    pub moves_lone_gene: bool,
    /// Makes a linear layer with these numbers of inputs and outputs, initialised as the model has it.
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
    fn new(vs: nn::Path, hidden: i64, heads: i64, options: HyperSagnnOptions) -> Self {
        let linear = |name: &str| (options.linear)(&vs / name, hidden, hidden);
        Self {
            query: linear("q"),
            key: linear("k"),
            value: linear("v"),
            output: linear("o"),
            residual: vs.var("beta", &[1], Init::Const(0.01)),
            heads,
            moves_lone_gene: options.moves_lone_gene,
        }
    }

    /// `x` float32 `[n, h]`; `masked` bool `[n, n]`, true where a row must not attend to a column.
    fn forward(&self, x: &Tensor, masked: &Tensor) -> Result<Tensor, TchError> {
        let (n, hidden) = (x.size()[0], x.size()[1]);
        let split = |layer| linear(layer, x)?.f_view([n, self.heads, hidden / self.heads])?.f_permute([1, 0, 2]);
        let (q, k, v) = (split(&self.query)?, split(&self.key)?, split(&self.value)?);
        let scores = q.f_matmul(&k.f_transpose(-2, -1)?)?.f_div_scalar(((hidden / self.heads) as f64).sqrt())?;
        // The only gene of a sample attends to nothing: its row of weights is NaN, which becomes 0.
        let weights = scores.f_masked_fill(masked, f64::NEG_INFINITY)?.f_softmax(-1, None)?;
        let weights = weights.f_nan_to_num(0.0, None, None)?;
        let mixed = weights.f_matmul(&v)?.f_permute([1, 0, 2])?.f_contiguous()?.f_view([n, hidden])?;
        let mut update = linear(&self.output, &mixed)?.f_mul(&self.residual)?;
        if !self.moves_lone_gene {
            let alone = masked.f_all_dim(1, true)?;
            update = update.f_masked_fill(&alone, 0.0)?;
        }
        update.f_add(x)
    }
}

/// Scores the set of genes of each sample by how far attention moves them from a static embedding.
#[derive(Debug)]
pub struct HyperSagnn {
    fixed: nn::Linear,
    activation: Activation,
    layers: Vec<Attention>,
    score: nn::Linear,
}

impl HyperSagnn {
    /// `layers` layers of attention with `heads` heads, which divide `hidden`.
    pub fn new(vs: &nn::Path, hidden: i64, heads: i64, layers: i64, options: HyperSagnnOptions) -> Self {
        Self {
            fixed: (options.linear)(vs / "static", hidden, hidden),
            activation: options.activation,
            layers: (0..layers).map(|l| Attention::new(vs / format!("attention{l}"), hidden, heads, options)).collect(),
            score: (options.linear)(vs / "prediction", hidden, 1),
        }
    }

    /// `genes` float32 `[n, h]`, `sample` int64 `[n]` in 0..batch: float32 `[batch]`, 0 for a sample without genes.
    ///
    /// # Errors
    /// `sample` names a sample that does not exist, or libtorch has no memory.
    pub fn forward(&self, genes: &Tensor, sample: &Tensor, batch: i64) -> Result<Tensor, TchError> {
        let n = genes.size()[0];
        let fixed = self.activation.apply(&linear(&self.fixed, genes)?)?;
        let other_sample = sample.f_unsqueeze(1)?.f_ne_tensor(&sample.f_unsqueeze(0)?)?;
        let masked = other_sample.f_logical_or(&Tensor::f_eye(n, (Kind::Bool, genes.device()))?)?;
        let mut moved = genes.shallow_clone();
        for layer in &self.layers {
            moved = layer.forward(&moved, &masked)?;
        }
        let scores = upcast(&linear(&self.score, &moved.f_sub(&fixed)?.f_square()?)?.f_squeeze_dim(1)?)?;
        let zeros = Tensor::f_zeros([batch], (scores.kind(), genes.device()))?;
        let counts = zeros.f_index_add(0, sample, &scores.f_ones_like()?)?.f_clamp_min(1.0)?;
        zeros.f_index_add(0, sample, &scores)?.f_div(&counts)
    }
}
