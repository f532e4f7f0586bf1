use std::time::Instant;

use expctl_dist::Range;
use expctl_record::Stage;

/// A stopwatch of adjacent laps, each a range of the profiler that may be running.
pub(super) struct Clock {
    since: Instant,
    range: Option<Range>,
}

impl Clock {
    /// The first lap begins, which is of `stage`.
    pub(super) fn start(stage: Stage) -> Self {
        Self { since: Instant::now(), range: Some(Range::open(stage.name())) }
    }

    /// The lap that has begun is of `stage`.
    pub(super) fn enter(&mut self, stage: Stage) {
        // One ends before the next begins: ranges nest.
        self.range = None;
        self.range = Some(Range::open(stage.name()));
    }

    /// Nanoseconds since the start or the last lap; the next one begins.
    pub(super) fn lap(&mut self) -> u64 {
        self.range = None;
        let now = Instant::now();
        let ns = now.duration_since(self.since).as_nanos() as u64;
        self.since = now;
        ns
    }
}
