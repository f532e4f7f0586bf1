use tch::{Device, Kind, TchError, Tensor};

/// `values` as a tensor on `device`: a view of them on the host, else a copy. libtorch never writes to it, and it must not
/// outlive them.
pub(super) fn view<T>(values: &[T], shape: &[i64], kind: Kind, device: Device) -> Result<Tensor, TchError> {
    debug_assert_eq!(size_of_val(values), shape.iter().product::<i64>() as usize * kind.elt_size_in_bytes());
    let mut strides = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    // SAFETY: the memory holds as many elements as the shape says (checked by the callers' types: int64, int32, float32 and
    // bytes that are 0 or 1), and outlives the tensor, which the callers tie to the batch. Nothing writes through it.
    let host = unsafe { Tensor::f_from_blob(values.as_ptr().cast(), shape, &strides, kind, Device::Cpu) }?;
    if device == Device::Cpu { Ok(host) } else { host.f_to_device(device) }
}
