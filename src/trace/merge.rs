use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use expctl_record::trace_rows::LOADER;
use expctl_record::{RecordError, trace_microseconds, write_atomic};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};

use super::RankTrace;
use super::slice::nanoseconds;

/// Processes of a rank: itself, and its devices.
const PER_RANK: i64 = 64;
/// Threads of a process.
const PER_PROCESS: i64 = 10_000;

/// One trace of several ranks, on the clock of rank 0.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Start of its times, ns since 1970.
    base: i64,
    /// In order of time; names of rows first.
    events: Vec<(i64, Json)>,
    /// What each part says of itself.
    parts: Vec<Json>,
}

/// Numbers that are unique among all ranks, for those that are unique within one.
#[derive(Default)]
struct Numbers {
    threads: BTreeMap<(i64, i64), i64>,
    flows: BTreeMap<(usize, String, i64), u64>,
}

/// Merge traces of ranks: a process per rank and device, threads as they were, times on one clock.
///
/// Processes, threads and arrows of different ranks may have the same numbers, so they get new ones. What a loader did for a
/// batch can be in the traces of two windows of a rank; it is there once.
pub fn merge(traces: &[RankTrace]) -> Merged {
    let start = |trace: &RankTrace| trace.events.iter().filter_map(|e| Some(trace.base + nanoseconds(&e["ts"])?)).min();
    let base = traces.iter().filter_map(start).min().unwrap_or_default();
    let mut numbers = Numbers::default();
    let mut named: BTreeMap<i64, Json> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut events: Vec<(i64, Json)> = Vec::new();
    for (part, trace) in traces.iter().enumerate() {
        for event in &trace.events {
            let (Some(pid), Some(tid)) = (event["pid"].as_i64(), event["tid"].as_i64()) else { continue };
            let process = process(trace, pid);
            let thread = numbers.thread(process, tid);
            named.entry(process).or_insert_with(|| name(trace, pid));
            let mut event = event.clone();
            let time = nanoseconds(&event["ts"]).map(|ns| ns + trace.base - base);
            if event["ph"] == "M" {
                // Those of processes are made below.
                if event["name"].as_str().is_none_or(|name| !name.starts_with("thread_")) {
                    continue;
                }
                if let Some(fields) = event.as_object_mut() {
                    fields.remove("ts");
                }
            } else {
                let Some(time) = time else { continue };
                let of_loader = tid >= LOADER && event["cat"].as_str().is_some_and(|c| c.starts_with("loader"));
                if of_loader && !seen.insert((thread, time, event["name"].to_string())) {
                    continue;
                }
                event["ts"] = json!(trace_microseconds(time));
            }
            event["pid"] = json!(process);
            event["tid"] = json!(thread);
            if let Some(id) = event["id"].as_i64() {
                event["id"] = json!(numbers.flow(part, event["cat"].as_str().unwrap_or_default(), id));
            }
            events.push((time.unwrap_or(i64::MIN), event));
        }
    }
    let processes = named.into_iter().flat_map(|(pid, name)| {
        let meta = |what: &str, args: Json| json!({"ph": "M", "name": what, "pid": pid, "tid": 0, "args": args});
        [meta("process_name", json!({"name": name})), meta("process_sort_index", json!({"sort_index": pid}))]
    });
    events.extend(processes.map(|event| (i64::MIN, event)));
    // What encloses others comes before them where they begin together.
    let length = |event: &Json| nanoseconds(&event["dur"]).unwrap_or_default();
    events.sort_by_cached_key(|(time, event)| (event["ph"] != "M", *time, -length(event)));
    Merged { base, events, parts: traces.iter().map(|trace| json!(trace.meta)).collect() }
}

/// Number of a process of a rank, or of its device: ranks in order, each followed by its devices.
fn process(trace: &RankTrace, pid: i64) -> i64 {
    let of_rank = 1 + i64::from(trace.meta.rank) * PER_RANK;
    if pid == trace.meta.pid { of_rank } else { of_rank + 1 + pid.rem_euclid(PER_RANK - 1) }
}

fn name(trace: &RankTrace, pid: i64) -> Json {
    let (rank, host) = (trace.meta.rank, &trace.meta.host);
    json!(if pid == trace.meta.pid { format!("rank {rank} ({host})") } else { format!("rank {rank}, device {pid}") })
}

impl Numbers {
    fn thread(&mut self, process: i64, tid: i64) -> i64 {
        if let Some(known) = self.threads.get(&(process, tid)) {
            return *known;
        }
        let before = self.threads.range((process, i64::MIN)..=(process, i64::MAX)).count() as i64;
        let number = process * PER_PROCESS + before + 1;
        self.threads.insert((process, tid), number);
        number
    }

    fn flow(&mut self, part: usize, category: &str, id: i64) -> u64 {
        let next = self.flows.len() as u64 + 1;
        *self.flows.entry((part, category.to_owned(), id)).or_insert(next)
    }
}

impl Merged {
    /// Number of its events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Write it as gzipped JSON in the Chrome trace event format.
    ///
    /// # Errors
    /// The file cannot be written; nothing half-written stays.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let failed = |source| RecordError::Io { action: "write", path: path.to_owned(), source };
        let mut file = GzEncoder::new(Vec::new(), Compression::default());
        let packed = (|| {
            write!(file, "{{\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":{},\"expctl\":", self.base)?;
            serde_json::to_writer(&mut file, &self.parts)?;
            file.write_all(b",\"traceEvents\":[")?;
            for (i, (_, event)) in self.events.iter().enumerate() {
                file.write_all(if i == 0 { b"\n" } else { b",\n" })?;
                serde_json::to_writer(&mut file, event)?;
            }
            file.write_all(b"\n]}\n")?;
            file.finish()
        })();
        write_atomic(path, &packed.map_err(failed)?)
    }
}
