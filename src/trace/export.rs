//! Traces for other programs: merged over ranks for Perfetto, and per rank for TensorBoard's plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use expctl_ledger::trace_rows::{LOAD, LOADER};
use expctl_ledger::{LedgerError, trace_microseconds, write_atomic};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};

use super::forest::{nanoseconds, step_number};
use super::rank_trace::RankTrace;

/// Process numbers of a rank: its own, and those of its devices.
const PROCESSES_PER_RANK: i64 = 64;
/// Thread numbers of a process.
const THREADS_PER_PROCESS: i64 = 10_000;

/// One trace of several ranks, on the clock of rank 0.
#[derive(Clone, Debug)]
pub struct MergedTrace {
    /// Start of its times, ns since 1970.
    base: i64,
    /// Events in order of time, after the names of processes and threads.
    events: Vec<(i64, Json)>,
    /// Metadata of each trace.
    parts: Vec<Json>,
}

/// Ids of threads and flows that are unique among all ranks, by those that are unique within one.
#[derive(Default)]
struct UniqueIds {
    threads: BTreeMap<(i64, i64), i64>,
    flows: BTreeMap<(usize, String, i64), u64>,
}

/// Merge traces of ranks: a process per rank and device, threads as they were, times on one clock.
///
/// Processes, threads and flows of different ranks may have the same ids, so they get new ones. Work of a loader thread for a batch can be in
/// the traces of two windows of a rank; it is written once.
pub fn merge(traces: &[RankTrace]) -> MergedTrace {
    let start = |trace: &RankTrace| trace.events.iter().filter_map(|e| Some(trace.base + nanoseconds(&e["ts"])?)).min();
    let base = traces.iter().filter_map(start).min().unwrap_or_default();
    let mut ids = UniqueIds::default();
    let mut named: BTreeMap<i64, Json> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut events: Vec<(i64, Json)> = Vec::new();
    for (part, trace) in traces.iter().enumerate() {
        for event in &trace.events {
            let (Some(pid), Some(tid)) = (event["pid"].as_i64(), event["tid"].as_i64()) else { continue };
            let process = process_number(trace, pid);
            let thread = ids.thread(process, tid);
            named.entry(process).or_insert_with(|| process_name(trace, pid));
            let mut event = event.clone();
            let time = nanoseconds(&event["ts"]).map(|ns| ns + trace.base - base);
            if event["ph"] == "M" {
                // Names of processes are added below.
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
                event["id"] = json!(ids.flow(part, event["cat"].as_str().unwrap_or_default(), id));
            }
            events.push((time.unwrap_or(i64::MIN), event));
        }
    }
    let processes = named.into_iter().flat_map(|(pid, name)| {
        let meta = |what: &str, args: Json| json!({"ph": "M", "name": what, "pid": pid, "tid": 0, "args": args});
        [meta("process_name", json!({"name": name})), meta("process_sort_index", json!({"sort_index": pid}))]
    });
    events.extend(processes.map(|event| (i64::MIN, event)));
    // Among events that begin together, the enclosing one comes first.
    let length = |event: &Json| nanoseconds(&event["dur"]).unwrap_or_default();
    events.sort_by_cached_key(|(time, event)| (event["ph"] != "M", *time, -length(event)));
    MergedTrace { base, events, parts: traces.iter().map(|trace| json!(trace.meta)).collect() }
}

/// Number of a process of a rank, or of its device: ranks in order, each followed by its devices.
fn process_number(trace: &RankTrace, pid: i64) -> i64 {
    let of_rank = 1 + i64::from(trace.meta.rank) * PROCESSES_PER_RANK;
    if pid == trace.meta.pid { of_rank } else { of_rank + 1 + pid.rem_euclid(PROCESSES_PER_RANK - 1) }
}

fn process_name(trace: &RankTrace, pid: i64) -> Json {
    let (rank, host) = (trace.meta.rank, &trace.meta.host);
    json!(if pid == trace.meta.pid { format!("rank {rank} ({host})") } else { format!("rank {rank}, device {pid}") })
}

impl UniqueIds {
    fn thread(&mut self, process: i64, tid: i64) -> i64 {
        if let Some(known) = self.threads.get(&(process, tid)) {
            return *known;
        }
        let before = self.threads.range((process, i64::MIN)..=(process, i64::MAX)).count() as i64;
        let number = process * THREADS_PER_PROCESS + before + 1;
        self.threads.insert((process, tid), number);
        number
    }

    fn flow(&mut self, part: usize, category: &str, id: i64) -> u64 {
        let next = self.flows.len() as u64 + 1;
        *self.flows.entry((part, category.to_owned(), id)).or_insert(next)
    }
}

impl MergedTrace {
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
    /// [`LedgerError::Io`] if the file cannot be written; no partial file is left.
    pub fn write(&self, path: &Path) -> Result<(), LedgerError> {
        let failed = |source| LedgerError::Io { action: "write", path: path.to_owned(), source };
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

/// Name by which TensorBoard's plugin knows the range in which a step waits for its batch: `enumerate(DataLoader)#….__next__`.
const DATA_LOADER: &str = "enumerate(DataLoader)#expctl.__next__";

/// Write the trace of a rank into `folder` as PyTorch's plugin of TensorBoard (`torch-tb-profiler`) reads it, and return the file.
///
/// The plugin goes by names. The file is `<worker>.<span>.pt.trace.json.gz` with host and rank, and the first moment of the trace in ns
/// since 1970, as `torch.profiler.tensorboard_trace_handler` names it. The ranges of steps become `ProfilerStep#N`, and those of waits for a
/// batch get the name of PyTorch's `DataLoader`. All else stays as it is.
///
/// Source: `consts.py` and `profiler/event_parser.py` of `torch_tb_profiler` 0.4.3.
///
/// # Errors
/// [`LedgerError::Io`] if the folder or the file cannot be written; no partial file is left.
pub fn write_for_tensorboard(trace: &RankTrace, folder: &Path) -> Result<PathBuf, LedgerError> {
    let start = trace.slices().iter().map(|slice| slice.start).min().unwrap_or(trace.base);
    let path = folder.join(format!("{}_{}.{start}.pt.trace.json.gz", trace.meta.host, trace.meta.rank));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LedgerError::Io { action: "write", path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut root = trace.head.clone();
    root.insert("traceEvents".to_owned(), Json::Array(trace.events.iter().map(renamed).collect()));
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let packed = serde_json::to_writer(&mut packed, &root)
        .map_err(std::io::Error::from)
        .and_then(|()| packed.flush())
        .and_then(|()| packed.finish());
    write_atomic(&path, &packed.map_err(failed(&path))?)?;
    Ok(path)
}

/// The event with the names that the plugin knows.
fn renamed(event: &Json) -> Json {
    let mut event = event.clone();
    if event["ph"] == "X" && event["cat"] == "user_annotation" {
        let name = event["name"].as_str().unwrap_or_default();
        let of_plugin = match step_number(name) {
            Some(step) => Some(format!("ProfilerStep#{step}")),
            None => (name == LOAD).then(|| DATA_LOADER.to_owned()),
        };
        if let Some(name) = of_plugin {
            event["name"] = json!(name);
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_host_get_the_names_of_the_plugin() {
        let name = |category: &str, name: &str| {
            let event = renamed(&json!({"ph": "X", "cat": category, "name": name, "ts": 1.5}));
            assert_eq!(event["ts"], 1.5);
            event["name"].as_str().unwrap().to_owned()
        };
        assert_eq!(name("user_annotation", "step 12"), "ProfilerStep#12");
        assert_eq!(name("user_annotation", "load"), DATA_LOADER);
        // Those of a GPU's streams would be steps twice over.
        assert_eq!(name("gpu_user_annotation", "step 12"), "step 12");
        assert_eq!((name("cpu_op", "load"), name("user_annotation", "forward")), ("load".into(), "forward".into()));
    }
}
