//! Complete events of a trace, and their nesting on one thread.

use expctl_ledger::{Stage, trace_nanoseconds};
use serde_json::Value as Json;

/// A complete event of a trace (`"ph": "X"`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its name.
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
    /// The step that it is for, if the event names one.
    pub step: Option<u64>,
    /// Bytes that it moved, if the event names them.
    pub bytes: Option<u64>,
}

impl Slice {
    /// Parse an event whose times start at `base`, ns since 1970; `None` for other kinds of events, and for one that lacks a field.
    pub fn from_event(event: &Json, base: i64) -> Option<Self> {
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

    /// Number of the step, if this is the range of a step.
    pub fn step_of_range(&self) -> Option<u64> {
        if self.is_range() { step_number(&self.name) } else { None }
    }

    /// The stage, if this is the range of a stage.
    pub fn stage_of_range(&self) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| self.is_range() && stage.name() == self.name)
    }

    /// Whether it is a kernel, copy or fill of a device.
    pub fn is_device_work(&self) -> bool {
        matches!(self.category.as_str(), "kernel" | "gpu_memcpy" | "gpu_memset")
    }
}

/// Number of the step whose range has this name: `step 12`.
pub fn step_number(name: &str) -> Option<u64> {
    name.strip_prefix("step ")?.parse().ok()
}

/// Microseconds of the trace format as ns.
pub fn nanoseconds(value: &Json) -> Option<i64> {
    let us = value.as_f64().filter(|us| us.is_finite())?;
    Some(trace_nanoseconds(us))
}

/// Length of the union of intervals, ns.
pub fn union(intervals: impl IntoIterator<Item = (i64, i64)>) -> i64 {
    let mut sorted: Vec<(i64, i64)> = intervals.into_iter().collect();
    sorted.sort_unstable();
    let (mut total, mut covered) = (0, i64::MIN);
    for (start, end) in sorted {
        total += (end - start.max(covered)).max(0);
        covered = covered.max(end);
    }
    total
}

/// The slices of one thread as trees: each with the slice that encloses it.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    /// The slices in the order of their starts, the longer first.
    pub slices: Vec<Slice>,
    /// Index of the innermost slice that encloses each.
    pub parent: Vec<Option<usize>>,
    /// Time of each minus that of its children, ns.
    pub own: Vec<i64>,
    /// Slices that begin in another and end after it: they run beside their thread and have no parent.
    pub beside: Vec<Slice>,
}

/// Nest the slices of one thread by their times.
pub fn nest(mut slices: Vec<Slice>) -> Forest {
    slices.sort_by_key(|slice| (slice.start, -slice.end));
    let mut forest = Forest::default();
    let mut open: Vec<usize> = Vec::new();
    for slice in slices {
        while open.last().is_some_and(|last| forest.slices[*last].end <= slice.start) {
            open.pop();
        }
        let parent = open.last().copied();
        if parent.is_some_and(|parent| slice.end > forest.slices[parent].end) {
            forest.beside.push(slice);
            continue;
        }
        if let Some(parent) = parent {
            forest.own[parent] -= slice.duration();
        }
        open.push(forest.slices.len());
        forest.own.push(slice.duration());
        forest.parent.push(parent);
        forest.slices.push(slice);
    }
    forest
}

impl Forest {
    /// Children of a slice, in order of time.
    pub fn children(&self, of: usize) -> impl Iterator<Item = (usize, &Slice)> {
        // Children follow their parent, before anything that begins after its end.
        let end = self.slices[of].end;
        let behind = self.slices.iter().enumerate().skip(of + 1).take_while(move |(_, slice)| slice.start < end);
        behind.filter(move |(i, _)| self.parent[*i] == Some(of))
    }

    /// The slices that enclose one, the innermost first.
    pub fn ancestors(&self, of: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.parent[of], |at| self.parent[*at])
    }

    /// The innermost slice around a moment (ns since 1970).
    pub fn at(&self, moment: i64) -> Option<usize> {
        let mut best = None;
        let behind = self.slices.partition_point(|slice| slice.start <= moment);
        let mut at = behind.checked_sub(1);
        while let Some(i) = at {
            if self.slices[i].end > moment {
                best = Some(i);
                break;
            }
            // Any other slice that is open at that moment encloses this one.
            at = match self.parent[i] {
                Some(parent) => Some(parent),
                None => break,
            };
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_keep_their_nanoseconds() {
        let event = json!({"ph": "X", "name": "a", "pid": 1, "tid": 2, "ts": 7_776_000_000_000.123, "dur": 0.001, "args": {"step": 3}});
        let slice = Slice::from_event(&event, 1_000).unwrap();
        assert_eq!((slice.start, slice.duration(), slice.step), (7_776_000_000_001_123, 1, Some(3)));
        assert_eq!(slice.overlap(slice.start - 5, slice.end + 5), 1);
        assert_eq!(Slice::from_event(&json!({"ph": "i", "name": "a", "pid": 1, "tid": 2, "ts": 0.0}), 0), None);
        assert_eq!(
            Slice::from_event(&json!({"ph": "X", "name": "a", "pid": "Spans", "tid": 2, "ts": 0.0, "dur": 1.0}), 0),
            None
        );
    }

    #[test]
    fn a_union_counts_no_time_twice() {
        assert_eq!(union([(5, 8), (0, 6), (20, 30), (22, 25)]), 18);
        assert_eq!(union([]), 0);
    }

    fn slice(name: &str, start: i64, end: i64) -> Slice {
        Slice {
            name: name.to_owned(),
            category: "cpu_op".to_owned(),
            pid: 1,
            tid: 1,
            start,
            end,
            step: None,
            bytes: None,
        }
    }

    #[test]
    fn own_time_is_what_no_child_takes() {
        let forest = nest(vec![
            slice("inner", 12, 15),
            slice("outer", 0, 100),
            slice("second", 50, 60),
            slice("first", 10, 20),
            // At the same time as its parent, and as long.
            slice("same", 50, 60),
            slice("apart", 100, 110),
        ]);
        let names: Vec<&str> = forest.slices.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["outer", "first", "inner", "second", "same", "apart"]);
        assert_eq!(forest.parent, [None, Some(0), Some(1), Some(0), Some(3), None]);
        assert_eq!(forest.own, [80, 7, 3, 0, 10, 10]);
        assert_eq!(forest.own.iter().sum::<i64>(), 110);
        assert_eq!(forest.children(0).map(|(i, _)| i).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(forest.ancestors(2).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(
            [13, 17, 30, 55, 105, 200].map(|t| forest.at(t)),
            [Some(2), Some(1), Some(0), Some(4), Some(5), None]
        );
    }

    #[test]
    fn what_ends_behind_its_enclosing_slice_is_no_part_of_it() {
        let forest = nest(vec![slice("op", 0, 10), slice("asynchronous", 5, 30), slice("next", 10, 20)]);
        assert_eq!(forest.beside.len(), 1);
        assert_eq!(forest.own, [10, 10]);
    }
}
