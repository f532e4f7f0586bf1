use expctl_dist::norms;
use tch::{TchError, Tensor};

use crate::device::DeviceError;

/// Added to the norm, as PyTorch does.
pub(super) const EPSILON: f64 = 1e-6;

/// Scale the gradients of `parameters` so that their norm, of all together, is at most `max`; returns what it was. Where
/// that is not finite, the gradients stay as they are. Parameters without a gradient are left out.
///
/// Source: `torch.nn.utils.clip_grad_norm_`: the norm of the norms, in float32.
///
/// # Errors
/// libtorch refuses.
pub fn clip_grad_norm(parameters: &[(String, Tensor)], max: f64) -> Result<f64, DeviceError> {
    tch::no_grad(|| {
        let Some((norm, mut gradients)) = norm_of(parameters)? else { return Ok(0.0) };
        // The only time that the device is waited for.
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

/// The norm of all gradients together, float32 scalar, and the gradients; none without any.
pub(super) fn norm_of(parameters: &[(String, Tensor)]) -> Result<Option<(Tensor, Vec<Tensor>)>, DeviceError> {
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
    let norm = norms(&gradients)?.f_norm().map_err(failed)?;
    Ok(Some((norm, gradients)))
}

pub(super) fn failed(error: TchError) -> DeviceError {
    DeviceError::from_tch("clip the gradient", &error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_rounding::gamma;
    use tch::Kind;

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
        // One that takes part in nothing.
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
}
