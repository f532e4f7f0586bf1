use tch::{Kind, Tensor, nn, nn::Init, nn::Module};

use super::init::xavier_linear;

/// One layer of attention within each sample, a gene not attending to itself, with a learned residual weight.
#[derive(Debug)]
struct Attention {
    query: nn::Linear,
    key: nn::Linear,
    value: nn::Linear,
    output: nn::Linear,
    residual: Tensor,
    heads: i64,
}

impl Attention {
    fn new(vs: nn::Path, hidden: i64, heads: i64) -> Self {
        let linear = |name: &str| xavier_linear(&vs / name, hidden, hidden);
        Self {
            query: linear("q"),
            key: linear("k"),
            value: linear("v"),
            output: linear("o"),
            residual: vs.var("beta", &[1], Init::Const(0.01)),
            heads,
        }
    }

    /// `x` float32 `[n, h]`; `barred` bool `[n, n]`, true where row must not attend to column.
    fn forward(&self, x: &Tensor, barred: &Tensor) -> Tensor {
        let (n, hidden) = (x.size()[0], x.size()[1]);
        let split = |t: Tensor| t.view([n, self.heads, hidden / self.heads]).permute([1, 0, 2]);
        let (q, k, v) = (split(self.query.forward(x)), split(self.key.forward(x)), split(self.value.forward(x)));
        let scores = q.matmul(&k.transpose(-2, -1)) / ((hidden / self.heads) as f64).sqrt();
        // A sample's only gene may attend to nothing: its row of weights is NaN, which becomes 0.
        let weights =
            scores.masked_fill(barred, f64::NEG_INFINITY).softmax(-1, Kind::Float).nan_to_num(0.0, None, None);
        let mixed = weights.matmul(&v).permute([1, 0, 2]).contiguous().view([n, hidden]);
        self.output.forward(&mixed) * &self.residual + x
    }
}

/// Scores each sample's set of genes by how far attention moves them from a static embedding.
#[derive(Debug)]
pub(super) struct HyperSagnn {
    fixed: nn::Linear,
    layers: Vec<Attention>,
    score: nn::Linear,
}

impl HyperSagnn {
    pub fn new(vs: nn::Path, hidden: i64, heads: i64, layers: i64) -> Self {
        Self {
            fixed: xavier_linear(&vs / "static", hidden, hidden),
            layers: (0..layers).map(|l| Attention::new(&vs / format!("attention{l}"), hidden, heads)).collect(),
            score: xavier_linear(&vs / "prediction", hidden, 1),
        }
    }

    /// `genes` float32 `[n, h]`, `sample` int64 `[n]` in 0..batch: float32 `[batch]`, 0 for a sample without genes.
    pub fn forward(&self, genes: &Tensor, sample: &Tensor, batch: i64) -> Tensor {
        let n = genes.size()[0];
        let fixed = self.fixed.forward(genes).relu();
        let other_sample = sample.unsqueeze(1).ne_tensor(&sample.unsqueeze(0));
        let barred = other_sample.logical_or(&Tensor::eye(n, (Kind::Bool, genes.device())));
        let moved = self.layers.iter().fold(genes.shallow_clone(), |x, layer| layer.forward(&x, &barred));
        let scores = self.score.forward(&(moved - fixed).square()).squeeze_dim(1).to_kind(Kind::Float);
        let zeros = Tensor::zeros([batch], (Kind::Float, genes.device()));
        let counts = zeros.index_add(0, sample, &Tensor::ones_like(&scores)).clamp_min(1.0);
        zeros.index_add(0, sample, &scores) / counts
    }
}
