use expctl_record::trace_nanoseconds;
use serde_json::Value as Json;

/// A complete event of a trace (`"ph": "X"`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// What it is called.
    pub name: String,
    /// Its category, as Kineto names it: `cpu_op`, `user_annotation`, `kernel`, `gpu_memcpy`, …
    pub category: String,
    /// Process, or device.
    pub pid: i64,
    /// Thread, or stream.
    pub tid: i64,
    /// Start, ns since 1970.
    pub start: i64,
    /// End.
    pub end: i64,
    /// The step that it is for, where it says.
    pub step: Option<u64>,
    /// Bytes that it moved, where it says.
    pub bytes: Option<u64>,
}

impl Slice {
    /// Of an event whose times start at `base`; none for any other kind of event, and for one without its parts.
    pub fn of(event: &Json, base: i64) -> Option<Self> {
        if event["ph"] != "X" {
            return None;
        }
        let args = &event["args"];
        let start = base + nanoseconds(&event["ts"])?;
        Some(Self {
            name: event["name"].as_str()?.to_owned(),
            category: event["cat"].as_str().unwrap_or_default().to_owned(),
            pid: event["pid"].as_i64()?,
            tid: event["tid"].as_i64()?,
            start,
            end: start + nanoseconds(&event["dur"])?.max(0),
            step: args["step"].as_u64(),
            bytes: args["bytes"].as_u64().or_else(|| args["Bytes"].as_u64()),
        })
    }

    /// Length, ns.
    pub fn duration(&self) -> i64 {
        self.end - self.start
    }

    /// How much of it lies within `from..to`, ns.
    pub fn overlap(&self, from: i64, to: i64) -> i64 {
        (self.end.min(to) - self.start.max(from)).max(0)
    }

    /// Whether it is a range that the worker named.
    pub fn is_range(&self) -> bool {
        self.category == "user_annotation"
    }
}

/// Microseconds of the format as ns.
pub(super) fn nanoseconds(value: &Json) -> Option<i64> {
    let us = value.as_f64().filter(|us| us.is_finite())?;
    Some(trace_nanoseconds(us))
}

/// Length of the union of intervals, ns.
pub(super) fn union(intervals: impl IntoIterator<Item = (i64, i64)>) -> i64 {
    let mut sorted: Vec<(i64, i64)> = intervals.into_iter().collect();
    sorted.sort_unstable();
    let (mut total, mut covered) = (0, i64::MIN);
    for (start, end) in sorted {
        total += (end - start.max(covered)).max(0);
        covered = covered.max(end);
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_keep_their_nanoseconds() {
        let event = json!({"ph": "X", "name": "a", "pid": 1, "tid": 2, "ts": 7_776_000_000_000.123, "dur": 0.001, "args": {"step": 3}});
        let slice = Slice::of(&event, 1_000).unwrap();
        assert_eq!((slice.start, slice.duration(), slice.step), (7_776_000_000_001_123, 1, Some(3)));
        assert_eq!(slice.overlap(slice.start - 5, slice.end + 5), 1);
        assert_eq!(Slice::of(&json!({"ph": "i", "name": "a", "pid": 1, "tid": 2, "ts": 0.0}), 0), None);
        assert_eq!(
            Slice::of(&json!({"ph": "X", "name": "a", "pid": "Spans", "tid": 2, "ts": 0.0, "dur": 1.0}), 0),
            None
        );
    }

    #[test]
    fn a_union_counts_no_time_twice() {
        assert_eq!(union([(5, 8), (0, 6), (20, 30), (22, 25)]), 18);
        assert_eq!(union([]), 0);
    }
}
