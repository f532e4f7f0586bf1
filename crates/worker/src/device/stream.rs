#[cfg(test)]
use std::time::Instant;

use expctl_dist::{DeviceEvent, DeviceStream, Pinned, StreamScope};
use tch::{Device, Kind, Tensor};

use super::DeviceError;

/// The GPU that a rank computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpu {
    /// By libtorch's number.
    Cuda(u32),
    /// The host in its place, whose work is done when it is handed over: what a step does for a GPU runs on every machine.
    #[cfg(test)]
    Host,
}

impl Gpu {
    /// The GPU that `device` is; none where it is the host.
    pub fn of(device: Device) -> Option<Self> {
        match device {
            Device::Cuda(index) => Some(Self::Cuda(index as u32)),
            _ => None,
        }
    }

    /// The device of its tensors.
    pub fn device(self) -> Device {
        match self {
            Self::Cuda(index) => Device::Cuda(index as usize),
            #[cfg(test)]
            Self::Host => Device::Cpu,
        }
    }
}

/// A stream of a GPU.
#[derive(Debug)]
pub(super) enum Stream {
    Cuda(DeviceStream),
    #[cfg(test)]
    Host,
}

impl Stream {
    /// One more stream.
    pub fn new(gpu: Gpu) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(index) => Ok(Self::Cuda(DeviceStream::new(index)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Host),
        }
    }

    /// The stream that this thread's work goes to. Of the step's thread that is libtorch's default stream, and has to be: the
    /// collectives of c10d's Gloo make the default stream of *their* thread wait for what they have reduced. A step on a stream of its own
    /// would read gradients that are not there yet.
    pub fn current(gpu: Gpu) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(index) => Ok(Self::Cuda(DeviceStream::current(index)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Host),
        }
    }

    /// This thread's work goes to the stream until what is returned is dropped; none where the host is in the place of a GPU.
    pub fn enter(&self) -> Result<Option<StreamScope>, DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(Some(stream.enter()?)),
            #[cfg(test)]
            Self::Host => Ok(None),
        }
    }

    /// The end of what the stream has been given so far.
    pub fn mark(&self) -> Result<Mark, DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(Mark::Cuda(DeviceEvent::record(stream)?)),
            #[cfg(test)]
            Self::Host => Ok(Mark::Host(Instant::now())),
        }
    }

    /// The memory of `tensor`, which was made on another stream, is used on this one as well.
    pub fn uses(&self, tensor: &Tensor) -> Result<(), DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(stream.uses(tensor)?),
            #[cfg(test)]
            Self::Host => Ok(()),
        }
    }
}

/// A point in a stream, with the time at which the device passed it.
#[derive(Debug)]
pub(super) enum Mark {
    Cuda(DeviceEvent),
    #[cfg(test)]
    Host(Instant),
}

impl Mark {
    /// What `stream` is given from here on starts when the device has passed this point. The host does not wait.
    pub fn hold_up(&self, stream: &Stream) -> Result<(), DeviceError> {
        match (self, stream) {
            (Self::Cuda(event), Stream::Cuda(stream)) => Ok(event.hold_up(stream)?),
            #[cfg(test)]
            _ => Ok(()),
        }
    }

    /// Wait until the device has passed this point.
    pub fn wait(&self) -> Result<(), DeviceError> {
        match self {
            Self::Cuda(event) => Ok(event.wait()?),
            #[cfg(test)]
            Self::Host(_) => Ok(()),
        }
    }

    /// Nanoseconds of the device's clock from this point to `later`, both passed.
    pub fn ns_until(&self, later: &Self) -> Result<u64, DeviceError> {
        match (self, later) {
            (Self::Cuda(event), Self::Cuda(later)) => Ok(event.ns_until(later)?),
            #[cfg(test)]
            (Self::Host(at), Self::Host(later)) => Ok(later.duration_since(*at).as_nanos() as u64),
            #[cfg(test)]
            _ => unreachable!("points of two devices"),
        }
    }
}

/// Memory of the host that a GPU copies from while the host goes on.
#[derive(Debug)]
pub(super) enum Memory {
    Pinned(Pinned),
    #[cfg(test)]
    Plain(Vec<u8>),
}

impl Memory {
    /// `bytes` of it, with anything in them.
    pub fn new(gpu: Gpu, bytes: usize) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(_) => Ok(Self::Pinned(Pinned::new(bytes)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Plain(vec![0xEE; bytes])),
        }
    }

    /// Bytes that can be used.
    pub fn room(&self) -> usize {
        match self {
            Self::Pinned(memory) => memory.len(),
            #[cfg(test)]
            Self::Plain(memory) => memory.len(),
        }
    }

    /// Bytes that it takes: libtorch locks memory in powers of two.
    ///
    /// Source: `PowerOf2Ceil` in ATen/core/CachingHostAllocator.h.
    pub fn taken(&self) -> u64 {
        match self.room() {
            0 => 0,
            room => (room as u64).next_power_of_two(),
        }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(memory) => memory.bytes_mut(),
            #[cfg(test)]
            Self::Plain(memory) => memory.as_mut_slice(),
        }
    }

    /// A copy of the first `bytes` on `device`, uint8, on this thread's stream. The memory has to stay as it is until the device has made it.
    pub fn copied_to(&self, device: Device, bytes: usize) -> Result<Tensor, DeviceError> {
        let copy = match self {
            Self::Pinned(memory) => memory
                .tensor()
                .f_narrow(0, 0, bytes as i64)
                .and_then(|part| part.f_to_device_(device, Kind::Uint8, true, true)),
            #[cfg(test)]
            Self::Plain(memory) => Tensor::f_from_slice(&memory[..bytes]),
        };
        copy.map_err(|e| DeviceError::from_tch("copy a batch to the device", &e))
    }
}
