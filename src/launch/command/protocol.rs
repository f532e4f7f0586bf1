//! The socket `EXPCTL_SOCKET`, and the lines that a program writes to it.
//!
//! Invariant: any bytes are a record or a reason why not, and nothing is guessed: an unknown key, an unknown stage or
//! an impossible number is a reason.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use expctl_ledger::{PerStage, ProgramFacts, Stage};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use super::supervisor::Event;

/// Version of the lines.
pub const PROTOCOL: u32 = 1;
/// Longest line with its end, bytes.
pub const MAX_LINE: usize = 64 * 1024;
/// Longest time, ns (eleven days), and largest count. Larger numbers are no measurements.
const MAX_NS: u64 = 1_000_000_000_000_000;
const MAX_COUNT: u64 = 1 << 53;
/// Largest ratio of a step's exposed stages to its length. Stages that overlap or were counted twice are for the report
/// to show; above this ratio they are in another unit.
const MAX_EXPOSED: u64 = 100;
/// Tolerance of that check for steps that take hardly any time, ns.
const CLOCK_STEP_NS: u64 = 1_000_000;
/// Characters of a line or of a program's message that an outcome quotes.
const QUOTED: usize = 160;

/// One line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Record {
    /// The first line of a rank: who it is.
    Run(Box<RunRecord>),
    /// A completed step.
    Step(Box<StepLine>),
    /// Figures that were not known at the first line.
    Note(Counts),
    /// The last line: how the rank ended.
    End(EndRecord),
}

/// First record of a rank: its number, and its program.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// Name of the program.
    pub program: String,
    /// Versions of packages, by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Settings of the program.
    #[serde(default)]
    pub settings: BTreeMap<String, Json>,
    /// Device of the steps; the CPU, if it does not say.
    #[serde(default)]
    pub device: Option<String>,
    /// Backend of its process group.
    #[serde(default)]
    pub backend: Option<String>,
    /// Counts of the program.
    #[serde(default)]
    pub counts: Counts,
}

/// Counts of a program besides its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Samples of one epoch, over all ranks.
    #[serde(default)]
    pub samples_per_epoch: Option<u64>,
    /// Samples in its data.
    #[serde(default)]
    pub samples_total: Option<u64>,
    /// Size of its data on disk, bytes.
    #[serde(default)]
    pub stored_bytes: Option<u64>,
    /// The largest resident set of the rank, pages of files too, bytes.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
}

/// A step, as in the ledger (`StepRecord`). Its index decides whether it is measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepLine {
    /// Number of the step, from 0, warm-up included.
    pub step: u64,
    /// Epoch of its batch.
    #[serde(default)]
    pub epoch: u64,
    /// Start of the step since the rank's loop began, ns.
    pub start_ns: u64,
    /// Length of the step, ns.
    pub wall_ns: u64,
    /// Samples in the rank's batch.
    pub samples: u64,
    /// Bytes read from the store.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes of the batch.
    #[serde(default)]
    pub bytes_batch: u64,
    /// Bytes copied to the device.
    #[serde(default)]
    pub bytes_to_device: u64,
    /// Loss, if there is one.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Busy time of each stage, ns, summed over the threads and processes of the rank.
    #[serde(default)]
    pub busy: Stages,
    /// Exposed time of each stage, ns. The sum exceeds `wall_ns` where stages overlap or were counted twice, by at most
    /// [`MAX_EXPOSED`] times.
    #[serde(default)]
    pub exposed: Stages,
}

/// Last record of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRecord {
    /// The error; `None` if there was none.
    #[serde(default)]
    pub error: Option<String>,
}

/// Times of stages by name, each at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(pub PerStage<u64>);

impl<'de> Deserialize<'de> for Stages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Times;
        impl<'de> Visitor<'de> for Times {
            type Value = Stages;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("nanoseconds by stage")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Stages, A::Error> {
                let (mut times, mut seen) = (PerStage::default(), Vec::new());
                while let Some((stage, ns)) = map.next_entry::<Stage, u64>()? {
                    if seen.contains(&stage) {
                        return Err(serde::de::Error::custom(format_args!("stage `{stage}` is there twice")));
                    }
                    seen.push(stage);
                    times[stage] = ns;
                }
                Ok(Stages(times))
            }
        }
        deserializer.deserialize_map(Times)
    }
}

/// Parse a line without its end.
///
/// # Errors
/// Why it is no record.
pub fn parse(line: &[u8]) -> Result<Record, String> {
    let record: Record =
        serde_json::from_slice(line).map_err(|e| e.to_string().replace(" at line 1 column", ", column"))?;
    match &record {
        Record::Run(run) => run.check()?,
        Record::Step(step) => step.check()?,
        Record::Note(counts) => counts.check()?,
        Record::End(_) => {}
    }
    Ok(record)
}

impl RunRecord {
    fn check(&self) -> Result<(), String> {
        if self.protocol != PROTOCOL {
            return Err(format!("protocol {} is not the one of this expctl, {PROTOCOL}", self.protocol));
        }
        if self.program.trim().is_empty() {
            return Err("`program` is empty".to_owned());
        }
        let versions = self.versions.iter().flat_map(|(name, version)| [name, version]);
        let settings = self.settings.iter().flat_map(|(name, value)| [Some(name.as_str()), value.as_str()]).flatten();
        let words = [Some(&self.program), self.device.as_ref(), self.backend.as_ref()];
        let texts = words.into_iter().flatten().chain(versions).map(String::as_str).chain(settings);
        if let Some(text) = texts.into_iter().find(|text| text.chars().any(char::is_control)) {
            return Err(format!("{} holds a control character", quoted(text.as_bytes())));
        }
        match self.settings.iter().find(|(_, value)| value.is_array() || value.is_object() || value.is_null()) {
            Some((name, _)) => Err(format!("setting `{name}` is neither a number nor a text nor true or false")),
            None => self.counts.check(),
        }
    }
}

impl Counts {
    fn check(&self) -> Result<(), String> {
        let all = [
            ("samples_per_epoch", self.samples_per_epoch),
            ("samples_total", self.samples_total),
            ("stored_bytes", self.stored_bytes),
            ("peak_memory_bytes", self.peak_memory_bytes),
        ];
        all.into_iter().try_for_each(|(name, n)| check_max(name, n.unwrap_or(0), MAX_COUNT))
    }

    /// Overwrite the facts with these counts; of the memory the larger value stays.
    pub fn add_to(&self, facts: &mut ProgramFacts) {
        let later = |known: &mut Option<u64>, said: Option<u64>| *known = said.or(*known);
        later(&mut facts.samples_per_epoch, self.samples_per_epoch);
        later(&mut facts.samples_total, self.samples_total);
        later(&mut facts.stored_bytes, self.stored_bytes);
        facts.peak_memory_bytes = facts.peak_memory_bytes.max(self.peak_memory_bytes);
    }
}

impl StepLine {
    fn check(&self) -> Result<(), String> {
        check_max("start_ns", self.start_ns, MAX_NS)?;
        check_max("wall_ns", self.wall_ns, MAX_NS)?;
        let counts = [
            ("epoch", self.epoch),
            ("samples", self.samples),
            ("bytes_read", self.bytes_read),
            ("bytes_batch", self.bytes_batch),
            ("bytes_to_device", self.bytes_to_device),
        ];
        counts.into_iter().try_for_each(|(name, n)| check_max(name, n, MAX_COUNT))?;
        for (stage, ns) in self.busy.0.iter().chain(self.exposed.0.iter()) {
            check_max(stage.name(), *ns, MAX_NS)?;
        }
        // The sum of a few values of at most MAX_NS is far below u64::MAX, and so is the bound.
        let exposed = self.exposed.0.total();
        if exposed > self.wall_ns * MAX_EXPOSED + CLOCK_STEP_NS {
            return Err(format!(
                "the stages of `exposed` are {exposed} ns, the step is {}: more than {MAX_EXPOSED} times as much (are all in ns?)",
                self.wall_ns
            ));
        }
        Ok(())
    }
}

fn check_max(name: &str, value: u64, max: u64) -> Result<(), String> {
    if value > max { Err(format!("`{name}` = {value} is more than {max}")) } else { Ok(()) }
}

/// A text for a message of one line: cut, with control characters escaped.
pub fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * QUOTED)]).into_owned();
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == QUOTED {
            out.push('…');
            break;
        }
        if c.is_control() || c == '\u{2028}' || c == '\u{2029}' { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Longest path of a socket on Linux, bytes.
const MAX_PATH: usize = 107;
/// Connections that are served; a program with more is broken.
const MAX_CONNECTIONS: usize = 4096;

/// Shortest time between two reads of a connection. A read that blocks makes the program's next write wake this process
/// up, which costs the program tens of microseconds; lines that arrive faster are read together. Meanwhile the kernel
/// buffers them, also those of a program that is killed.
const READ_INTERVAL: Duration = Duration::from_millis(5);

/// The socket `EXPCTL_SOCKET`, in a folder that only this user can enter; both are removed when it is dropped.
#[derive(Debug)]
pub struct ProgramSocket {
    folder: tempfile::TempDir,
    /// Locked while a connection is taken and [`SocketEvent::Opened`] is sent.
    listener: Arc<Mutex<UnixListener>>,
}

/// An event on a connection.
#[derive(Debug)]
pub enum SocketEvent {
    /// A connection: its first event.
    Opened,
    /// A line, with its number from 1.
    Line(u64, Record),
    /// The first line that is no record: its number, and what is wrong with it. Nothing is read after it.
    Invalid(u64, String),
    /// The other side is gone.
    Closed,
}

impl ProgramSocket {
    /// Listen, and send what arrives to `events`.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn listen(events: SyncSender<Event>) -> std::io::Result<Self> {
        let mut folder = tempfile::Builder::new().prefix("expctl-").tempdir();
        if folder.as_ref().is_ok_and(|f| f.path().as_os_str().len() + "/socket".len() > MAX_PATH) {
            folder = tempfile::Builder::new().prefix("expctl-").tempdir_in("/tmp");
        }
        let folder = folder?;
        let listener = UnixListener::bind(folder.path().join("socket"))?;
        let waited_for = listener.try_clone()?;
        let listener = Arc::new(Mutex::new(listener));
        let shared = Arc::clone(&listener);
        let accept = move || accept(&waited_for, &shared, &events);
        std::thread::Builder::new().name("socket".to_owned()).spawn(accept)?;
        Ok(Self { folder, listener })
    }

    /// Whether a connection may have been made whose [`SocketEvent::Opened`] is not sent yet.
    pub fn has_pending(&self) -> bool {
        match self.listener.try_lock() {
            Ok(listener) => is_ready(&listener, PollTimeout::ZERO),
            Err(_) => true,
        }
    }

    /// Path of the socket.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Its folder, for other files that only the program may see.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether a connection waits to be taken, within a time limit.
fn is_ready(listener: &UnixListener, limit: PollTimeout) -> bool {
    poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], limit).is_ok_and(|ready| ready > 0)
}

/// Take connections; `waited_for` is the same socket as `listener`, which is locked only when there is a connection to take.
fn accept(waited_for: &UnixListener, listener: &Mutex<UnixListener>, events: &SyncSender<Event>) {
    let mut connection = 0;
    while connection < MAX_CONNECTIONS {
        if !is_ready(waited_for, PollTimeout::NONE) {
            continue;
        }
        let taken = {
            // The lock protects no value that a panic could leave half written.
            let listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok((stream, _)) = listener.accept() else { continue };
            let opened = Event::Program { connection, at: Instant::now(), event: SocketEvent::Opened };
            events.send(opened).map(|()| stream)
        };
        let Ok(stream) = taken else { return };
        let own = events.clone();
        let reader = move || read_lines(connection, stream, &own);
        // Without a thread the connection is not read, and the time limit for the run record passes.
        let _ = std::thread::Builder::new().name("connection".to_owned()).spawn(reader);
        connection += 1;
    }
}

/// Read the lines of a connection. A line without an end is skipped: its writer was killed.
fn read_lines(connection: usize, stream: UnixStream, events: &SyncSender<Event>) {
    let mut reader = BufReader::with_capacity(MAX_LINE, stream);
    let mut line = Vec::new();
    let mut number = 0;
    let mut last_read: Option<Instant> = None;
    loop {
        line.clear();
        number += 1;
        let empty = reader.buffer().is_empty();
        if let Some(rest) = last_read.filter(|_| empty).and_then(|read| READ_INTERVAL.checked_sub(read.elapsed())) {
            std::thread::sleep(rest);
        }
        let read = reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line);
        let at = Instant::now();
        if empty {
            last_read = Some(at);
        }
        let event = match read {
            Ok(_) if line.ends_with(b"\n") => {
                line.pop();
                match parse(&line) {
                    Ok(record) => SocketEvent::Line(number, record),
                    Err(why) => SocketEvent::Invalid(number, format!("{why}: {}", quoted(&line))),
                }
            }
            Ok(n) if n > MAX_LINE => {
                SocketEvent::Invalid(number, format!("longer than {MAX_LINE} bytes: {}", quoted(&line)))
            }
            _ => SocketEvent::Closed,
        };
        let over = !matches!(event, SocketEvent::Line(..));
        if events.send(Event::Program { connection, at, event }).is_err() {
            return;
        }
        if over {
            // The rest is read and dropped, so that the program does not block.
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(line: &str) -> String {
        parse(line.as_bytes()).unwrap_err()
    }

    /// A program may connect, write and end before anything of it was read: its connection is known all the same.
    #[test]
    fn no_connection_is_overlooked() {
        for _ in 0..200 {
            let (sender, events) = std::sync::mpsc::sync_channel(16);
            let socket = ProgramSocket::listen(sender).unwrap();
            drop(UnixStream::connect(socket.path()).unwrap());
            let begun = Instant::now();
            while socket.has_pending() {
                assert!(begun.elapsed() < Duration::from_secs(60));
            }
            let first = events.try_recv().unwrap();
            assert!(matches!(first, Event::Program { connection: 0, event: SocketEvent::Opened, .. }), "{first:?}");
        }
    }

    const STEP: &str = r#"{"step": {"step": 3, "start_ns": 10, "wall_ns": 100, "samples": 8"#;

    #[test]
    fn whole_records_are_read() {
        let run = r#"{"run": {"protocol": 1, "rank": 0, "world_size": 2, "program": "train", "versions": {"torch": "2.11"},
            "settings": {"amp": true}, "counts": {"stored_bytes": 7}}}"#;
        let Record::Run(run) = parse(run.as_bytes()).unwrap() else { panic!() };
        assert_eq!((run.program.as_str(), run.versions["torch"].as_str()), ("train", "2.11"));
        let line =
            format!(r#"{STEP}, "busy": {{"read": 500}}, "exposed": {{"read": 60, "forward": 40}}, "loss": null}}}}"#);
        let Record::Step(step) = parse(line.as_bytes()).unwrap() else { panic!() };
        assert_eq!((step.busy.0[Stage::Read], step.exposed.0.total(), step.loss), (500, 100, None));
        assert_eq!(parse(br#"{"end": {}}"#).unwrap(), Record::End(EndRecord { error: None }));
        assert!(matches!(parse(br#"{"note": {"peak_memory_bytes": 5}}"#).unwrap(), Record::Note(_)));
    }

    #[test]
    fn stages_that_overlap_or_were_counted_twice_are_taken_as_sent() {
        let line = format!(r#"{STEP}, "exposed": {{"read": 60, "forward": 52}}}}}}"#);
        let Record::Step(step) = parse(line.as_bytes()).unwrap() else { panic!() };
        assert_eq!((step.exposed.0.total(), step.wall_ns), (112, 100));
        assert_eq!((step.exposed.0[Stage::Read], step.exposed.0[Stage::Forward]), (60, 52));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, expected) in [
            ("", "EOF"),
            ("hello", "expected value"),
            ("[1]", "expected value"),
            (r#"{"end": {}} {"end": {}}"#, "trailing characters"),
            (r#"{"stop": {}}"#, "unknown variant `stop`"),
            (r#"{"end": {"reason": "x"}}"#, "unknown field `reason`"),
            (r#"{"run": {"protocol": 2, "rank": 0, "world_size": 1, "program": "x"}}"#, "protocol 2 is not"),
            (r#"{"run": {"protocol": 1, "rank": 0, "world_size": 1, "program": "a\u001bb"}}"#, "control character"),
            (
                r#"{"run": {"protocol": 1, "rank": 0, "world_size": 1, "program": "x", "settings": {"a": []}}}"#,
                "setting `a`",
            ),
            (r#"{"step": {"step": 0, "start_ns": 0, "wall_ns": 1}}"#, "missing field `samples`"),
            (r#"{"step": {"step": 0, "start_ns": -1, "wall_ns": 1, "samples": 1}}"#, "integer `-1`"),
            (r#"{"step": {"step": 0, "start_ns": 0, "wall_ns": 1.5, "samples": 1}}"#, "floating point `1.5`"),
            (r#"{"step": {"step": 0, "start_ns": 0, "wall_ns": NaN, "samples": 1}}"#, "expected value"),
            (r#"{"step": {"step": 0, "start_ns": 0, "wall_ns": 1e400, "samples": 1}}"#, "out of range"),
            (r#"{"step": {"step": 0, "start_ns": 0, "wall_ns": 9999999999999999, "samples": 1}}"#, "is more than"),
        ] {
            assert!(reason(line).contains(expected), "{line}: {}", reason(line));
        }
        for (stages, expected) in [
            (r#""busy": {"reading": 1}"#, "unknown variant `reading`, expected one of `sample`, `read`"),
            (r#""busy": {"read": 1, "read": 2}"#, "stage `read` is there twice"),
            (r#""busy": {"read": -1}"#, "integer `-1`"),
            (
                r#""exposed": {"read": 1000000, "forward": 10001}"#,
                "are 1010001 ns, the step is 100: more than 100 times",
            ),
            (r#""step": 3"#, "duplicate field"),
            (r#""loss": 1e999"#, "out of range"),
        ] {
            let line = format!("{STEP}, {stages}}}}}");
            assert!(reason(&line).contains(expected), "{line}: {}", reason(&line));
        }
    }

    #[test]
    fn quotes_are_cut_and_harmless() {
        assert_eq!(quoted(b"a\x1b[2J\n\xff"), "a\\u{1b}[2J\\n\u{fffd}");
        let long = quoted("ü".repeat(1000).as_bytes());
        assert_eq!((long.chars().count(), long.ends_with('…')), (QUOTED + 1, true));
    }

    proptest! {
        #[test]
        fn any_bytes_make_a_record_or_a_reason(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            prop_assert!(quoted(&bytes).chars().all(|c| !c.is_control()));
        }

        #[test]
        fn any_change_of_a_record_makes_one_or_a_reason(at in 0usize..120, byte in any::<u8>()) {
            let mut line = format!(r#"{STEP}, "busy": {{"read": 500}}, "exposed": {{"read": 60}}, "loss": 0.5}}}}"#).into_bytes();
            let at = at % line.len();
            line[at] = byte;
            if let Ok(Record::Step(step)) = parse(&line) {
                prop_assert!(step.exposed.0.total() <= step.wall_ns * MAX_EXPOSED + CLOCK_STEP_NS);
            }
        }
    }
}
