use tch::kind::Element;
use tch::{Device, Kind, TchError, Tensor};

/// Where the numbers of a batch become tensors. Invariant: a batch asks for its parts in the same order each time, so that one pass can
/// copy what another one finds.
pub trait Place {
    /// The numbers in `bytes`, of `kind`, as a tensor of `shape`. libtorch never writes to it, and it must not outlive them.
    ///
    /// # Errors
    /// There is no room.
    fn place(&mut self, bytes: &[u8], shape: &[i64], kind: Kind) -> Result<Tensor, TchError>;
}

/// The numbers in `values`, of `kind`, as a tensor of `shape`.
pub(super) fn placed<T: Copy>(
    place: &mut dyn Place,
    values: &[T],
    shape: &[i64],
    kind: Kind,
) -> Result<Tensor, TchError> {
    debug_assert_eq!(size_of_val(values), shape.iter().product::<i64>() as usize * kind.elt_size_in_bytes());
    // SAFETY: any memory can be seen as bytes; numbers have no padding.
    let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
    place.place(bytes, shape, kind)
}

/// A view where the device is the host, else a copy that the host waits for.
#[derive(Debug)]
pub struct Direct {
    device: Device,
    /// Bytes copied so far.
    pub copied: u64,
}

impl Direct {
    /// On `device`.
    pub fn to(device: Device) -> Self {
        Self { device, copied: 0 }
    }
}

impl Place for Direct {
    fn place(&mut self, bytes: &[u8], shape: &[i64], kind: Kind) -> Result<Tensor, TchError> {
        let mut strides = vec![1i64; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i];
        }
        // SAFETY: the memory holds as many elements as the shape says (checked by the callers' types: int64, int32, float32 and
        // bytes that are 0 or 1), and outlives the tensor, which the callers tie to the batch. Nothing writes through it.
        let host = unsafe { Tensor::f_from_blob(bytes.as_ptr().cast(), shape, &strides, kind, Device::Cpu) }?;
        if self.device == Device::Cpu {
            return Ok(host);
        }
        self.copied += bytes.len() as u64;
        host.f_to_device(self.device)
    }
}

/// `values` on `device`, for good: a GPU fetches them from page-locked memory, and the host goes on.
pub(crate) fn sent<T: Element>(values: &[T], device: Device) -> Result<Tensor, TchError> {
    let host = Tensor::f_from_slice(values)?;
    if device == Device::Cpu {
        return Ok(host);
    }
    host.f_pin_memory(device)?.f_to_device_(device, host.kind(), true, true)
}
