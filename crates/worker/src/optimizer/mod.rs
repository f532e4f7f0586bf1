//! Optimizers whose state can be kept and restored, and gradient clipping.

use std::collections::BTreeMap;

use expctl_settings::Train;
use tch::nn::{self, OptimizerConfig};
use tch::{Kind, TchError, Tensor};
use torch_dist::{foreach_norms, foreach_scale};

use crate::device::DeviceError;
use crate::models::named_parameters;
use crate::state::StateError;

mod adamw;

pub use adamw::AdamW;

/// The optimizer of a trial.
#[derive(Debug)]
pub struct Optimizer {
    /// libtorch's SGD without momentum, which has no state. With AdamW it only zeroes the gradients.
    sgd: nn::Optimizer,
    adamw: Option<AdamW>,
    parameters: Vec<(String, Tensor)>,
}

impl Optimizer {
    /// The optimizer of the settings `train`, for the parameters in `vs`.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn new(train: &Train, vs: &nn::VarStore) -> Result<Self, TchError> {
        let sgd = nn::Sgd { wd: train.weight_decay, ..nn::Sgd::default() }.build(vs, train.learning_rate)?;
        let parameters = named_parameters(vs);
        let shared = || parameters.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
        let adamw = match train.optimizer {
            expctl_settings::Optimizer::Adamw => Some(AdamW::new(shared(), train.learning_rate, train.weight_decay)),
            expctl_settings::Optimizer::Sgd => None,
        };
        Ok(Self { sgd, adamw, parameters })
    }

    /// Scale the gradients so that their norm is at most `max`; returns the norm before. See [`clip_grad_norm`].
    ///
    /// # Errors
    /// libtorch fails.
    pub fn clip_grad_norm(&self, max: f64) -> Result<f64, DeviceError> {
        clip_grad_norm(&self.parameters, max)
    }

    /// Clip without waiting for the device; see [`clip_grad_norm_async()`]. `None` where the host has to decide about the step, as with SGD,
    /// and without gradients.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn clip_grad_norm_async(&self, max: f64) -> Result<Option<ClippedGradient>, DeviceError> {
        if self.adamw.is_some() { clip_grad_norm_async(&self.parameters, max) } else { Ok(None) }
    }

    /// The learning rate of the steps from here on.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.sgd.set_lr(rate);
        if let Some(adamw) = &mut self.adamw {
            adamw.set_learning_rate(rate);
        }
    }

    /// Step the parameters, unless `overflow`, a float32 scalar on their device, is not 0.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn step(&mut self, overflow: Option<&Tensor>) -> Result<(), DeviceError> {
        match &mut self.adamw {
            Some(adamw) => adamw.step(overflow),
            None => {
                self.sgd.step();
                Ok(())
            }
        }
    }

    /// Drop the gradients.
    pub fn zero_grad(&mut self) {
        self.sgd.zero_grad();
    }

    /// The state by name.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        self.adamw.as_ref().map(AdamW::state).unwrap_or_default()
    }

    /// Restore a state.
    ///
    /// # Errors
    /// A tensor has another shape than its parameter.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), StateError> {
        self.adamw.as_mut().map_or(Ok(()), |adamw| adamw.restore(state))
    }
}

/// Added to the norm, as PyTorch does.
const EPSILON: f64 = 1e-6;

/// Scale the gradients of `parameters` so that the norm of all together is at most `max`; returns the norm before. Where it is not finite,
/// the gradients are unchanged. Parameters without a gradient are left out.
///
/// Source: `torch.nn.utils.clip_grad_norm_`: the norm of the norms, in float32.
///
/// # Errors
/// libtorch fails.
pub fn clip_grad_norm(parameters: &[(String, Tensor)], max: f64) -> Result<f64, DeviceError> {
    tch::no_grad(|| {
        let Some((norm, mut gradients)) = gradient_norm(parameters)? else { return Ok(0.0) };
        // The host waits for the device here alone.
        let norm = norm.f_double_value(&[]).map_err(failed)?;
        let factor = max / (norm + EPSILON);
        if norm.is_finite() && factor < 1.0 {
            for gradient in &mut gradients {
                let _ = gradient.f_mul_scalar_(factor).map_err(failed)?;
            }
        }
        Ok(norm)
    })
}

/// The norm of all gradients together, float32 scalar, and the gradients; `None` without gradients.
fn gradient_norm(parameters: &[(String, Tensor)]) -> Result<Option<(Tensor, Vec<Tensor>)>, DeviceError> {
    let mut gradients = Vec::with_capacity(parameters.len());
    for (_, parameter) in parameters {
        let gradient = parameter.f_grad().map_err(failed)?;
        if gradient.defined() {
            gradients.push(gradient);
        }
    }
    if gradients.is_empty() {
        return Ok(None);
    }
    let norm = foreach_norms(&gradients)?.f_norm().map_err(failed)?;
    Ok(Some((norm, gradients)))
}

fn failed(error: TchError) -> DeviceError {
    DeviceError::from_tch("clip the gradient", &error)
}

/// The result of [`clip_grad_norm_async`]: scalars on the device of the gradients.
#[derive(Debug)]
pub struct ClippedGradient {
    /// Norm of all gradients together before clipping, float32.
    pub norm: Tensor,
    /// 1 where the norm is not finite, so that the optimizer must skip the step, else 0; float32.
    pub overflow: Tensor,
}

/// Like [`clip_grad_norm`], but asynchronous: the norm stays on the device, and the host does not wait. A norm that is not finite sets
/// `overflow`, and leaves the gradients undefined. `None` without gradients.
///
/// # Errors
/// libtorch fails.
pub fn clip_grad_norm_async(parameters: &[(String, Tensor)], max: f64) -> Result<Option<ClippedGradient>, DeviceError> {
    tch::no_grad(|| {
        let Some((norm, mut gradients)) = gradient_norm(parameters)? else { return Ok(None) };
        foreach_scale(&mut gradients, &factor(&norm, max).map_err(failed)?)?;
        let overflow = overflow(&norm).map_err(failed)?;
        Ok(Some(ClippedGradient { norm, overflow }))
    })
}

/// The factor of gradients with this norm.
fn factor(norm: &Tensor, max: f64) -> Result<Tensor, TchError> {
    norm.f_add_scalar(EPSILON)?.f_reciprocal()?.f_mul_scalar(max)?.f_clamp_max(1.0)
}

/// 1 where the norm is not finite, else 0.
fn overflow(norm: &Tensor) -> Result<Tensor, TchError> {
    norm.f_isfinite()?.f_logical_not()?.f_to_kind(Kind::Float)
}

#[cfg(test)]
mod tests {
    use expctl_rounding::gamma;
    use tch::Kind;

    use super::*;

    fn with_gradients(gradients: &[&[f32]]) -> Vec<(String, Tensor)> {
        gradients
            .iter()
            .enumerate()
            .map(|(i, gradient)| {
                let gradient = Tensor::from_slice(gradient);
                let parameter = gradient.zeros_like().set_requires_grad(true);
                (&parameter * gradient).sum(Kind::Float).backward();
                (format!("p{i}"), parameter)
            })
            .collect()
    }

    fn gradient(parameter: &(String, Tensor)) -> Vec<f32> {
        Vec::try_from(parameter.1.grad()).unwrap()
    }

    #[test]
    fn the_norm_of_all_gradients_is_bounded() {
        let mut parameters = with_gradients(&[&[3.0, 0.0], &[4.0], &[12.0]]);
        // One without a gradient.
        parameters.push(("idle".to_owned(), Tensor::from_slice(&[1f32]).set_requires_grad(true)));
        assert_eq!(clip_grad_norm(&parameters, 20.0).unwrap(), 13.0);
        assert_eq!(gradient(&parameters[0]), [3.0, 0.0]);
        assert_eq!(clip_grad_norm(&parameters, 6.5).unwrap(), 13.0);
        for (parameter, before) in parameters.iter().zip([3.0, 4.0, 12.0]) {
            // The factor is rounded, and the product.
            let exact = before * 6.5 / (13.0 + EPSILON);
            assert!((f64::from(gradient(parameter)[0]) - exact).abs() <= gamma(2) * exact);
        }
    }

    #[test]
    fn what_is_not_finite_is_told_and_left_alone() {
        let parameters = with_gradients(&[&[3.0], &[f32::INFINITY]]);
        assert_eq!(clip_grad_norm(&parameters, 1.0).unwrap(), f64::INFINITY);
        assert_eq!(gradient(&parameters[0]), [3.0]);
        assert!(clip_grad_norm(&with_gradients(&[&[3.0], &[f32::NAN]]), 1.0).unwrap().is_nan());
        // Squares that do not fit into float32.
        assert_eq!(clip_grad_norm(&with_gradients(&[&[3e38, 3e38]]), 1.0).unwrap(), f64::INFINITY);
        assert_eq!(clip_grad_norm(&[], 1.0).unwrap(), 0.0);
    }

    /// Two parameters with these gradients.
    fn parameters(gradients: [f32; 2]) -> Vec<(String, Tensor)> {
        gradients
            .iter()
            .map(|gradient| {
                let parameter = Tensor::from_slice(&[1f32]).set_requires_grad(true);
                (&parameter * f64::from(*gradient)).sum(Kind::Float).backward();
                ("p".to_owned(), parameter)
            })
            .collect()
    }

    fn gradients(parameters: &[(String, Tensor)]) -> Vec<f64> {
        parameters.iter().map(|(_, parameter)| parameter.grad().double_value(&[0])).collect()
    }

    #[test]
    fn it_clips_as_the_host_does() {
        for max in [20.0, 2.5] {
            let (here, there) = (parameters([3.0, 4.0]), parameters([3.0, 4.0]));
            let norm = clip_grad_norm(&here, max).unwrap();
            let clipped = clip_grad_norm_async(&there, max).unwrap().unwrap();
            assert_eq!((clipped.norm.double_value(&[]), clipped.overflow.double_value(&[])), (norm, 0.0));
            for (here, there) in gradients(&here).iter().zip(gradients(&there)) {
                // Here: the factor, the product. There: the norm, its sum with ε, ε itself, the quotient and two products.
                assert!((here - there).abs() <= gamma(2 + 6) * here, "{here} {there}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_marked() {
        for wrong in [f32::NAN, f32::INFINITY] {
            let clipped = clip_grad_norm_async(&parameters([3.0, wrong]), 1.0).unwrap().unwrap();
            assert_eq!(clipped.overflow.double_value(&[]), 1.0);
        }
        assert!(clip_grad_norm_async(&[], 1.0).unwrap().is_none());
    }
}
