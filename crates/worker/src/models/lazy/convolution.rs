use tch::nn::{self, Init};
use tch::{TchError, Tensor};

use super::config::LazyConfig;
use super::mlp::Mlp;
use super::norm::Norm;
use crate::models::linear::Activation;

/// The graph isomorphism convolution of one edge type: an MLP of (1 + ε) x plus the sum over the sources, then norm and
/// GELU.
#[derive(Debug)]
pub(super) struct Convolution {
    /// ε `[1]`, from 0.
    pub(super) eps: Tensor,
    pub(super) mlp: Mlp,
    pub(super) norm: Norm,
}

impl Convolution {
    pub fn new(vs: &nn::Path, config: &LazyConfig) -> Self {
        let widths = vec![config.hidden; config.convolution_layers as usize + 1];
        Self {
            eps: vs.var("eps", &[1], Init::Const(0.0)),
            mlp: Mlp::new(&(vs / "linear"), &widths),
            norm: Norm::new(&(vs / "norm"), config.norm, config.hidden),
        }
    }

    /// `sums` `[…, h]` are the sums over each row's sources, `x` `[…, h]` the rows themselves.
    pub fn forward(&self, sums: &Tensor, x: &Tensor) -> Result<Tensor, TchError> {
        let own = x.f_mul(&self.eps.f_add_scalar(1.0)?)?;
        Activation::Gelu.apply(&self.norm.forward(&self.mlp.forward(&sums.f_add(&own)?)?)?)
    }
}
