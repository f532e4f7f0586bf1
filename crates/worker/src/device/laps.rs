use expctl_record::{PerStage, Stage};

use super::gpu::{Mark, Stream};
use super::{DeviceError, Gpu};

/// The stages of a step on its device's stream: an event at each boundary.
#[derive(Debug)]
pub(crate) struct DeviceLaps {
    stream: Stream,
    start: Mark,
    ends: Vec<(Stage, Mark)>,
}

impl DeviceLaps {
    /// The first stage begins on `gpu`.
    pub fn start(gpu: Gpu) -> Result<Self, DeviceError> {
        let stream = Stream::current(gpu)?;
        let start = stream.mark()?;
        Ok(Self { stream, start, ends: Vec::new() })
    }

    /// What the device was given since the last lap is of `stage`.
    pub fn lap(&mut self, stage: Stage) -> Result<(), DeviceError> {
        self.ends.push((stage, self.stream.mark()?));
        Ok(())
    }

    /// Wait until the device has done all of it.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.ends.last().map_or(Ok(()), |(_, end)| end.wait())
    }

    /// Nanoseconds of each stage by the device's clock, time that it waited for work included. To ask when it is done.
    pub fn times(&self) -> Result<PerStage<u64>, DeviceError> {
        let mut times = PerStage::default();
        let mut since = &self.start;
        for (stage, end) in &self.ends {
            times[*stage] += since.ns_until(end)?;
            since = end;
        }
        Ok(times)
    }
}
