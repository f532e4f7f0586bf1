use expctl_dist::{DeviceEvent, DeviceStream, DistError};
use expctl_record::{PerStage, Stage};

/// The stages of a step on its device's stream: an event at each boundary.
#[derive(Debug)]
pub(crate) struct DeviceLaps {
    stream: DeviceStream,
    start: DeviceEvent,
    ends: Vec<(Stage, DeviceEvent)>,
}

impl DeviceLaps {
    /// The first stage begins on GPU `device`.
    pub fn start(device: u32) -> Result<Self, DistError> {
        let stream = DeviceStream::current(device)?;
        let start = DeviceEvent::record(&stream)?;
        Ok(Self { stream, start, ends: Vec::new() })
    }

    /// What the device was given since the last lap is of `stage`.
    pub fn lap(&mut self, stage: Stage) -> Result<(), DistError> {
        self.ends.push((stage, DeviceEvent::record(&self.stream)?));
        Ok(())
    }

    /// Wait until the device has done all of it.
    pub fn wait(&self) -> Result<(), DistError> {
        self.ends.last().map_or(Ok(()), |(_, end)| end.wait())
    }

    /// Nanoseconds of each stage by the device's clock, time that it waited for work included. To ask when it is done.
    pub fn times(&self) -> Result<PerStage<u64>, DistError> {
        let mut times = PerStage::default();
        let mut since = &self.start;
        for (stage, end) in &self.ends {
            times[*stage] += since.ns_until(end)?;
            since = end;
        }
        Ok(times)
    }
}
