//! Trace files: those of a trial, and what one rank recorded in one window.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use expctl_ledger::{AttemptDir, JobDir, JobRecord, TRACE_SCHEMA_VERSION, TraceMeta};
use expctl_settings::Trial;
use flate2::read::GzDecoder;
use serde_json::{Map, Value as Json};

use super::forest::Slice;

/// The trace of one rank in one window.
#[derive(Clone, Debug)]
pub struct RankTrace {
    /// Trial, rank and window that it is of, and the offset of its clock.
    pub meta: TraceMeta,
    /// Start of its times, ns since 1970 by the clock of rank 0.
    pub base: i64,
    /// Its events, as in the file.
    pub events: Vec<Json>,
    /// All other entries of the file, by key: `deviceProperties`, `schemaVersion`, `displayTimeUnit` and so on.
    pub head: Map<String, Json>,
}

impl RankTrace {
    /// Read `trace-<rank>-<cycle>.json.gz`.
    ///
    /// # Errors
    /// [`TraceError::Unreadable`] if the file cannot be read, is incomplete, or is no trace of an expctl worker; [`TraceError::Newer`] if a
    /// newer version wrote it.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let unreadable = |reason: TraceFileError| TraceError::Unreadable { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|e| unreadable(TraceFileError::Open(e)))?;
        let mut text = Vec::new();
        GzDecoder::new(BufReader::new(file)).read_to_end(&mut text).map_err(|e| unreadable(TraceFileError::Gzip(e)))?;
        let mut root: Json = serde_json::from_slice(&text).map_err(|e| unreadable(TraceFileError::Json(e)))?;
        if let Some(found) = root["expctl"]["schema"].as_u64().and_then(|found| u32::try_from(found).ok())
            && found > TRACE_SCHEMA_VERSION
        {
            return Err(TraceError::Newer { path: path.to_owned(), found, known: TRACE_SCHEMA_VERSION });
        }
        let meta = serde_json::from_value::<TraceMeta>(root["expctl"].take())
            .map_err(|e| unreadable(TraceFileError::Metadata(e)))?;
        let base = root["baseTimeNanoseconds"].as_i64().ok_or_else(|| unreadable(TraceFileError::NoBaseTime))?;
        let Json::Array(events) = root["traceEvents"].take() else {
            return Err(unreadable(TraceFileError::NoEvents));
        };
        let mut head = match root {
            Json::Object(head) => head,
            _ => Map::new(),
        };
        head.retain(|key, _| key != "traceEvents" && key != "expctl");
        Ok(Self { base: base + meta.clock.offset_ns, meta, events, head })
    }

    /// Names of threads and streams, by process (or device) and number.
    pub fn thread_names(&self) -> BTreeMap<(i64, i64), &str> {
        let names = self.events.iter().filter(|event| event["ph"] == "M" && event["name"] == "thread_name");
        let named = names.filter_map(|event| {
            let thread = (event["pid"].as_i64()?, event["tid"].as_i64()?);
            Some((thread, event["args"]["name"].as_str()?))
        });
        named.collect()
    }

    /// Its complete events.
    pub fn slices(&self) -> Vec<Slice> {
        self.events.iter().filter_map(|event| Slice::from_event(event, self.base)).collect()
    }
}

/// The trace files of a trial.
#[derive(Clone, Debug)]
pub struct TrialTraces {
    /// The trial, with the settings of its attempt.
    pub trial: Trial,
    /// The attempt that wrote the traces: the last one that wrote any.
    pub attempt: AttemptDir,
    /// The files, by rank and then by cycle.
    pub files: Vec<PathBuf>,
    /// Ranks and cycles that should have been recorded and have no file.
    pub missing: Vec<(u32, u64)>,
}

/// Find the traces of the trials at these indices of a job.
///
/// # Errors
/// [`TraceError::NotProfiled`] if the settings of none of them record a step, [`TraceError::Missing`] if one that should record steps has no
/// trace.
pub fn find(dir: &JobDir, record: &JobRecord, indices: &[usize]) -> Result<Vec<TrialTraces>, TraceError> {
    let trials = indices.iter().filter_map(|index| record.trials.get(*index));
    let profiled: Vec<&Trial> = trials.filter(|trial| trial.settings.profiles()).collect();
    if profiled.is_empty() {
        return Err(TraceError::NotProfiled { job: record.job });
    }
    profiled.into_iter().map(|trial| find_of_trial(dir, trial)).collect()
}

fn find_of_trial(dir: &JobDir, planned: &Trial) -> Result<TrialTraces, TraceError> {
    let missing = |state: String| TraceError::Missing { trial: planned.id.clone(), state };
    let attempts = dir.attempts(&planned.id).map_err(|e| missing(e.to_string()))?;
    for attempt in attempts.iter().rev() {
        // The settings of an attempt may be newer than the plan's, as after a retry.
        let trial = attempt.trial().unwrap_or_else(|_| planned.clone());
        let mut found = TrialTraces { trial, attempt: attempt.clone(), files: Vec::new(), missing: Vec::new() };
        for rank in 0..found.trial.settings.launch.ranks {
            for window in found.trial.settings.profile_windows(rank) {
                let path = attempt.trace_path(rank, window.cycle);
                if path.exists() { found.files.push(path) } else { found.missing.push((rank, window.cycle)) }
            }
        }
        if !found.files.is_empty() {
            return Ok(found);
        }
    }
    let state = match attempts.last().map(AttemptDir::outcome) {
        None => "it has not started".to_owned(),
        Some(Ok(None)) => "its last attempt has not ended".to_owned(),
        Some(Ok(Some(outcome))) => {
            let said = if outcome.message.is_empty() { String::new() } else { format!(": {}", outcome.message) };
            format!("its last attempt is {}{said}", outcome.state.name())
        }
        Some(Err(e)) => e.to_string(),
    };
    Err(missing(state))
}

/// Why there is no trace to show.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// No trial was profiled.
    #[error("job {job} was not profiled: no trial of it records a step")]
    NotProfiled {
        /// The job.
        job: u64,
    },
    /// The settings of a trial record steps, but it has no trace.
    #[error("trial {trial} left no trace: {state}")]
    Missing {
        /// The trial.
        trial: String,
        /// State of its last attempt.
        state: String,
    },
    /// A file is no trace, or damaged.
    #[error("cannot read the trace {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: TraceFileError,
    },
    /// A file was written by a newer version.
    #[error("{} has schema version {found}; this expctl reads up to version {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
}

/// Reason why a file is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// The file cannot be opened.
    #[error(transparent)]
    Open(std::io::Error),
    /// The file cannot be decompressed.
    #[error("it is damaged or no gzip file: {0}")]
    Gzip(std::io::Error),
    /// Its content is no JSON.
    #[error("it is no JSON: {0}")]
    Json(serde_json::Error),
    /// The entry `expctl` is missing or not understood.
    #[error("its part `expctl` does not say whose it is: {0}")]
    Metadata(serde_json::Error),
    /// The entry `baseTimeNanoseconds` is missing.
    #[error("it has no base time")]
    NoBaseTime,
    /// The entry `traceEvents` is missing.
    #[error("it has no events")]
    NoEvents,
}
