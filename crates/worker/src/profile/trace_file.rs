use std::io::Write;
use std::path::Path;

use expctl_dist::Recorded;
use expctl_record::{TraceMeta, write_atomic};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};

use super::rows::Frame;
use crate::device::DeviceError;
use crate::stop::Stop;

/// What libtorch's profiler wrote, to be added to.
pub(super) struct TraceFile {
    root: Json,
    /// Where its times start, and the process.
    pub(super) frame: Frame,
    /// The thread that ran the steps.
    pub(super) step_thread: i64,
}

impl TraceFile {
    /// Take over what was recorded of this process, without the rows that describe the recording itself.
    ///
    /// # Errors
    /// There is no room for it in the folder for temporary files, or it is no trace.
    pub(super) fn take(recorded: &Recorded) -> Result<Self, Stop> {
        let failed = |what: String| Stop::Invalid(format!("the profiler's trace cannot be kept: {what}"));
        // libtorch writes beside the name that it is given, and renames: a folder of its own goes with all of it.
        let folder = tempfile::tempdir().map_err(|e| failed(e.to_string()))?;
        let path = folder.path().join("trace.json");
        recorded.save(&path).map_err(DeviceError::from)?;
        let text = std::fs::read(&path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
        let mut root: Json = serde_json::from_slice(&text).map_err(|e| failed(format!("it is no JSON: {e}")))?;
        let base = root["baseTimeNanoseconds"].as_i64();
        let Some(events) = root["traceEvents"].as_array_mut() else {
            return Err(failed("it has no events".to_owned()));
        };
        events.retain(|event| event["pid"].as_i64().is_some_and(|pid| pid >= 0));
        let pid = i64::from(std::process::id());
        let step_thread = thread_of_steps(events, pid);
        match (base, step_thread) {
            (Some(base), Some(step_thread)) => Ok(Self { root, frame: Frame { base, pid }, step_thread }),
            (None, _) => Err(failed("it does not say when its time begins".to_owned())),
            (_, None) => Err(failed("it holds no step".to_owned())),
        }
    }

    /// Add rows.
    pub(super) fn add(&mut self, rows: Vec<Json>) {
        if let Some(events) = self.root["traceEvents"].as_array_mut() {
            events.extend(rows);
        }
    }

    /// Name the thread of the steps, put collectives on rows of their own, and write it all to `path`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(mut self, path: &Path, meta: &TraceMeta) -> Result<(), Stop> {
        let (frame, thread) = (self.frame, self.step_thread);
        if let Some(events) = self.root["traceEvents"].as_array_mut() {
            events.retain(|event| event["ph"] != "M" || event["tid"] != thread || event["pid"] != frame.pid);
            events.extend(frame.name(thread, "steps", 0));
            frame.move_collectives(events);
        }
        if let Some(root) = self.root.as_object_mut() {
            // The temporary file that it was in.
            root.remove("traceName");
        }
        self.root["expctl"] = json!(meta);
        let mut packed = GzEncoder::new(Vec::new(), Compression::new(4));
        let packed = serde_json::to_writer(&mut packed, &self.root)
            .map_err(std::io::Error::from)
            .and_then(|()| packed.flush())
            .and_then(|()| packed.finish())
            .map_err(|e| Stop::Invalid(format!("the profiler's trace cannot be packed: {e}")))?;
        Ok(write_atomic(path, &packed)?)
    }
}

/// The thread of process `pid` that ran the steps. A GPU has events of the same names, under a category of its own, on its streams.
fn thread_of_steps(events: &[Json], pid: i64) -> Option<i64> {
    let is_step = |event: &&Json| {
        event["ph"] == "X"
            && event["cat"] == "user_annotation"
            && event["pid"] == pid
            && event["name"].as_str().is_some_and(|name| name.starts_with("step "))
    };
    events.iter().find(is_step).and_then(|event| event["tid"].as_i64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_those_of_the_host_wherever_the_events_of_a_gpu_stand() {
        let event =
            |cat: &str, pid: i64, tid: i64| json!({"ph": "X", "cat": cat, "name": "step 3", "pid": pid, "tid": tid});
        let gpu = event("gpu_user_annotation", 0, 7);
        let same_number = event("gpu_user_annotation", 41, 7);
        let host = event("user_annotation", 41, 1234);
        assert_eq!(thread_of_steps(&[gpu.clone(), same_number, host], 41), Some(1234));
        let load = json!({"ph": "X", "cat": "user_annotation", "name": "load", "pid": 41});
        assert_eq!(thread_of_steps(&[gpu, load], 41), None);
    }
}
