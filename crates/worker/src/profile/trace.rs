//! The trace of a rank: what libtorch's profiler wrote, with rows for what it does not see or shows where it does not nest.

use std::io::Write;
use std::path::{Path, PathBuf};

use expctl_ledger::trace_rows::{
    BUCKET_CATEGORY, BUCKETS, COLLECTIVES, LOADER, LOADER_CATEGORY, LOADER_OPERATION_CATEGORY, LOADER_WAIT_CATEGORY,
    OWN_LOADER,
};
use expctl_ledger::{TraceMeta, trace_microseconds, trace_nanoseconds, write_atomic};
use flate2::Compression;
use flate2::write::GzEncoder;
use loader_core::{BatchOperations, BatchTimes};
use serde_json::{Value as Json, json};
use torch_dist::RecordedProfile;

use crate::device::DeviceError;
use crate::error::RankError;

/// Why a trace of libtorch's profiler cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is no folder for temporary files.
    #[error("{0}")]
    Folder(std::io::Error),
    /// The profiler wrote no file, or one that cannot be read.
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("it is no JSON: {0}")]
    Json(serde_json::Error),
    #[error("it has no events")]
    NoEvents,
    #[error("it does not say when its time begins")]
    NoTimeBase,
    #[error("it holds no step")]
    NoSteps,
}

/// A trace that libtorch's profiler wrote, to which rows are added.
pub struct TraceFile {
    root: Json,
    pub frame: TraceFrame,
    /// Id of the thread that ran the steps.
    pub step_thread: i64,
}

impl TraceFile {
    /// The events of this process in `recorded`, without the rows that describe the recording itself.
    ///
    /// # Errors
    /// The folder for temporary files is full, or the profiler wrote no trace of steps.
    pub fn from_recorded(recorded: &RecordedProfile) -> Result<Self, RankError> {
        // libtorch writes beside the path that it is given, and renames: a folder of its own is removed with all of it.
        let folder = tempfile::tempdir().map_err(TraceError::Folder)?;
        let path = folder.path().join("trace.json");
        recorded.save(&path).map_err(DeviceError::from)?;
        let text = std::fs::read(&path).map_err(|source| TraceError::Read { path, source })?;
        let mut root: Json = serde_json::from_slice(&text).map_err(TraceError::Json)?;
        let base = root["baseTimeNanoseconds"].as_i64();
        let Some(events) = root["traceEvents"].as_array_mut() else {
            return Err(TraceError::NoEvents.into());
        };
        events.retain(|event| event["pid"].as_i64().is_some_and(|pid| pid >= 0));
        let pid = i64::from(std::process::id());
        let step_thread = find_step_thread(events, pid);
        match (base, step_thread) {
            (Some(base), Some(step_thread)) => Ok(Self { root, frame: TraceFrame { base, pid }, step_thread }),
            (None, _) => Err(TraceError::NoTimeBase.into()),
            (_, None) => Err(TraceError::NoSteps.into()),
        }
    }

    /// Add rows.
    pub fn add(&mut self, rows: Vec<Json>) {
        if let Some(events) = self.root["traceEvents"].as_array_mut() {
            events.extend(rows);
        }
    }

    /// Name the thread of the steps, put collectives on rows of their own, and write it all to `path`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(mut self, path: &Path, meta: &TraceMeta) -> Result<(), RankError> {
        let (frame, thread) = (self.frame, self.step_thread);
        if let Some(events) = self.root["traceEvents"].as_array_mut() {
            events.retain(|event| event["ph"] != "M" || event["tid"] != thread || event["pid"] != frame.pid);
            events.extend(frame.name(thread, "steps", 0));
            frame.move_collectives(events);
        }
        if let Some(root) = self.root.as_object_mut() {
            // The path of the temporary file.
            root.remove("traceName");
        }
        self.root["expctl"] = json!(meta);
        let mut packed = GzEncoder::new(Vec::new(), Compression::new(4));
        let packed = serde_json::to_writer(&mut packed, &self.root)
            .map_err(std::io::Error::from)
            .and_then(|()| packed.flush())
            .and_then(|()| packed.finish())
            .map_err(RankError::TraceUnpacked)?;
        Ok(write_atomic(path, &packed)?)
    }
}

/// The thread of process `pid` that ran the steps. A GPU has events of the same names on its streams, in a category of its own.
fn find_step_thread(events: &[Json], pid: i64) -> Option<i64> {
    let is_step = |event: &&Json| {
        event["ph"] == "X"
            && event["cat"] == "user_annotation"
            && event["pid"] == pid
            && event["name"].as_str().is_some_and(|name| name.starts_with("step "))
    };
    events.iter().find(is_step).and_then(|event| event["tid"].as_i64())
}

/// Prefixes of the names of events that last from the launch of a collective to its completion, while its thread does other work: `Work` of
/// c10d names them so.
const ASYNCHRONOUS: [&str; 2] = ["gloo:", "nccl:"];

/// The time base and the process of a trace; makes its rows.
#[derive(Clone, Copy, Debug)]
pub struct TraceFrame {
    /// `baseTimeNanoseconds`.
    pub base: i64,
    pub pid: i64,
}

impl TraceFrame {
    /// A complete event; `start` and `end` in ns since 1970.
    fn complete(&self, row: i64, category: &str, name: &str, (start, end): (i64, i64), args: Json) -> Json {
        json!({
            "ph": "X", "cat": category, "name": name, "pid": self.pid, "tid": row,
            "ts": trace_microseconds(start - self.base), "dur": trace_microseconds((end - start).max(0)), "args": args,
        })
    }

    /// Events that name a row, and give its position among the rows of the process.
    pub fn name(&self, row: i64, name: &str, position: i64) -> [Json; 2] {
        let meta = |what: &str, args: Json| json!({"ph": "M", "name": what, "pid": self.pid, "tid": row, "args": args});
        [meta("thread_name", json!({"name": name})), meta("thread_sort_index", json!({"sort_index": position}))]
    }

    /// Rows of the loader threads. `at` converts ns of the loader's clock to ns since 1970; the loader counts steps from `shift`.
    pub fn loader(&self, batches: &[BatchTimes], at: impl Fn(u64) -> i64, shift: u64) -> Vec<Json> {
        let mut events = Vec::new();
        let mut rows: Vec<Option<u32>> = Vec::new();
        for batch in batches {
            if !rows.contains(&batch.thread) {
                rows.push(batch.thread);
            }
            let row = batch.thread.map_or(OWN_LOADER, |thread| LOADER + i64::from(thread));
            let args = json!({"step": batch.step.saturating_sub(shift)});
            for interval in batch.intervals.iter().filter(|interval| interval.end > interval.start) {
                let category = if interval.busy { LOADER_CATEGORY } else { LOADER_WAIT_CATEGORY };
                let times = (at(interval.start), at(interval.end));
                events.push(self.complete(row, category, interval.stage.name(), times, args.clone()));
            }
            let operations = batch.operations.iter().flat_map(BatchOperations::intervals);
            for (of, operand) in operations.filter(|(of, _)| of.end > of.start) {
                let (stage, operation) = (of.stage.name(), of.operation.name());
                let args = json!({"step": args["step"], "stage": stage, "operation": operation, "operand": operand});
                let (name, times) = (format!("{operation} {operand}"), (at(of.start), at(of.end)));
                events.push(self.complete(row, LOADER_OPERATION_CATEGORY, &name, times, args));
            }
        }
        for thread in rows {
            let named = match thread {
                Some(thread) => {
                    self.name(LOADER + i64::from(thread), &format!("loader {thread}"), 10 + i64::from(thread))
                }
                None => self.name(OWN_LOADER, "loader (on the step's thread)", 10),
            };
            events.extend(named);
        }
        events
    }

    /// Rows of gradient buckets: step, index in the step, start and end in ns since 1970.
    pub fn buckets(&self, buckets: &[(u64, usize, (i64, i64))]) -> Vec<Json> {
        let rows = lanes(buckets.iter().map(|(.., times)| *times));
        let mut events: Vec<Json> = Vec::new();
        for ((step, index, times), lane) in buckets.iter().zip(&rows) {
            let name = format!("bucket {index}");
            events.push(self.complete(BUCKETS + lane, BUCKET_CATEGORY, &name, *times, json!({"step": step})));
        }
        events.extend(self.lane_names(BUCKETS, &rows, "allreduce", 2000));
        events
    }

    /// Move collectives, which overlap with other work of their threads, to rows of their own.
    pub fn move_collectives(&self, events: &mut Vec<Json>) {
        let mut found: Vec<&mut Json> = events.iter_mut().filter(|event| is_asynchronous(event)).collect();
        found.sort_by(|a, b| number(a, "ts").total_cmp(&number(b, "ts")));
        let times = found.iter().map(|event| {
            let start = trace_nanoseconds(number(event, "ts"));
            (start, start + trace_nanoseconds(number(event, "dur")))
        });
        let rows = lanes(times.collect::<Vec<_>>().into_iter());
        for (event, lane) in found.into_iter().zip(&rows) {
            event["tid"] = json!(COLLECTIVES + lane);
        }
        events.extend(self.lane_names(COLLECTIVES, &rows, "collectives", 3000));
    }

    fn lane_names(&self, row: i64, lanes: &[i64], name: &str, position: i64) -> Vec<Json> {
        let count = lanes.iter().max().map_or(0, |last| last + 1);
        let title = |lane: i64| if count == 1 { name.to_owned() } else { format!("{name} {lane}") };
        (0..count).flat_map(|lane| self.name(row + lane, &title(lane), position + lane)).collect()
    }
}

fn is_asynchronous(event: &Json) -> bool {
    let name = event["name"].as_str().unwrap_or_default();
    event["ph"] == "X" && ASYNCHRONOUS.iter().any(|start| name.starts_with(start))
}

fn number(event: &Json, key: &str) -> f64 {
    event[key].as_f64().unwrap_or_default()
}

/// For intervals ordered by their starts, the first row of each on which no other interval is open.
fn lanes(intervals: impl Iterator<Item = (i64, i64)>) -> Vec<i64> {
    let mut ends: Vec<i64> = Vec::new();
    let lane = |(start, end): (i64, i64)| {
        let free = ends.iter().position(|last| *last <= start).unwrap_or_else(|| {
            ends.push(i64::MIN);
            ends.len() - 1
        });
        ends[free] = end;
        free as i64
    };
    intervals.map(lane).collect()
}

#[cfg(test)]
mod tests {
    use graph_loader::{Marker, Marks, Operand};
    use loader_core::{Interval, Stage, StageOperation};

    use super::*;

    #[test]
    fn the_steps_are_those_of_the_host_wherever_the_events_of_a_gpu_stand() {
        let event =
            |cat: &str, pid: i64, tid: i64| json!({"ph": "X", "cat": cat, "name": "step 3", "pid": pid, "tid": tid});
        let gpu = event("gpu_user_annotation", 0, 7);
        let same_number = event("gpu_user_annotation", 41, 7);
        let host = event("user_annotation", 41, 1234);
        assert_eq!(find_step_thread(&[gpu.clone(), same_number, host], 41), Some(1234));
        let load = json!({"ph": "X", "cat": "user_annotation", "name": "load", "pid": 41});
        assert_eq!(find_step_thread(&[gpu, load], 41), None);
    }

    const FRAME: TraceFrame = TraceFrame { base: 1_000_000, pid: 7 };

    #[test]
    fn what_overlaps_lies_on_several_rows() {
        assert_eq!(lanes([(0, 10), (5, 8), (8, 20), (10, 12)].into_iter()), [0, 1, 1, 0]);
        let events = FRAME.buckets(&[(3, 0, (1_000_000, 1_002_500)), (3, 1, (1_001_000, 1_003_000))]);
        assert_eq!((&events[0]["dur"], &events[0]["ts"]), (&json!(2.5), &json!(0.0)));
        assert_eq!((events[0]["tid"].as_i64(), events[1]["tid"].as_i64()), (Some(BUCKETS), Some(BUCKETS + 1)));
        let names: Vec<&Json> =
            events.iter().filter(|e| e["name"] == "thread_name").map(|e| &e["args"]["name"]).collect();
        assert_eq!(names, ["allreduce 0", "allreduce 1"]);
    }

    #[test]
    fn loader_threads_have_rows_and_batches_the_steps_of_the_trial() {
        let interval = |stage, start, end, busy| Interval { stage, start, end, busy };
        let intervals = vec![interval(Stage::Read, 0, 500, false), interval(Stage::Collate, 500, 900, true)];
        let batches = [
            BatchTimes { step: 105, thread: Some(2), intervals, operations: None },
            BatchTimes { step: 106, thread: None, intervals: vec![], operations: None },
        ];
        let events = FRAME.loader(&batches, |ns| 2_000_000 + ns as i64, 100);
        assert_eq!((events[0]["cat"].as_str(), events[1]["cat"].as_str()), (Some("loader_wait"), Some("loader")));
        assert_eq!(events[1]["args"]["step"], 5);
        assert_eq!(
            (&events[1]["ts"], &events[1]["dur"], &events[1]["tid"]),
            (&json!(1000.5), &json!(0.4), &json!(LOADER + 2))
        );
        assert!(events.iter().any(|e| e["args"]["name"] == "loader 2"));
    }

    #[test]
    fn operations_lie_on_the_row_of_their_thread_with_what_they_are_of() {
        let start = std::time::Instant::now();
        let mut marks = Marks::new(start, ["physical"]);
        marks.begin(Stage::Mask);
        std::thread::sleep(std::time::Duration::from_millis(1));
        marks.mark(StageOperation::Fill, Operand::EdgeType(0));
        let operations = marks.finish();
        let (from, to) = operations.intervals().map(|(of, _)| (of.start, of.end)).next().unwrap();
        let mask = Interval { stage: Stage::Mask, start: 0, end: to + 10, busy: true };
        let batch = BatchTimes { step: 4, thread: Some(1), intervals: vec![mask], operations: Some(operations) };
        let events = FRAME.loader(&[batch], |ns| FRAME.base + ns as i64, 1);
        let event = &events[1];
        assert_eq!((&event["name"], &event["cat"]), (&json!("fill physical"), &json!("loader_operation")));
        let args = json!({"step": 3, "stage": "mask", "operation": "fill", "operand": "physical"});
        assert_eq!((&event["args"], &event["tid"]), (&args, &json!(LOADER + 1)));
        let ns = |key: &str| trace_nanoseconds(event[key].as_f64().unwrap());
        assert_eq!((ns("ts"), ns("dur")), (from as i64, (to - from) as i64));
    }

    #[test]
    fn collectives_leave_the_threads_that_handed_them_over() {
        let event = |name: &str, ts: f64| json!({"ph": "X", "name": name, "tid": 7, "ts": ts, "dur": 10.0});
        let mut events = vec![event("gloo:all_reduce", 5.0), event("aten::mm", 6.0), event("nccl:broadcast", 0.0)];
        FRAME.move_collectives(&mut events);
        let rows: Vec<_> = events[..3].iter().map(|e| e["tid"].as_i64().unwrap()).collect();
        assert_eq!(rows, [COLLECTIVES + 1, 7, COLLECTIVES]);
    }
}
