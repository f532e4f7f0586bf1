use expctl_dist::scale;
use tch::{Kind, TchError, Tensor};

use super::clip::{EPSILON, failed, norm_of};
use crate::device::DeviceError;

/// What [`clip_there`] found; both are scalars on the device of the gradients.
#[derive(Debug)]
pub struct Clipped {
    /// Norm of all gradients together before, float32.
    pub norm: Tensor,
    /// float32: 1 where the norm is not finite, so that no step is to be made by these gradients, else 0.
    pub overflow: Tensor,
}

/// [`clip_grad_norm`](super::clip_grad_norm) without the host knowing what comes of it: the device is not waited for. Gradients whose
/// norm is not finite come to nothing of use. None without gradients.
///
/// # Errors
/// libtorch refuses.
pub fn clip_there(parameters: &[(String, Tensor)], max: f64) -> Result<Option<Clipped>, DeviceError> {
    tch::no_grad(|| {
        let Some((norm, mut gradients)) = norm_of(parameters)? else { return Ok(None) };
        scale(&mut gradients, &factor(&norm, max).map_err(failed)?)?;
        let overflow = overflow(&norm).map_err(failed)?;
        Ok(Some(Clipped { norm, overflow }))
    })
}

/// What gradients of this norm are multiplied by.
fn factor(norm: &Tensor, max: f64) -> Result<Tensor, TchError> {
    norm.f_add_scalar(EPSILON)?.f_reciprocal()?.f_mul_scalar(max)?.f_clamp_max(1.0)
}

/// 1 where the norm is not finite, else 0.
fn overflow(norm: &Tensor) -> Result<Tensor, TchError> {
    norm.f_isfinite()?.f_logical_not()?.f_to_kind(Kind::Float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::clip_grad_norm;
    use expctl_rounding::gamma;

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
            let clipped = clip_there(&there, max).unwrap().unwrap();
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
            let clipped = clip_there(&parameters([3.0, wrong]), 1.0).unwrap().unwrap();
            assert_eq!(clipped.overflow.double_value(&[]), 1.0);
        }
        assert!(clip_there(&[], 1.0).unwrap().is_none());
    }
}
