use std::time::Instant;

use expctl_dist::Range;
use expctl_record::Stage;

use super::StepResult;
use super::TrainError;
use crate::device::DeviceLaps;

/// A stopwatch of adjacent laps, each a range of the profiler that may be running, and of the device's stream where there is one.
pub(super) struct Clock {
    since: Instant,
    stage: Stage,
    range: Option<Range>,
    laps: Option<DeviceLaps>,
}

impl Clock {
    /// The first lap begins, which is of `stage`.
    pub(super) fn start(stage: Stage, laps: Option<DeviceLaps>) -> Self {
        Self { since: Instant::now(), stage, range: Some(Range::open(stage.name())), laps }
    }

    /// The lap that has begun is of `stage`.
    pub(super) fn enter(&mut self, stage: Stage) {
        // One ends before the next begins: ranges nest.
        self.range = None;
        self.range = Some(Range::open(stage.name()));
        self.stage = stage;
    }

    /// Add the time since the start or the last lap to its stage in `result`: busy, and where the device is the host exposed. Returns
    /// the nanoseconds; the next lap begins.
    pub(super) fn lap(&mut self, result: &mut StepResult) -> Result<u64, TrainError> {
        self.range = None;
        if let Some(laps) = &mut self.laps {
            laps.lap(self.stage)?;
        }
        let now = Instant::now();
        let ns = now.duration_since(self.since).as_nanos() as u64;
        self.since = now;
        result.add(self.stage, ns, self.laps.is_none());
        Ok(ns)
    }

    /// The laps of the device; none where it is the host.
    pub(super) fn into_laps(self) -> Option<DeviceLaps> {
        self.laps
    }
}
