//! Streams (`DeviceStream`), events (`DeviceEvent`) and page-locked memory (`PinnedMemory`) of GPUs. With them a batch is
//! copied to a GPU, and the work of the GPU timed, while the host goes on.

use cxx::UniquePtr;
use tch::Tensor;

use crate::DistError;
use crate::ffi::bridge;
use crate::group::address;

/// A stream of a GPU. Work of one stream runs in launch order, work of different streams in parallel.
pub struct DeviceStream(pub(crate) UniquePtr<bridge::StreamHandle>);

impl std::fmt::Debug for DeviceStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceStream").finish_non_exhaustive()
    }
}

impl DeviceStream {
    /// A stream of GPU `device` from libtorch's pool.
    ///
    /// # Errors
    /// The GPU does not exist, or CUDA is not loaded.
    pub fn new(device: u32) -> Result<Self, DistError> {
        bridge::open_stream(index(device)).map(Self).map_err(DistError::torch("open a stream"))
    }

    /// The current stream of this thread on GPU `device`.
    ///
    /// # Errors
    /// As with [`DeviceStream::new`].
    pub fn current(device: u32) -> Result<Self, DistError> {
        bridge::current_stream(index(device)).map(Self).map_err(DistError::torch("ask for the stream"))
    }

    /// Make this the current stream of the thread until the scope is dropped.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn enter(&self) -> Result<StreamScope, DistError> {
        bridge::enter_stream(&self.0)
            .map(|scope| StreamScope { _scope: scope })
            .map_err(DistError::torch("enter a stream"))
    }

    /// The memory of `tensor`, which was allocated on another stream, is used on this one as well: it is not reused before the work that the stream
    /// has now is done.
    ///
    /// # Errors
    /// The tensor is not on a GPU.
    pub fn record_tensor(&self, tensor: &Tensor) -> Result<(), DistError> {
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
    /// Record an event behind the work that `stream` has been given so far.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn record(stream: &DeviceStream) -> Result<Self, DistError> {
        let mut event = bridge::new_event().map_err(DistError::torch("make an event"))?;
        event.pin_mut().record(&stream.0).map_err(DistError::torch("record an event"))?;
        Ok(Self(event))
    }

    /// Work that `stream` is given from here on starts when the device has passed this point. The host does not wait.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn block(&self, stream: &DeviceStream) -> Result<(), DistError> {
        self.0.hold_up(&stream.0).map_err(DistError::torch("hold a stream up"))
    }

    /// Wait until the device has passed this point.
    ///
    /// # Errors
    /// The device has failed.
    pub fn synchronize(&self) -> Result<(), DistError> {
        self.0.wait().map_err(DistError::torch("wait for the device"))
    }

    /// Nanoseconds of the device's clock from this point to `later`, both passed; to half a microsecond.
    ///
    /// # Errors
    /// The device has not passed both points.
    pub fn elapsed_ns(&self, later: &Self) -> Result<u64, DistError> {
        let ms = self.0.ms_until(&later.0).map_err(DistError::torch("read an event"))?;
        Ok((ms.max(0.0) * 1e6).round() as u64)
    }
}

/// Page-locked memory of the host, of libtorch's pool: a device copies from it while the host goes on.
#[derive(Debug)]
pub struct PinnedMemory(Tensor);

impl PinnedMemory {
    /// `bytes` of memory, not initialised.
    ///
    /// # Errors
    /// There is no memory, or CUDA is not loaded.
    pub fn new(bytes: usize) -> Result<Self, DistError> {
        let memory = bridge::pinned(bytes as i64).map_err(DistError::torch("lock memory for a device"))?;
        // SAFETY: the bridge returns a new `at::Tensor` that nothing else refers to; tch deletes it.
        Ok(Self(unsafe { Tensor::from_ptr(memory as *mut _) }))
    }

    /// Size, bytes.
    pub fn len(&self) -> usize {
        self.0.numel()
    }

    /// Whether the size is 0.
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
