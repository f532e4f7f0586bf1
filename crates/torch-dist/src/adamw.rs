use tch::Tensor;

use crate::DistError;
use crate::ffi::bridge;
use crate::group::address;

/// Numbers of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamwOptions {
    /// η.
    pub learning_rate: f64,
    /// β₁.
    pub beta1: f64,
    /// β₂.
    pub beta2: f64,
    /// ε.
    pub epsilon: f64,
    /// λ, decoupled.
    pub weight_decay: f64,
}

/// A parameter with what AdamW keeps of it, all on one device.
#[derive(Clone, Copy, Debug)]
pub struct AdamwPart<'a> {
    /// Float, of any shape.
    pub parameter: &'a Tensor,
    /// Of its shape.
    pub gradient: &'a Tensor,
    /// First moment, of its shape.
    pub mean: &'a Tensor,
    /// Second moment, of its shape.
    pub square: &'a Tensor,
    /// float32 scalar: steps so far.
    pub steps: &'a Tensor,
}

/// Step all of `parts`, in place: libtorch's fused AdamW, which reads and writes each of parameter, gradient and moments once.
/// Where `overflow`, a float32 scalar on their device, is not 0, everything stays as it is; the host need not know.
///
/// # Errors
/// Shapes, dtypes or devices do not fit.
pub fn fused_adamw(parts: &[AdamwPart<'_>], options: AdamwOptions, overflow: Option<&Tensor>) -> Result<(), DistError> {
    let list = |part: fn(&AdamwPart<'_>) -> usize| parts.iter().map(part).collect::<Vec<usize>>();
    let AdamwOptions { learning_rate, beta1, beta2, epsilon, weight_decay } = options;
    bridge::fused_adamw(
        &list(|part| address(part.parameter)),
        &list(|part| address(part.gradient)),
        &list(|part| address(part.mean)),
        &list(|part| address(part.square)),
        &list(|part| address(part.steps)),
        &bridge::AdamwSettings { learning_rate, beta1, beta2, epsilon, weight_decay },
        overflow.map_or(0, address),
    )
    .map_err(DistError::torch("step the parameters"))
}
