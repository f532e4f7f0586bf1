use expctl_dist::{DeviceEvent, DeviceStream, DistError, Pinned};
use tch::{Device, Kind, Tensor};

/// Copies page-locked batches to a GPU, on a stream of its own: the next batch comes while the device works on the last one.
#[derive(Debug)]
pub(crate) struct Feed {
    device: u32,
    copies: DeviceStream,
}

/// A batch that was sent.
#[derive(Debug)]
pub(super) struct Arrival {
    /// uint8, on the device.
    memory: Tensor,
    end: DeviceEvent,
    device: u32,
}

impl Feed {
    /// A feed of GPU `device`.
    pub fn new(device: u32) -> Result<Self, DistError> {
        Ok(Self { device, copies: DeviceStream::new(device)? })
    }

    /// Begin to copy the first `bytes` of `memory`; it must stay as it is until the device has come by [`Arrival::arrive`].
    pub(super) fn send(&self, memory: &Pinned, bytes: usize) -> Result<Arrival, DistError> {
        let copy = || {
            let part = memory.tensor().f_narrow(0, 0, bytes as i64)?;
            part.f_to_device_(Device::Cuda(self.device as usize), Kind::Uint8, true, true)
        };
        let scope = self.copies.enter()?;
        let memory = copy().map_err(|e| DistError::from_tch("copy a batch to the device", &e))?;
        drop(scope);
        let end = DeviceEvent::record(&self.copies)?;
        Ok(Arrival { memory, end, device: self.device })
    }
}

impl Arrival {
    /// The copy, for what this thread gives the device from here on; the device waits for its end, the host does not.
    pub(super) fn arrive(&self) -> Result<&Tensor, DistError> {
        let work = DeviceStream::current(self.device)?;
        self.end.hold_up(&work)?;
        work.uses(&self.memory)?;
        Ok(&self.memory)
    }
}
