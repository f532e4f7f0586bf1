use tch::{TchError, Tensor, nn};

/// x Wᵀ + b, float32 `[…, inputs]` to `[…, outputs]`; unlike tch's own it returns errors.
pub(super) fn apply(linear: &nn::Linear, x: &Tensor) -> Result<Tensor, TchError> {
    x.f_linear(&linear.ws, linear.bs.as_ref())
}

/// A function of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// max(x, 0).
    Relu,
    /// x Φ(x), with the error function itself.
    Gelu,
}

impl Activation {
    /// Of any shape.
    pub fn apply(self, x: &Tensor) -> Result<Tensor, TchError> {
        match self {
            Self::Relu => x.f_relu(),
            Self::Gelu => x.f_gelu("none"),
        }
    }
}
