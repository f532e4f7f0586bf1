//! A strict reading of the Chrome trace event format, as far as Perfetto's importer of JSON takes it: events that it would drop
//! or misplace are errors here.
//!
//! Source: "Trace Event Format" (Google, 2016), and `json_trace_parser` of Perfetto, which counts events without their parts as
//! `json_parser_failure` and complete events that overlap on a thread without nesting as `slice_drop_overlapping_complete_event`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

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

/// Check a trace.
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
