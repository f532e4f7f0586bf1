use cxx::UniquePtr;
use tch::Tensor;

use crate::DistError;
use crate::ffi::bridge;
use crate::group::address;

/// A stream of a GPU. Work of one stream is done in the order in which it was handed over, work of two beside each other.
pub struct DeviceStream(pub(crate) UniquePtr<bridge::StreamHandle>);

impl std::fmt::Debug for DeviceStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceStream").finish_non_exhaustive()
    }
}

impl DeviceStream {
    /// One more stream of GPU `device`, out of libtorch's pool.
    ///
    /// # Errors
    /// There is no such GPU, or no CUDA in this process.
    pub fn new(device: u32) -> Result<Self, DistError> {
        bridge::open_stream(index(device)).map(Self).map_err(DistError::torch("open a stream"))
    }

    /// The stream that this thread's work for GPU `device` goes to.
    ///
    /// # Errors
    /// As with [`DeviceStream::new`].
    pub fn current(device: u32) -> Result<Self, DistError> {
        bridge::current_stream(index(device)).map(Self).map_err(DistError::torch("ask for the stream"))
    }

    /// This thread's work goes to the stream until what is returned is dropped.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn enter(&self) -> Result<StreamScope, DistError> {
        bridge::enter_stream(&self.0)
            .map(|scope| StreamScope { _scope: scope })
            .map_err(DistError::torch("enter a stream"))
    }

    /// The memory of `tensor`, which was made on another stream, is used on this one as well: it is not given out again before
    /// what the stream has now is done.
    ///
    /// # Errors
    /// The tensor is not on a GPU.
    pub fn uses(&self, tensor: &Tensor) -> Result<(), DistError> {
        bridge::used_on(address(tensor), &self.0).map_err(DistError::torch("share memory of a device"))
    }
}

/// See [`DeviceStream::enter`]. It belongs to its thread.
pub struct StreamScope {
    _scope: UniquePtr<bridge::StreamScopeHandle>,
}

impl std::fmt::Debug for StreamScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamScope").finish_non_exhaustive()
    }
}

/// A point in a stream, with the time at which the device passed it.
pub struct DeviceEvent(UniquePtr<bridge::EventHandle>);

impl std::fmt::Debug for DeviceEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceEvent").finish_non_exhaustive()
    }
}

impl DeviceEvent {
    /// The end of what `stream` has been given so far.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn record(stream: &DeviceStream) -> Result<Self, DistError> {
        let mut event = bridge::new_event().map_err(DistError::torch("make an event"))?;
        event.pin_mut().record(&stream.0).map_err(DistError::torch("record an event"))?;
        Ok(Self(event))
    }

    /// What `stream` is given from here on starts when the device has passed this point. The host does not wait.
    ///
    /// # Errors
    /// libtorch refuses.
    pub fn hold_up(&self, stream: &DeviceStream) -> Result<(), DistError> {
        self.0.hold_up(&stream.0).map_err(DistError::torch("hold a stream up"))
    }

    /// Wait until the device has passed this point.
    ///
    /// # Errors
    /// What went wrong on the device meanwhile.
    pub fn wait(&self) -> Result<(), DistError> {
        self.0.wait().map_err(DistError::torch("wait for the device"))
    }

    /// Nanoseconds of the device's clock from this point to `later`, both passed; to half a microsecond.
    ///
    /// # Errors
    /// The device has not come so far.
    pub fn ns_until(&self, later: &Self) -> Result<u64, DistError> {
        let ms = self.0.ms_until(&later.0).map_err(DistError::torch("read an event"))?;
        Ok((ms.max(0.0) * 1e6).round() as u64)
    }
}

/// Page-locked memory of the host, of libtorch's pool: a device copies from it while the host goes on.
#[derive(Debug)]
pub struct Pinned(Tensor);

impl Pinned {
    /// `bytes` of it, with anything in them.
    ///
    /// # Errors
    /// There is no memory, or no CUDA in this process.
    pub fn new(bytes: usize) -> Result<Self, DistError> {
        let memory = bridge::pinned(bytes as i64).map_err(DistError::torch("lock memory for a device"))?;
        // SAFETY: the bridge returns a new `at::Tensor` that nothing else refers to; tch deletes it.
        Ok(Self(unsafe { Tensor::from_ptr(memory as *mut _) }))
    }

    /// Size.
    pub fn len(&self) -> usize {
        self.0.numel()
    }

    /// Whether there is none of it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: contiguous uint8 of that many elements, and this is the only way to it while it is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.0.data_ptr().cast(), self.len()) }
    }

    /// The bytes as a tensor, uint8 `[len]`.
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }
}

fn index(device: u32) -> i32 {
    i32::try_from(device).unwrap_or(-1)
}
