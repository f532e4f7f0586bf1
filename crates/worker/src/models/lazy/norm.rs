use expctl_record::Norm as Over;
use tch::nn::{self, Init};
use tch::{TchError, Tensor};

/// Added to the standard deviation (graph) or to the variance (node).
const EPS: f64 = 1e-5;

/// A norm with a weight and a bias for each channel.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) over: Over,
    /// `[h]`, from 1.
    pub(super) weight: Tensor,
    /// `[h]`, from 0.
    pub(super) bias: Tensor,
}

impl Norm {
    pub fn new(vs: &nn::Path, over: Over, hidden: i64) -> Self {
        let weight = vs.var("weight", &[hidden], Init::Const(1.0));
        Self { over, weight, bias: vs.var("bias", &[hidden], Init::Const(0.0)) }
    }

    /// float32 `[…, h]` to the same shape. With [`Over::Graph`] all of `x` has one mean and one variance: the rows that are
    /// passed together influence each other.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        match self.over {
            Over::Graph => {
                let centred = x.f_sub(&x.f_mean(None)?)?;
                let deviation = centred.f_std(false)?.f_add_scalar(EPS)?;
                centred.f_div(&deviation)?.f_mul(&self.weight)?.f_add(&self.bias)
            }
            Over::Node => x.f_layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), EPS, false),
        }
    }
}
