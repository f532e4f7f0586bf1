//! Streams, events and page-locked memory of a GPU, and what is built on them: the timer of a step and the prefetcher of batches.

#[cfg(test)]
use std::time::Instant;

use expctl_ledger::{PerStage, Stage};
use tch::{Device, Kind, Tensor};
use torch_dist::{DeviceEvent, DeviceStream, PinnedMemory, StreamScope};

use crate::device::DeviceError;

/// The GPU that a rank computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// By libtorch's index.
    Cuda(u32),
    /// The host in the place of a GPU, whose work is done when it is launched: the GPU path of a step runs on every machine.
    #[cfg(test)]
    Host,
}

impl Gpu {
    /// The GPU that `device` is; `None` where it is the host.
    pub fn from_device(device: Device) -> Option<Self> {
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
enum Stream {
    Cuda(DeviceStream),
    #[cfg(test)]
    Host,
}

impl Stream {
    /// A new stream.
    fn new(gpu: Gpu) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(index) => Ok(Self::Cuda(DeviceStream::new(index)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Host),
        }
    }

    /// The stream that this thread's work goes to. For the step's thread that is libtorch's default stream, and has to be: the
    /// collectives of c10d's Gloo make the default stream of *their* thread wait for what they have reduced. A step on a stream of its
    /// own would read gradients that are not there yet.
    fn current(gpu: Gpu) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(index) => Ok(Self::Cuda(DeviceStream::current(index)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Host),
        }
    }

    /// Make this the current stream of the thread until the scope is dropped; `None` where the host stands in for a GPU.
    fn enter(&self) -> Result<Option<StreamScope>, DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(Some(stream.enter()?)),
            #[cfg(test)]
            Self::Host => Ok(None),
        }
    }

    /// Record an event behind the work that the stream has been given so far.
    fn record(&self) -> Result<Event, DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(Event::Cuda(DeviceEvent::record(stream)?)),
            #[cfg(test)]
            Self::Host => Ok(Event::Host(Instant::now())),
        }
    }

    /// The memory of `tensor`, which was allocated on another stream, is used on this one as well.
    fn record_tensor(&self, tensor: &Tensor) -> Result<(), DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(stream.record_tensor(tensor)?),
            #[cfg(test)]
            Self::Host => Ok(()),
        }
    }
}

/// A point in a stream, with the time at which the device passed it.
#[derive(Debug)]
enum Event {
    Cuda(DeviceEvent),
    #[cfg(test)]
    Host(Instant),
}

impl Event {
    /// Work that `stream` is given from here on starts when the device has passed this point. The host does not wait.
    fn block(&self, stream: &Stream) -> Result<(), DeviceError> {
        match (self, stream) {
            (Self::Cuda(event), Stream::Cuda(stream)) => Ok(event.block(stream)?),
            #[cfg(test)]
            _ => Ok(()),
        }
    }

    /// Wait until the device has passed this point.
    fn synchronize(&self) -> Result<(), DeviceError> {
        match self {
            Self::Cuda(event) => Ok(event.synchronize()?),
            #[cfg(test)]
            Self::Host(_) => Ok(()),
        }
    }

    /// Nanoseconds of the device's clock from this point to `later`, both passed.
    fn elapsed_ns(&self, later: &Self) -> Result<u64, DeviceError> {
        match (self, later) {
            (Self::Cuda(event), Self::Cuda(later)) => Ok(event.elapsed_ns(later)?),
            #[cfg(test)]
            (Self::Host(at), Self::Host(later)) => Ok(later.duration_since(*at).as_nanos() as u64),
            #[cfg(test)]
            _ => unreachable!("points of two devices"),
        }
    }
}

/// Memory of the host that a GPU copies from while the host goes on.
#[derive(Debug)]
pub enum StagingBuffer {
    Pinned(PinnedMemory),
    #[cfg(test)]
    Plain(Vec<u8>),
}

impl StagingBuffer {
    /// `bytes` of memory, not initialised.
    pub fn new(gpu: Gpu, bytes: usize) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(_) => Ok(Self::Pinned(PinnedMemory::new(bytes)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Plain(vec![0xEE; bytes])),
        }
    }

    /// Usable bytes.
    pub fn capacity(&self) -> usize {
        match self {
            Self::Pinned(memory) => memory.len(),
            #[cfg(test)]
            Self::Plain(memory) => memory.len(),
        }
    }

    /// Allocated bytes: libtorch locks memory in powers of two.
    ///
    /// Source: `PowerOf2Ceil` in ATen/core/CachingHostAllocator.h.
    pub fn allocated_bytes(&self) -> u64 {
        match self.capacity() {
            0 => 0,
            capacity => (capacity as u64).next_power_of_two(),
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

    /// A copy of the first `bytes` on `device`, uint8, on this thread's stream. The memory must not change until the device has made it.
    fn copy_to(&self, device: Device, bytes: usize) -> Result<Tensor, DeviceError> {
        let copy = match self {
            Self::Pinned(memory) => memory
                .tensor()
                .f_narrow(0, 0, bytes as i64)
                .and_then(|used| used.f_to_device_(device, Kind::Uint8, true, true)),
            #[cfg(test)]
            Self::Plain(memory) => Tensor::f_from_slice(&memory[..bytes]),
        };
        copy.map_err(|e| DeviceError::from_tch("copy a batch to the device", &e))
    }
}

/// Times the stages of a step on the device's stream: an event at each boundary.
#[derive(Debug)]
pub struct DeviceTimer {
    stream: Stream,
    start: Event,
    ends: Vec<(Stage, Event)>,
}

impl DeviceTimer {
    /// Start the first stage on `gpu`.
    pub fn start(gpu: Gpu) -> Result<Self, DeviceError> {
        let stream = Stream::current(gpu)?;
        let start = stream.record()?;
        Ok(Self { stream, start, ends: Vec::new() })
    }

    /// End a stage: the work launched since the last end belongs to `stage`.
    pub fn end_stage(&mut self, stage: Stage) -> Result<(), DeviceError> {
        self.ends.push((stage, self.stream.record()?));
        Ok(())
    }

    /// Wait until the device has passed the last end.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.ends.last().map_or(Ok(()), |(_, end)| end.synchronize())
    }

    /// Nanoseconds of each stage by the device's clock, the time in which the device waited for work included. To call when the device has
    /// passed the last end.
    pub fn times(&self) -> Result<PerStage<u64>, DeviceError> {
        let mut times = PerStage::default();
        let mut since = &self.start;
        for (stage, end) in &self.ends {
            times[*stage] += since.elapsed_ns(end)?;
            since = end;
        }
        Ok(times)
    }
}

/// Copies page-locked batches to a GPU on a stream of its own: the next batch is copied while the device works on the current one.
#[derive(Debug)]
pub struct Prefetcher {
    gpu: Gpu,
    stream: Stream,
}

/// A copy of a batch on the device, in flight or complete.
#[derive(Debug)]
pub struct DeviceCopy {
    /// uint8, on the device.
    memory: Tensor,
    begin: Event,
    end: Event,
    gpu: Gpu,
}

impl Prefetcher {
    /// A prefetcher for `gpu`.
    pub fn new(gpu: Gpu) -> Result<Self, DeviceError> {
        Ok(Self { gpu, stream: Stream::new(gpu)? })
    }

    /// Start to copy the first `bytes` of `buffer`, which must not change until the device has passed [`DeviceCopy::tensor`].
    pub fn copy(&self, buffer: &StagingBuffer, bytes: usize) -> Result<DeviceCopy, DeviceError> {
        let begin = self.stream.record()?;
        let scope = self.stream.enter()?;
        let memory = buffer.copy_to(self.gpu.device(), bytes)?;
        drop(scope);
        let end = self.stream.record()?;
        Ok(DeviceCopy { memory, begin, end, gpu: self.gpu })
    }
}

impl DeviceCopy {
    /// The copy, for work that this thread launches from here on; the device waits for the end of the copy, the host does not.
    pub fn tensor(&self) -> Result<&Tensor, DeviceError> {
        let current = Stream::current(self.gpu)?;
        self.end.block(&current)?;
        current.record_tensor(&self.memory)?;
        Ok(&self.memory)
    }

    /// Nanoseconds that the copy took by the device's clock. To call when it is complete.
    pub fn ns(&self) -> Result<u64, DeviceError> {
        self.begin.elapsed_ns(&self.end)
    }
}
