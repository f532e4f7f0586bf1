use std::time::Instant;

/// How often clocks are read together; the readings that lie closest together count.
const TRIES: usize = 16;

/// A clock of the system, in ns.
fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `time` alone. It fails for clocks that do not exist only, and leaves zeros then.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// `CLOCK_MONOTONIC`, ns.
pub(super) fn monotonic() -> i64 {
    read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME`, ns since 1970.
pub(super) fn realtime() -> i64 {
    read(libc::CLOCK_REALTIME)
}

/// The two clocks at one moment: those of libtorch's profiler and of all other times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockPair {
    /// `CLOCK_REALTIME`, ns.
    pub(super) realtime: i64,
    /// `CLOCK_MONOTONIC`, ns.
    pub(super) monotonic: i64,
    /// Between the readings around it, ns.
    pub(super) width: i64,
}

impl ClockPair {
    /// Read both now.
    pub(super) fn now() -> Self {
        let (realtime, monotonic, width) = between(realtime);
        Self { realtime, monotonic, width }
    }

    /// `CLOCK_REALTIME` at a time of `CLOCK_MONOTONIC`, if nobody sets the clock meanwhile: both run at the same rate.
    pub(super) fn realtime_of(&self, monotonic: i64) -> i64 {
        self.realtime + (monotonic - self.monotonic)
    }

    /// By how much the clocks have run apart since `earlier`, ns.
    pub(super) fn drift_since(&self, earlier: &Self) -> i64 {
        self.realtime - earlier.realtime_of(self.monotonic)
    }
}

/// `CLOCK_MONOTONIC` at `instant`, ns.
pub(super) fn monotonic_of(instant: Instant) -> i64 {
    let elapsed = || i64::try_from(instant.elapsed().as_nanos()).unwrap_or(i64::MAX);
    let (elapsed, monotonic, _) = between(elapsed);
    monotonic - elapsed
}

/// What `look` says, with the monotonic time in the middle and the width of the readings around it.
fn between(look: impl Fn() -> i64) -> (i64, i64, i64) {
    let mut best = (0, 0, i64::MAX);
    for _ in 0..TRIES {
        let before = monotonic();
        let seen = look();
        let after = monotonic();
        if after - before < best.2 {
            best = (seen, before + (after - before) / 2, after - before);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clocks_are_read_together() {
        let pair = ClockPair::now();
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        let (later, start) = (ClockPair::now(), monotonic_of(before));
        assert!(pair.width >= 0 && later.monotonic - pair.monotonic >= 5_000_000);
        assert!((pair.monotonic - pair.width..=later.monotonic - 5_000_000 + later.width).contains(&start));
        assert_eq!(pair.realtime_of(pair.monotonic + 7), pair.realtime + 7);
        let set = ClockPair { realtime: later.realtime + 1_000_000_000, ..later };
        assert_eq!(set.drift_since(&pair) - later.drift_since(&pair), 1_000_000_000);
    }
}
