use tch::Tensor;

use super::gpu::{Mark, Memory, Stream};
use super::{DeviceError, Gpu};

/// Copies page-locked batches to a GPU, on a stream of its own: the next batch comes while the device works on the last one.
#[derive(Debug)]
pub(crate) struct Feed {
    gpu: Gpu,
    copies: Stream,
}

/// A batch that was sent.
#[derive(Debug)]
pub(super) struct Arrival {
    /// uint8, on the device.
    memory: Tensor,
    begin: Mark,
    end: Mark,
    gpu: Gpu,
}

impl Feed {
    /// A feed of `gpu`.
    pub fn new(gpu: Gpu) -> Result<Self, DeviceError> {
        Ok(Self { gpu, copies: Stream::new(gpu)? })
    }

    /// Begin to copy the first `bytes` of `memory`; it must stay as it is until the device has come by [`Arrival::arrive`].
    pub(super) fn send(&self, memory: &Memory, bytes: usize) -> Result<Arrival, DeviceError> {
        let begin = self.copies.mark()?;
        let scope = self.copies.enter()?;
        let memory = memory.copied_to(self.gpu.device(), bytes)?;
        drop(scope);
        let end = self.copies.mark()?;
        Ok(Arrival { memory, begin, end, gpu: self.gpu })
    }
}

impl Arrival {
    /// The copy, for what this thread gives the device from here on; the device waits for its end, the host does not.
    pub(super) fn arrive(&self) -> Result<&Tensor, DeviceError> {
        let work = Stream::current(self.gpu)?;
        self.end.hold_up(&work)?;
        work.uses(&self.memory)?;
        Ok(&self.memory)
    }

    /// Nanoseconds that the device copied, by its clock. To ask when it is done.
    pub(super) fn ns(&self) -> Result<u64, DeviceError> {
        self.begin.ns_until(&self.end)
    }
}
