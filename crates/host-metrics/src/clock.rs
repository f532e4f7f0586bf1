use std::time::Instant;

/// The monotonic clock of the node, ns: the one behind [`Instant`], and behind Python's `perf_counter_ns`.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value that lives as long as the call, and this clock is on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What the clock said at a moment that has passed.
pub(crate) fn at(moment: Instant) -> u64 {
    now().saturating_sub(moment.elapsed().as_nanos() as u64)
}
