//! Traces of ranks: as the worker writes them, made by hand, so that two jobs can be compared without running any; and a strict
//! reader of the Chrome trace event format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use expctl_ledger::{
    AttemptDir, JobDir, TRACE_SCHEMA_VERSION, TraceClock, TraceMeta,
    trace_rows::{COLLECTIVES, LOADER},
    write_atomic,
};
use expctl_settings::{ProfileWindow, Trial};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};

use crate::common::ledger::{finish, running, steps};

/// Number of the process and of the thread of the steps.
const PID: i64 = 41;
const STEPS: i64 = 4100;
/// Start of the trace, ns since 1970.
const BASE: i64 = 1_767_323_045_000_000_000;

/// A recorded step, times in ms: it waits `load_ms` for its batch, which a loader thread collates meanwhile; the forward pass is the
/// `operations`, one after another, and the backward pass takes 100 ms, of which a collective runs for 40.
#[derive(Clone, Debug)]
pub struct TracedStep {
    pub load_ms: i64,
    pub operations: Vec<(&'static str, i64)>,
}

/// Steps that load for so long each, with these operations.
pub fn traced(load_ms: &[i64], operations: &[(&'static str, i64)]) -> Vec<TracedStep> {
    load_ms.iter().map(|load_ms| TracedStep { load_ms: *load_ms, operations: operations.to_vec() }).collect()
}

/// A completed trial of a job with a trace of each rank, one window of these steps.
pub fn profiled(job: &JobDir, trial: &Trial, recorded: &[TracedStep]) -> AttemptDir {
    let ledger = [steps(400, 10), steps(400, 10)];
    let attempt = running(job, trial, &ledger);
    for rank in 0..trial.settings.launch.ranks {
        write_trace(&attempt, trial, rank, recorded);
    }
    finish(&attempt, &ledger, expctl_ledger::TrialState::Completed, "");
    attempt
}

/// The trace of one rank.
pub fn write_trace(attempt: &AttemptDir, trial: &Trial, rank: u32, recorded: &[TracedStep]) {
    let windows = trial.settings.profile_windows(rank);
    let window = windows.first().copied().expect("the trial is profiled");
    assert_eq!((window.end - window.first) as usize, recorded.len(), "the window is as long as what is recorded");
    let mut events: Vec<Json> = Vec::new();
    for (row, name) in [(STEPS, "steps"), (LOADER, "loader 0"), (COLLECTIVES, "collectives")] {
        events.push(json!({"ph": "M", "name": "thread_name", "pid": PID, "tid": row, "args": {"name": name}}));
    }
    let mut add = |row: i64, category: &str, name: &str, start_ms: i64, ms: i64, step: Option<u64>| {
        let args = step.map_or_else(|| json!({}), |step| json!({"step": step}));
        events.push(json!({"ph": "X", "cat": category, "name": name, "pid": PID, "tid": row,
            "ts": start_ms as f64 * 1e3, "dur": ms as f64 * 1e3, "args": args}));
    };
    let mut at = 0;
    for (number, step) in (window.first..).zip(recorded) {
        let forward: i64 = step.operations.iter().map(|(_, ms)| ms).sum();
        add(STEPS, "user_annotation", &format!("step {number}"), at, step.load_ms + forward + 100, None);
        add(STEPS, "user_annotation", "load", at, step.load_ms, None);
        add(LOADER, "loader", "collate", at, step.load_ms, Some(number));
        at += step.load_ms;
        add(STEPS, "user_annotation", "forward", at, forward, None);
        for (name, ms) in step.operations.iter().copied() {
            add(STEPS, "cpu_op", name, at, ms, None);
            at += ms;
        }
        add(STEPS, "user_annotation", "backward", at, 100, None);
        add(COLLECTIVES, "cpu_op", "gloo:all_reduce", at + 50, 40, None);
        at += 100;
    }
    let root = json!({
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE,
        "expctl": meta(trial, rank, window),
        "traceEvents": events,
    });
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(root.to_string().as_bytes()).unwrap();
    write_atomic(&attempt.trace_path(rank, window.cycle), &packed.finish().unwrap()).unwrap();
}

fn meta(trial: &Trial, rank: u32, window: ProfileWindow) -> TraceMeta {
    TraceMeta {
        schema: TRACE_SCHEMA_VERSION,
        trial: trial.id.clone(),
        rank,
        world_size: trial.settings.launch.ranks,
        host: "node-1.local".into(),
        window,
        pid: PID,
        step_thread: STEPS,
        clock: TraceClock {
            realtime_ns: BASE,
            monotonic_ns: 0,
            pair_uncertainty_ns: 0,
            drift_ns: 0,
            offset_ns: 0,
            offset_uncertainty_ns: 0,
            boot_id: "boot".into(),
        },
    }
}

/// A complete event: start and end (ns), category, name, arguments.
pub type Slice = (i64, i64, String, String, Json);

/// What a trace holds.
#[derive(Debug, Default)]
pub struct Checked {
    /// Names of processes, by number.
    pub processes: BTreeMap<i64, String>,
    /// Names of threads, by process and number.
    pub threads: BTreeMap<(i64, i64), String>,
    /// Complete events by thread.
    pub slices: BTreeMap<(i64, i64), Vec<Slice>>,
    /// Number of instants.
    pub instants: usize,
}

fn number(event: &Json, key: &str) -> i64 {
    event[key].as_i64().unwrap_or_else(|| panic!("{key} is no whole number: {event}"))
}

fn ns(event: &Json, key: &str) -> i64 {
    let us = event[key].as_f64().unwrap_or_else(|| panic!("{key} is no number: {event}"));
    assert!(us.is_finite(), "{event}");
    (us * 1000.0).round() as i64
}

fn word<'a>(event: &'a Json, key: &str) -> &'a str {
    event[key].as_str().filter(|text| !text.is_empty()).unwrap_or_else(|| panic!("{key} is no text: {event}"))
}

/// A strict reading of the Chrome trace event format, as far as Perfetto's importer of JSON takes it: events that it would drop
/// or misplace are errors here.
///
/// Source: "Trace Event Format" (Google, 2016), and `json_trace_parser` of Perfetto, which counts events without their parts as
/// `json_parser_failure` and complete events that overlap on a thread without nesting as `slice_drop_overlapping_complete_event`.
pub fn check(root: &Json) -> Checked {
    assert!(root["displayTimeUnit"] == "ms" && root["baseTimeNanoseconds"].is_i64());
    let events = root["traceEvents"].as_array().expect("events");
    let mut checked = Checked::default();
    let mut arrows: BTreeMap<(String, String, i64), [Vec<i64>; 2]> = BTreeMap::new();
    for event in events {
        let thread = (number(event, "pid"), number(event, "tid"));
        // What Perfetto holds them in.
        assert!(
            i32::try_from(thread.0).is_ok_and(|pid| pid > 0) && i32::try_from(thread.1).is_ok_and(|tid| tid >= 0),
            "{event}"
        );
        let (name, phase) = (word(event, "name"), word(event, "ph"));
        if phase != "M" {
            assert!(ns(event, "ts") >= 0, "{event}");
        }
        match phase {
            "X" => {
                let (start, length) = (ns(event, "ts"), ns(event, "dur"));
                assert!(length >= 0 && (event["args"].is_object() || event["args"].is_null()), "{event}");
                let slice =
                    (start, start + length, word(event, "cat").to_owned(), name.to_owned(), event["args"].clone());
                checked.slices.entry(thread).or_default().push(slice);
            }
            "M" => {
                let args = &event["args"];
                match name {
                    "process_name" => {
                        let before = checked.processes.insert(thread.0, word(args, "name").to_owned());
                        assert_eq!(before, None, "named twice: {event}");
                    }
                    "thread_name" => {
                        checked.threads.insert(thread, word(args, "name").to_owned());
                    }
                    "process_sort_index" | "thread_sort_index" => assert!(args["sort_index"].is_i64(), "{event}"),
                    _ => panic!("unknown: {event}"),
                }
            }
            "i" => {
                assert!(["g", "p", "t"].contains(&word(event, "s")), "{event}");
                checked.instants += 1;
            }
            "s" | "f" => {
                let id = number(event, "id");
                assert!(u32::try_from(id).is_ok(), "{event}");
                let ends = arrows.entry((word(event, "cat").to_owned(), name.to_owned(), id)).or_default();
                ends[usize::from(phase == "f")].push(ns(event, "ts"));
            }
            _ => panic!("unknown: {event}"),
        }
    }
    for (arrow, [starts, ends]) in &arrows {
        assert!(starts.len() == 1 && ends.iter().all(|end| *end >= starts[0]), "{arrow:?}: {starts:?} to {ends:?}");
    }
    let mut numbers = BTreeSet::new();
    for (thread, slices) in &mut checked.slices {
        assert!(numbers.insert(thread.1), "thread {} is of two processes", thread.1);
        assert!(
            checked.processes.contains_key(&thread.0) && checked.threads.contains_key(thread),
            "{thread:?} has no name"
        );
        slices.sort_by_key(|(start, end, ..)| (*start, -*end));
        let mut open: Vec<i64> = Vec::new();
        for (start, end, _, name, _) in slices {
            while open.last().is_some_and(|last| last <= start) {
                open.pop();
            }
            let around = open.last();
            assert!(
                around.is_none_or(|around| *end <= *around),
                "{name} begins in an event of {thread:?} and ends behind it"
            );
            open.push(*end);
        }
    }
    checked
}
