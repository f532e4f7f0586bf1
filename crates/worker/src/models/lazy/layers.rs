use expctl_record::LocalHead;
use tch::nn::{self, Init};
use tch::{TchError, Tensor};

use super::aggregation::Aggregation;
use super::config::LazyConfig;
use super::convolution::Convolution;
use super::mlp::{Mlp, kaiming_linear};
use super::norm::Norm;
use crate::models::hyper_sagnn::{HyperSagnn, Make};
use crate::models::linear::{Activation, apply};

/// All that the model trains; every implementation computes with it.
///
/// Invariant: what is made, and in which order, depends on the config and the names of the edge types alone.
#[derive(Debug)]
pub(super) struct Parameters {
    /// `[N, h]`, N(0, 0.02).
    pub(super) embedding: Tensor,
    pub(super) preprocessor: Preprocessor,
    pub(super) layers: Vec<Layer>,
    pub(super) readout: Readout,
    /// h → h → 1.
    pub(super) global_head: Mlp,
    /// Absent where there is none; there also where its term is 0.
    pub(super) local_head: Option<HyperSagnn>,
}

/// Two times linear, norm and GELU; the norm is one for both.
#[derive(Debug)]
pub(super) struct Preprocessor {
    pub(super) linears: [nn::Linear; 2],
    pub(super) norm: Norm,
}

/// One message passing layer.
#[derive(Debug)]
pub(super) struct Layer {
    /// One per edge type.
    pub(super) convolutions: Vec<Convolution>,
    pub(super) aggregation: Aggregation,
}

/// Attentional readout of a graph.
#[derive(Debug)]
pub(super) struct Readout {
    /// h → h/2 → 1.
    pub(super) gate: Mlp,
    /// h → h, followed by GELU.
    pub(super) transform: nn::Linear,
}

impl Parameters {
    /// `types` are the names of the edge types. The config is a checked one.
    pub fn new(vs: &nn::Path, config: &LazyConfig, types: &[&str]) -> Self {
        let h = config.hidden;
        let layer = |l: i64| {
            let vs = vs / "encoder" / l;
            let convolutions = types.iter().map(|name| Convolution::new(&(&vs / "convolution" / name), config));
            Layer {
                convolutions: convolutions.collect(),
                aggregation: Aggregation::new(&(&vs / "aggregation"), config, types),
            }
        };
        Self {
            embedding: vs.var("embedding", &[config.num_genes, h], Init::Randn { mean: 0.0, stdev: 0.02 }),
            preprocessor: Preprocessor::new(&(vs / "preprocessor"), config),
            layers: (0..config.layers).map(layer).collect(),
            readout: Readout::new(&(vs / "readout"), h),
            global_head: Mlp::new(&(vs / "global_head"), &[h, h, 1]),
            local_head: (config.local_head != LocalHead::None).then(|| Self::local_head(&(vs / "local_head"), config)),
        }
    }

    /// The local head, whatever the config says of it.
    pub fn local_head(vs: &nn::Path, config: &LazyConfig) -> HyperSagnn {
        let make = Make {
            activation: Activation::Gelu,
            moves_lone_gene: false,
            linear: &|vs, inputs, outputs| kaiming_linear(&vs, inputs, outputs),
        };
        HyperSagnn::new(vs, config.hidden, config.heads, config.attention_layers, make)
    }
}

impl Preprocessor {
    pub fn new(vs: &nn::Path, config: &LazyConfig) -> Self {
        let linear = |i: usize| kaiming_linear(&(vs / i), config.hidden, config.hidden);
        let norm = Norm::new(&(vs / "norm"), config.preprocessor_norm, config.hidden);
        Self { linears: [linear(0), linear(1)], norm }
    }

    /// float32 `[…, h]` to the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let mut x = x.shallow_clone();
        for linear in &self.linears {
            x = Activation::Gelu.apply(&self.norm.forward(&apply(linear, &x)?)?)?;
        }
        Ok(x)
    }
}

impl Layer {
    /// float32 `[…, h]` to the same shape, in libtorch's own operations; `sums` gives the sums of each row's sources along the edges
    /// of a type, of the same shape, by the number of the type.
    ///
    /// # Errors
    /// Those of `sums`, or libtorch has no memory.
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
            gate: Mlp::new(&(vs / "gate"), &[hidden, hidden / 2, 1]),
            transform: kaiming_linear(&(vs / "transform"), hidden, hidden),
        }
    }

    /// GELU(W x + b), what a gene adds to its graph's sum: float32 `[…, h]` to the same shape.
    pub fn values(&self, x: &Tensor) -> Result<Tensor, TchError> {
        Activation::Gelu.apply(&apply(&self.transform, x)?)
    }
}
