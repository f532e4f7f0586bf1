//! What a rank adds to the trace that libtorch's profiler writes: `TraceMeta`, from which the traces of all ranks get one clock, and the rows of
//! loader threads, buckets and collectives. Times in a trace are microseconds with three decimals; all else is in ns.

use expctl_settings::ProfileWindow;
use serde::{Deserialize, Serialize};

/// Version of [`TraceMeta`] and of the rows that a rank adds to its trace.
pub const TRACE_SCHEMA_VERSION: u32 = 1;

/// Value of the key `expctl` in `trace-<rank>-<cycle>.json.gz`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceMeta {
    /// [`TRACE_SCHEMA_VERSION`].
    pub schema: u32,
    /// Id of the trial.
    pub trial: String,
    /// The rank.
    pub rank: u32,
    /// Number of ranks of the trial.
    pub world_size: u32,
    /// Host that the rank ran on.
    pub host: String,
    /// The recorded steps.
    pub window: ProfileWindow,
    /// Number of the process in events (`pid`). Other numbers there are those of devices.
    pub pid: i64,
    /// Number of the thread of the steps in events (`tid`).
    pub step_thread: i64,
    /// Relation of the rank's clock to that of rank 0.
    pub clock: TraceClock,
}

/// The clock of a trace: times are `CLOCK_REALTIME` of the rank's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceClock {
    /// `CLOCK_REALTIME`, ns since 1970, read together with `monotonic_ns`. Loader threads and buckets are timed by the latter.
    pub realtime_ns: i64,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: i64,
    /// Time between the two readings around it, ns; the error of the pair is at most half of it.
    pub pair_uncertainty_ns: i64,
    /// Drift of `CLOCK_REALTIME` against `CLOCK_MONOTONIC` at the end of the window, ns; more than some µs mean that the clock was set.
    pub drift_ns: i64,
    /// Offset to add to times of this rank to get those of rank 0, ns.
    pub offset_ns: i64,
    /// Maximum error of the offset, ns; 0 on the machine of rank 0.
    pub offset_uncertainty_ns: i64,
    /// Id of the boot of the rank's machine (`/proc/sys/kernel/random/boot_id`); empty if it cannot be read.
    pub boot_id: String,
}

/// Rows that a rank adds to its trace. Real threads have smaller numbers: the limit of `/proc/sys/kernel/pid_max` is 2²².
pub mod trace_rows {
    /// Loader thread 0; thread i is `LOADER + i`.
    pub const LOADER: i64 = 5_000_000;
    /// The loader of a rank without loader threads.
    pub const OWN_LOADER: i64 = 5_100_000;
    /// Gradient buckets in flight; overlapping ones are on further rows.
    pub const BUCKETS: i64 = 5_200_000;
    /// Collectives of the process group.
    pub const COLLECTIVES: i64 = 5_300_000;

    /// Category of a loader thread's work on a stage.
    pub const LOADER_CATEGORY: &str = "loader";
    /// Category of a loader thread's wait for another thread's work on a stage.
    pub const LOADER_WAIT_CATEGORY: &str = "loader_wait";
    /// Category of an operation inside a loader thread's work on a stage.
    pub const LOADER_OPERATION_CATEGORY: &str = "loader_operation";
    /// Category of a bucket, from its submission until it is reduced.
    pub const BUCKET_CATEGORY: &str = "bucket";
    /// Name of the range in which a step waits for its batch.
    pub const LOAD: &str = "load";
}

/// Nanoseconds of a time in the trace format, which is microseconds with three decimals. Kineto counts from a base up to three months back.
/// The float is then the closest one to its three decimals, but its product with 1000 is not exact.
pub fn trace_nanoseconds(us: f64) -> i64 {
    let whole = us.trunc();
    whole as i64 * 1000 + ((us - whole) * 1000.0).round() as i64
}

/// Time in the trace format for nanoseconds, exact up to a hundred days.
pub fn trace_microseconds(ns: i64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_survive_three_months_of_microseconds() {
        // 52 and 91 days.
        for base in [0, 4_500_806_003_899_000, 7_889_237_999_999_000] {
            for ns in base..base + 3000 {
                assert_eq!(trace_nanoseconds(trace_microseconds(ns)), ns);
                let text = format!("{}.{:03}", ns / 1000, ns % 1000);
                assert_eq!(trace_nanoseconds(text.parse().unwrap()), ns);
            }
        }
        assert_eq!(trace_nanoseconds(-1.5), -1500);
    }
}
