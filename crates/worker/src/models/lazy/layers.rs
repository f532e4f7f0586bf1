//! The layers of the lazy model and all of its parameters, whichever implementation computes with them.

use expctl_settings::{Aggregation as Join, LocalHead, Norm};
use tch::nn::init::{FanInOut, NonLinearity, NormalOrUniform};
use tch::nn::{self, Init};
use tch::{TchError, Tensor};

use crate::models::layers::{Activation, HyperSagnn, HyperSagnnOptions, linear};
use crate::models::lazy::LazyConfig;

/// All parameters of the model; every implementation computes with them.
///
/// Invariant: which parameters there are, and their order, depends on the config and the names of the edge types alone.
#[derive(Debug)]
pub struct LazyParameters {
    /// `[N, h]`, N(0, 0.02).
    pub embedding: Tensor,
    pub preprocessor: Preprocessor,
    pub layers: Vec<LazyLayer>,
    pub readout: Readout,
    /// h → h → 1.
    pub global_head: GeluMlp,
    /// `None` without a local head; present also where its term is 0.
    pub local_head: Option<HyperSagnn>,
}

/// Twice linear, norm and GELU; both share one norm.
#[derive(Debug)]
pub struct Preprocessor {
    pub linears: [nn::Linear; 2],
    pub norm: ChannelNorm,
}

/// One message passing layer.
#[derive(Debug)]
pub struct LazyLayer {
    /// One per edge type.
    pub convolutions: Vec<Convolution>,
    pub aggregation: Aggregation,
}

/// Attentional readout of a graph.
#[derive(Debug)]
pub struct Readout {
    /// h → h/2 → 1.
    pub gate: GeluMlp,
    /// h → h, followed by GELU.
    pub transform: nn::Linear,
}

impl LazyParameters {
    /// `types` are the names of the edge types. The config has been checked.
    pub fn new(vs: &nn::Path, config: &LazyConfig, types: &[&str]) -> Self {
        let h = config.hidden;
        let layer = |l: i64| {
            let vs = vs / "encoder" / l;
            let convolutions = types.iter().map(|name| Convolution::new(&(&vs / "convolution" / name), config));
            LazyLayer {
                convolutions: convolutions.collect(),
                aggregation: Aggregation::new(&(&vs / "aggregation"), config, types),
            }
        };
        Self {
            embedding: vs.var("embedding", &[config.num_genes, h], Init::Randn { mean: 0.0, stdev: 0.02 }),
            preprocessor: Preprocessor::new(&(vs / "preprocessor"), config),
            layers: (0..config.layers).map(layer).collect(),
            readout: Readout::new(&(vs / "readout"), h),
            global_head: GeluMlp::new(&(vs / "global_head"), &[h, h, 1]),
            local_head: (config.local_head != LocalHead::None).then(|| Self::local_head(&(vs / "local_head"), config)),
        }
    }

    /// The local head, whether the config has one or not.
    pub fn local_head(vs: &nn::Path, config: &LazyConfig) -> HyperSagnn {
        let options = HyperSagnnOptions {
            activation: Activation::Gelu,
            moves_lone_gene: false,
            linear: &|vs, inputs, outputs| kaiming_linear(&vs, inputs, outputs),
        };
        HyperSagnn::new(vs, config.hidden, config.heads, config.attention_layers, options)
    }
}

impl Preprocessor {
    pub fn new(vs: &nn::Path, config: &LazyConfig) -> Self {
        let layer = |i: usize| kaiming_linear(&(vs / i), config.hidden, config.hidden);
        let norm = ChannelNorm::new(&(vs / "norm"), config.preprocessor_norm, config.hidden);
        Self { linears: [layer(0), layer(1)], norm }
    }

    /// float32 `[…, h]` to the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let mut x = x.shallow_clone();
        for layer in &self.linears {
            x = Activation::Gelu.apply(&self.norm.forward(&linear(layer, &x)?)?)?;
        }
        Ok(x)
    }
}

impl LazyLayer {
    /// float32 `[…, h]` to the same shape, in libtorch's own operations; `sums(t)` are the sums over each row's sources along the edges of type
    /// `t`, of the same shape.
    ///
    /// # Errors
    /// `sums` fails, or libtorch has no memory.
    pub fn forward<E: From<TchError>>(
        &self,
        x: &Tensor,
        sums: impl Fn(usize) -> Result<Tensor, E>,
    ) -> Result<Tensor, E> {
        let mut convolved = Vec::with_capacity(self.convolutions.len());
        for (t, convolution) in self.convolutions.iter().enumerate() {
            convolved.push(convolution.forward(&sums(t)?, x)?);
        }
        Ok(self.aggregation.forward(&convolved)?)
    }
}

impl Readout {
    pub fn new(vs: &nn::Path, hidden: i64) -> Self {
        Self {
            gate: GeluMlp::new(&(vs / "gate"), &[hidden, hidden / 2, 1]),
            transform: kaiming_linear(&(vs / "transform"), hidden, hidden),
        }
    }

    /// GELU(W x + b), the contribution of a gene to the sum of its graph: float32 `[…, h]` to the same shape.
    pub fn values(&self, x: &Tensor) -> Result<Tensor, TchError> {
        Activation::Gelu.apply(&linear(&self.transform, x)?)
    }
}

/// The graph isomorphism convolution of one edge type: an MLP of (1 + ε) x plus the sum over the sources, then norm and GELU.
#[derive(Debug)]
pub struct Convolution {
    /// ε `[1]`, initially 0.
    pub eps: Tensor,
    pub mlp: GeluMlp,
    pub norm: ChannelNorm,
}

impl Convolution {
    pub fn new(vs: &nn::Path, config: &LazyConfig) -> Self {
        let widths = vec![config.hidden; config.convolution_layers as usize + 1];
        Self {
            eps: vs.var("eps", &[1], Init::Const(0.0)),
            mlp: GeluMlp::new(&(vs / "linear"), &widths),
            norm: ChannelNorm::new(&(vs / "norm"), config.norm, config.hidden),
        }
    }

    /// `sums` `[…, h]` are the sums over each row's sources, `x` `[…, h]` the rows themselves.
    pub fn forward(&self, sums: &Tensor, x: &Tensor) -> Result<Tensor, TchError> {
        let scaled = x.f_mul(&self.eps.f_add_scalar(1.0)?)?;
        Activation::Gelu.apply(&self.norm.forward(&self.mlp.forward(&sums.f_add(&scaled)?)?)?)
    }
}

/// Combines the results of a layer's convolutions, one per edge type.
#[derive(Debug)]
pub enum Aggregation {
    /// An MLP for each pair of edge types, weighted by scores.
    Pairwise(Pairwise),
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
}

/// Pairwise interaction of T edge types.
#[derive(Debug)]
pub struct Pairwise {
    /// T (T + 1) / 2 MLPs 2h → h/2 → h of the types i ≤ j, in the order (0, 0), (0, 1), …, (1, 1), (1, 2), …
    pub pairs: Vec<GeluMlp>,
    /// h → h/2 → 1, the same for all options.
    pub scorer: GeluMlp,
    /// Norm of the result.
    pub norm: Option<ChannelNorm>,
}

impl Aggregation {
    pub fn new(vs: &nn::Path, config: &LazyConfig, types: &[&str]) -> Self {
        let h = config.hidden;
        match config.aggregation {
            Join::Sum => Self::Sum,
            Join::Mean => Self::Mean,
            Join::PairwiseInteraction => Self::Pairwise(Pairwise {
                pairs: pairs_of(types.len())
                    .map(|(i, j)| {
                        GeluMlp::new(&(vs / "pair" / format!("{}-{}", types[i], types[j])), &[2 * h, h / 2, h])
                    })
                    .collect(),
                scorer: GeluMlp::new(&(vs / "scorer"), &[h, h / 2, 1]),
                norm: config.normalises_aggregate().then(|| ChannelNorm::new(&(vs / "norm"), config.norm, h)),
            }),
        }
    }

    /// The results of the T edge types, each `[…, h]`, to `[…, h]`.
    pub fn forward(&self, convolved: &[Tensor]) -> Result<Tensor, TchError> {
        match self {
            Self::Pairwise(pairwise) => pairwise.forward(convolved),
            Self::Sum => Tensor::f_stack(convolved, 0)?.f_sum_dim_intlist([0i64].as_slice(), false, None),
            Self::Mean => mean(convolved),
        }
    }
}

/// The unordered pairs of `types` edge types, self pairs included, in the order of [`Pairwise::pairs`].
pub fn pairs_of(types: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..types).flat_map(move |i| (i..types).map(move |j| (i, j)))
}

fn mean(convolved: &[Tensor]) -> Result<Tensor, TchError> {
    Tensor::f_stack(convolved, 0)?.f_mean_dim([0i64].as_slice(), false, None)
}

impl Pairwise {
    /// The options are the pairs and the mean of all types; each row weights them by the softmax of their scores.
    fn forward(&self, convolved: &[Tensor]) -> Result<Tensor, TchError> {
        let mut options = Vec::with_capacity(self.pairs.len() + 1);
        for ((i, j), mlp) in pairs_of(convolved.len()).zip(&self.pairs) {
            options.push(mlp.forward(&Tensor::f_cat(&[&convolved[i], &convolved[j]], -1)?)?);
        }
        options.push(mean(convolved)?);
        let options = Tensor::f_stack(&options, -2)?;
        let weights = self.scorer.forward(&options)?.f_softmax(-2, None)?;
        let joined = options.f_mul(&weights)?.f_sum_dim_intlist([-2i64].as_slice(), false, None)?;
        match &self.norm {
            Some(norm) => norm.forward(&joined),
            None => Ok(joined),
        }
    }
}

/// Added to the standard deviation (graph) or to the variance (node).
pub const EPS: f64 = 1e-5;

/// A norm with a weight and a bias for each channel.
#[derive(Debug)]
pub struct ChannelNorm {
    pub over: Norm,
    /// `[h]`, initially 1.
    pub weight: Tensor,
    /// `[h]`, initially 0.
    pub bias: Tensor,
}

impl ChannelNorm {
    pub fn new(vs: &nn::Path, over: Norm, hidden: i64) -> Self {
        let weight = vs.var("weight", &[hidden], Init::Const(1.0));
        Self { over, weight, bias: vs.var("bias", &[hidden], Init::Const(0.0)) }
    }

    /// float32 `[…, h]` to the same shape. With [`Norm::Graph`] all of `x` has one mean and one variance: rows that are passed together
    /// influence each other.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        match self.over {
            Norm::Graph => {
                let centred = x.f_sub(&x.f_mean(None)?)?;
                let deviation = centred.f_std(false)?.f_add_scalar(EPS)?;
                centred.f_div(&deviation)?.f_mul(&self.weight)?.f_add(&self.bias)
            }
            Norm::Node => x.f_layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), EPS, false),
        }
    }
}

/// Linear layer with Kaiming-normal weights, standard deviation √(2 / outputs), and zero bias.
pub fn kaiming_linear(vs: &nn::Path, inputs: i64, outputs: i64) -> nn::Linear {
    let weights =
        Init::Kaiming { dist: NormalOrUniform::Normal, fan: FanInOut::FanOut, non_linearity: NonLinearity::ReLU };
    nn::linear(vs, inputs, outputs, nn::LinearConfig { ws_init: weights, bs_init: Some(Init::Const(0.0)), bias: true })
}

/// Linear layers with GELU between them, but not behind the last.
#[derive(Debug)]
pub struct GeluMlp {
    pub linears: Vec<nn::Linear>,
}

impl GeluMlp {
    /// Layers `0`, `1`, … under `vs`, from `widths[0]` channels to `widths[1]` and so on.
    pub fn new(vs: &nn::Path, widths: &[i64]) -> Self {
        let linears = widths.windows(2).enumerate().map(|(i, w)| kaiming_linear(&(vs / i), w[0], w[1]));
        Self { linears: linears.collect() }
    }

    /// float32 `[…, first width]` to `[…, last width]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let mut x = x.shallow_clone();
        for (i, layer) in self.linears.iter().enumerate() {
            let inner = if i == 0 { x } else { Activation::Gelu.apply(&x)? };
            x = linear(layer, &inner)?;
        }
        Ok(x)
    }
}
