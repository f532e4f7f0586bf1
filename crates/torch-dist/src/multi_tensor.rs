use tch::Tensor;

use crate::DistError;
use crate::ffi::bridge;
use crate::group::address;

/// Euclidean norm of each of `tensors`, as one vector on their device: on a GPU a few kernels, however many tensors there are. At least
/// one tensor, all of one type and device.
///
/// # Errors
/// There are none, or they are of two types or devices.
pub fn norms(tensors: &[Tensor]) -> Result<Tensor, DistError> {
    let addresses: Vec<usize> = tensors.iter().map(address).collect();
    let found = bridge::norms(&addresses).map_err(DistError::torch("take norms"))?;
    // SAFETY: the bridge returns a new `at::Tensor` that nothing else refers to; tch deletes it.
    Ok(unsafe { Tensor::from_ptr(found as *mut _) })
}

/// Multiply each of `tensors`, in place, by `factor`, a scalar on their device, which the host need not know.
///
/// # Errors
/// Types or devices do not fit.
pub fn scale(tensors: &mut [Tensor], factor: &Tensor) -> Result<(), DistError> {
    let addresses: Vec<usize> = tensors.iter().map(address).collect();
    bridge::scale(&addresses, address(factor)).map_err(DistError::torch("scale tensors"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_taken_each_by_itself() {
        let mut tensors = [Tensor::from_slice(&[3f32, 4.0]), Tensor::from_slice(&[[2f32; 2]; 2].concat()).view([2, 2])];
        assert_eq!(Vec::<f32>::try_from(norms(&tensors).unwrap()).unwrap(), [5.0, 4.0]);
        scale(&mut tensors, &Tensor::from(0.5f32)).unwrap();
        assert_eq!(Vec::<f32>::try_from(&tensors[0]).unwrap(), [1.5, 2.0]);
        assert_eq!(Vec::<f32>::try_from(tensors[1].flatten(0, -1)).unwrap(), [1.0; 4]);
        assert!(norms(&[]).is_err());
        assert!(scale(&mut tensors, &Tensor::from_slice(&[1f32, 2.0])).is_err(), "no scalar");
    }
}
