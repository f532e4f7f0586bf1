//! libtorch's operations over many tensors at once, which cost a GPU a few kernels however many tensors there are.

use tch::Tensor;

use crate::DistError;
use crate::ffi::bridge;
use crate::group::address;

/// Euclidean norm of each of `tensors`, as one vector on their device: on a GPU a few kernels, however many tensors there are.
///
/// # Errors
/// There are no tensors, or they differ in dtype or device.
pub fn foreach_norms(tensors: &[Tensor]) -> Result<Tensor, DistError> {
    let addresses: Vec<usize> = tensors.iter().map(address).collect();
    let norms = bridge::norms(&addresses).map_err(DistError::torch("take norms"))?;
    // SAFETY: the bridge returns a new `at::Tensor` that nothing else refers to; tch deletes it.
    Ok(unsafe { Tensor::from_ptr(norms as *mut _) })
}

/// Multiply each of `tensors`, in place, by `factor`, a scalar on their device; the host does not wait for it.
///
/// # Errors
/// dtypes or devices do not fit.
pub fn foreach_scale(tensors: &mut [Tensor], factor: &Tensor) -> Result<(), DistError> {
    let addresses: Vec<usize> = tensors.iter().map(address).collect();
    bridge::scale(&addresses, address(factor)).map_err(DistError::torch("scale tensors"))
}

/// Hyperparameters of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamwOptions {
    /// Learning rate, η.
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

/// A parameter with its gradient and AdamW's state, all on one device.
#[derive(Clone, Copy, Debug)]
pub struct AdamwParameter<'a> {
    /// Float, of any shape.
    pub parameter: &'a Tensor,
    /// Gradient, of the same shape.
    pub gradient: &'a Tensor,
    /// First moment, of the same shape.
    pub mean: &'a Tensor,
    /// Second moment, of the same shape.
    pub square: &'a Tensor,
    /// float32 scalar: steps so far.
    pub steps: &'a Tensor,
}

/// Step all `parameters` in place by libtorch's fused AdamW, which reads and writes parameter, gradient and moments once. Where `overflow`, a
/// float32 scalar on their device, is not 0, nothing changes; the host does not wait for it.
///
/// # Errors
/// Shapes, dtypes or devices do not fit.
pub fn fused_adamw(
    parameters: &[AdamwParameter<'_>],
    options: AdamwOptions,
    overflow: Option<&Tensor>,
) -> Result<(), DistError> {
    let list = |field: fn(&AdamwParameter<'_>) -> usize| parameters.iter().map(field).collect::<Vec<usize>>();
    let AdamwOptions { learning_rate, beta1, beta2, epsilon, weight_decay } = options;
    bridge::fused_adamw(
        &list(|p| address(p.parameter)),
        &list(|p| address(p.gradient)),
        &list(|p| address(p.mean)),
        &list(|p| address(p.square)),
        &list(|p| address(p.steps)),
        &bridge::AdamwSettings { learning_rate, beta1, beta2, epsilon, weight_decay },
        overflow.map_or(0, address),
    )
    .map_err(DistError::torch("step the parameters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_taken_each_by_itself() {
        let mut tensors = [Tensor::from_slice(&[3f32, 4.0]), Tensor::from_slice(&[[2f32; 2]; 2].concat()).view([2, 2])];
        assert_eq!(Vec::<f32>::try_from(foreach_norms(&tensors).unwrap()).unwrap(), [5.0, 4.0]);
        foreach_scale(&mut tensors, &Tensor::from(0.5f32)).unwrap();
        assert_eq!(Vec::<f32>::try_from(&tensors[0]).unwrap(), [1.5, 2.0]);
        assert_eq!(Vec::<f32>::try_from(tensors[1].flatten(0, -1)).unwrap(), [1.0; 4]);
        assert!(foreach_norms(&[]).is_err());
        assert!(foreach_scale(&mut tensors, &Tensor::from_slice(&[1f32, 2.0])).is_err(), "no scalar");
    }
}
