use tch::nn::init::{FanInOut, NonLinearity, NormalOrUniform};
use tch::nn::{self, Init};
use tch::{TchError, Tensor};

use crate::models::linear::{Activation, apply};

/// Linear layer with Kaiming-normal weights, standard deviation √(2 / outputs), and zero bias.
pub(super) fn kaiming_linear(vs: &nn::Path, inputs: i64, outputs: i64) -> nn::Linear {
    let weights =
        Init::Kaiming { dist: NormalOrUniform::Normal, fan: FanInOut::FanOut, non_linearity: NonLinearity::ReLU };
    nn::linear(vs, inputs, outputs, nn::LinearConfig { ws_init: weights, bs_init: Some(Init::Const(0.0)), bias: true })
}

/// Linear layers with GELU between them, and none behind the last.
#[derive(Debug)]
pub(super) struct Mlp {
    pub(super) linears: Vec<nn::Linear>,
}

impl Mlp {
    /// Layers `0`, `1`, … under `vs` that lead from `widths[0]` channels to `widths[1]` and so on.
    pub fn new(vs: &nn::Path, widths: &[i64]) -> Self {
        let linears = widths.windows(2).enumerate().map(|(i, w)| kaiming_linear(&(vs / i), w[0], w[1]));
        Self { linears: linears.collect() }
    }

    /// float32 `[…, first width]` to `[…, last width]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let mut x = x.shallow_clone();
        for (i, linear) in self.linears.iter().enumerate() {
            let inner = if i == 0 { x } else { Activation::Gelu.apply(&x)? };
            x = apply(linear, &inner)?;
        }
        Ok(x)
    }
}
