//! Traces of ranks as the worker writes them, made by hand: two jobs can be compared without running any.

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
