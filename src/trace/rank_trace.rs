use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use expctl_record::{TRACE_SCHEMA_VERSION, TraceMeta};
use flate2::read::GzDecoder;
use serde_json::{Map, Value as Json};

use super::{Slice, TraceError};

/// What one rank recorded in one window.
#[derive(Clone, Debug)]
pub struct RankTrace {
    /// Whose it is, and what its clock is.
    pub meta: TraceMeta,
    /// Start of its times, ns since 1970 by the clock of rank 0.
    pub base: i64,
    /// Its events, as they stand in the file.
    pub events: Vec<Json>,
    /// What else the file says, by key: `deviceProperties`, `schemaVersion`, `displayTimeUnit` and so on.
    pub head: Map<String, Json>,
}

impl RankTrace {
    /// Read `trace-<rank>-<cycle>.json.gz`.
    ///
    /// # Errors
    /// It cannot be read, is not whole, or is no trace of an expctl worker.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let unreadable = |reason: String| TraceError::Unreadable { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|e| unreadable(e.to_string()))?;
        let mut text = Vec::new();
        GzDecoder::new(BufReader::new(file))
            .read_to_end(&mut text)
            .map_err(|e| unreadable(format!("it is damaged or no gzip file: {e}")))?;
        let mut root: Json = serde_json::from_slice(&text).map_err(|e| unreadable(format!("it is no JSON: {e}")))?;
        if let Some(found) = root["expctl"]["schema"].as_u64().and_then(|found| u32::try_from(found).ok())
            && found > TRACE_SCHEMA_VERSION
        {
            return Err(TraceError::Newer { path: path.to_owned(), found, known: TRACE_SCHEMA_VERSION });
        }
        let meta = serde_json::from_value::<TraceMeta>(root["expctl"].take())
            .map_err(|e| unreadable(format!("its part `expctl` does not say whose it is: {e}")))?;
        let base = root["baseTimeNanoseconds"].as_i64().ok_or_else(|| unreadable("it has no base time".to_owned()))?;
        let Json::Array(events) = root["traceEvents"].take() else {
            return Err(unreadable("it has no events".to_owned()));
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

    /// Its complete events, as [`Slice`]s.
    pub fn slices(&self) -> Vec<Slice> {
        self.events.iter().filter_map(|event| Slice::of(event, self.base)).collect()
    }
}
