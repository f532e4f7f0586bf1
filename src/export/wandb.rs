//! Offline runs of Weights & Biases, a folder for each trial, which `wandb sync` takes.
//!
//! A run file begins with `:W&B`, the number 0xBEE1 and a version (0). Behind that it is a log as LevelDB has it: blocks of 32 KiB, in which each
//! record, or a part of it, stands behind its CRC-32, its length and its type; no part begins in the last 6 bytes of a block. Other than in LevelDB the
//! CRC is that of zlib, over the type and the data, and not masked. Each record is a `Record` message of wandb/proto/wandb_internal.proto.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use expctl_ledger::JobRecord;
use flate2::Crc;
use serde_json::Value;

use super::ExportError;
use super::protobuf::Message;
use super::step_series::StepSeries;
use super::trial_facts::TrialFacts;

/// Bytes of a block of the log.
const BLOCK: usize = 1 << 15;
/// Bytes in front of a part of a record, and of the file: checksum, length, type; or name, number, version.
const HEADER: usize = 7;
/// Types of parts: a whole record, and the first, a middle and the last part of one.
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// `Record`.
const NUMBER: u32 = 1;
const HISTORY: u32 = 2;
const SUMMARY: u32 = 3;
const RUN: u32 = 17;
const EXIT: u32 = 18;
const RECORD_HEADER: u32 = 21;
const INFO: u32 = 200;
/// `HeaderRecord.version_info`, and its fields.
const VERSION_INFO: u32 = 1;
const PRODUCER: u32 = 1;
const MIN_CONSUMER: u32 = 2;
/// `RunRecord`.
const RUN_ID: u32 = 1;
const PROJECT: u32 = 3;
const CONFIG: u32 = 4;
const RUN_GROUP: u32 = 6;
const JOB_TYPE: u32 = 7;
const DISPLAY_NAME: u32 = 8;
const NOTES: u32 = 9;
const TAGS: u32 = 10;
const HOST: u32 = 13;
const START_TIME: u32 = 17;
const GIT: u32 = 21;
/// `GitRepoRecord.commit`.
const COMMIT: u32 = 2;
/// Items of `ConfigRecord`, `HistoryRecord` and `SummaryRecord`, and their fields.
const ITEM: u32 = 1;
const KEY: u32 = 1;
const NESTED_KEY: u32 = 2;
const VALUE_JSON: u32 = 16;
/// `HistoryRecord.step`, and its number.
const STEP: u32 = 2;
const STEP_NUMBER: u32 = 1;
/// `RunExitRecord`.
const EXIT_CODE: u32 = 1;
const RUNTIME: u32 = 2;

/// The oldest wandb that reads such files, as wandb itself writes it.
const OLDEST_READER: &str = "0.70.0";

/// A log that is being written.
struct RecordLog<W: Write> {
    to: W,
    /// Bytes in the current block.
    used: usize,
}

impl<W: Write> RecordLog<W> {
    fn new(mut to: W) -> io::Result<Self> {
        to.write_all(b":W&B\xe1\xbe\x00")?;
        Ok(Self { to, used: HEADER })
    }

    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let mut rest = record;
        let mut is_first = true;
        loop {
            let mut room = BLOCK - self.used;
            if room < HEADER {
                self.to.write_all(&[0; HEADER][..room])?;
                (self.used, room) = (0, BLOCK);
            }
            let length = rest.len().min(room - HEADER);
            let (part, behind) = rest.split_at(length);
            let kind = match (is_first, behind.is_empty()) {
                (true, true) => FULL,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            self.part(kind, part)?;
            if behind.is_empty() {
                return Ok(());
            }
            (rest, is_first) = (behind, false);
        }
    }

    fn part(&mut self, kind: u8, data: &[u8]) -> io::Result<()> {
        let mut checksum = Crc::new();
        checksum.update(&[kind]);
        checksum.update(data);
        self.to.write_all(&checksum.sum().to_le_bytes())?;
        // A part fits into a block.
        self.to.write_all(&(data.len() as u16).to_le_bytes())?;
        self.to.write_all(&[kind])?;
        self.to.write_all(data)?;
        self.used += HEADER + data.len();
        Ok(())
    }
}

/// A run file that is being written.
struct RunFile {
    path: PathBuf,
    log: RecordLog<BufWriter<File>>,
    run: String,
    records: i64,
}

impl RunFile {
    fn create(folder: &Path, run: &str, start: i64) -> Result<Self, ExportError> {
        let time = jiff::Timestamp::from_second(start).unwrap_or_default().strftime("%Y%m%d_%H%M%S");
        let folder = folder.join(format!("offline-run-{time}-{run}"));
        let path = folder.join(format!("run-{run}.wandb"));
        let made = std::fs::create_dir_all(folder.join("files")).and_then(|()| File::create_new(&path));
        let log = made.and_then(|file| RecordLog::new(BufWriter::new(file))).map_err(ExportError::write(&path))?;
        Ok(Self { path, log, run: run.to_owned(), records: 0 })
    }

    /// Add a record whose content is `message` in the field `field`.
    fn add(&mut self, field: u32, message: &Message) -> Result<(), ExportError> {
        self.records += 1;
        let info = Message::new().text(1, &self.run);
        let record = Message::new().integer(NUMBER, self.records).message(field, message).message(INFO, &info);
        self.log.write(record.bytes()).map_err(ExportError::write(&self.path))
    }

    fn finish(mut self) -> Result<(), ExportError> {
        self.log.to.flush().map_err(ExportError::write(&self.path))
    }
}

/// Write the offline run of a trial below `folder`. `record`: its job, if it was measured here. `series`: its steps, if it has any. `identity` is the
/// same in every export of the same submission, and in no other. `at`: the time of a run that has no other, seconds since 1970.
///
/// # Errors
/// The file cannot be written.
pub fn write_run(
    folder: &Path,
    record: Option<&JobRecord>,
    facts: &TrialFacts,
    series: Option<&StepSeries<'_>>,
    identity: &str,
    at: i64,
) -> Result<(), ExportError> {
    let start = series.map(StepSeries::start).filter(|start| *start > 0).or(facts.started).unwrap_or(at);
    let id = blake3::hash(format!("{identity} {}", facts.trial).as_bytes()).to_hex()[..16].to_owned();
    let mut file = RunFile::create(folder, &id, start)?;
    let producer = format!("expctl {}", env!("CARGO_PKG_VERSION"));
    let version = Message::new().text(PRODUCER, &producer).text(MIN_CONSUMER, OLDEST_READER);
    file.add(RECORD_HEADER, &Message::new().message(VERSION_INFO, &version))?;
    file.add(RUN, &run_record(record, facts, &id, start))?;
    let mut last = (0, start as f64);
    for point in series.iter().flat_map(|series| series.points()) {
        last = (point.step, point.at);
        let mut history = items(&point.values);
        for (key, value) in time_items(point.step, point.at, start) {
            history = item(history, NESTED_KEY, key, &value);
        }
        file.add(HISTORY, &history.message(STEP, &Message::new().integer(STEP_NUMBER, point.step as i64)))?;
    }
    let mut summary = items(&facts.figures());
    for (key, value) in time_items(last.0, last.1, start) {
        summary = item(summary, NESTED_KEY, key, &value);
    }
    file.add(SUMMARY, &summary)?;
    let code = i64::from(!facts.outcome.completed());
    let runtime = facts.took_s().unwrap_or((last.1 - start as f64) as i64);
    file.add(EXIT, &Message::new().integer(EXIT_CODE, code).integer(RUNTIME, runtime))?;
    file.finish()
}

fn run_record(record: Option<&JobRecord>, facts: &TrialFacts, id: &str, start: i64) -> Message {
    let mut config = item(Message::new(), KEY, "_wandb", &Value::Object(serde_json::Map::new()));
    for (key, value) in &facts.settings {
        config = item(config, KEY, key, value);
    }
    for (key, text) in facts.tags() {
        config = item(config, KEY, &format!("expctl.{key}"), &Value::String(text));
    }
    let reason = facts.outcome.reason();
    let notes = if reason.is_empty() { facts.notes.join("\n") } else { reason.to_owned() };
    let mut run = Message::new()
        .text(RUN_ID, id)
        .text(PROJECT, &facts.config)
        .message(CONFIG, &config)
        .text(RUN_GROUP, &format!("job {}", facts.job))
        .text(JOB_TYPE, &facts.variant)
        .text(DISPLAY_NAME, &facts.name())
        .text(NOTES, &notes);
    for tag in [facts.outcome.class(), facts.variant.as_str()] {
        if !tag.is_empty() {
            run = run.text(TAGS, &tag.chars().take(MAX_TAG).collect::<String>());
        }
    }
    if let Some(host) = facts.nodes.first() {
        run = run.text(HOST, host);
    }
    run = run.message(START_TIME, &Message::new().integer(1, start));
    match record.and_then(|record| record.commit.as_deref()) {
        // A commit of a tree with changes is none.
        Some(commit) if !commit.ends_with("-dirty") => run.message(GIT, &Message::new().text(COMMIT, commit)),
        _ => run,
    }
}

/// Characters of a tag.
const MAX_TAG: usize = 64;

/// Items of values by name.
fn items(values: &[(String, f64)]) -> Message {
    let mut all = Message::new();
    for (key, value) in values {
        all = item_of_number(all, key, *value);
    }
    all
}

/// wandb reads numbers that are none from these words.
fn item_of_number(to: Message, key: &str, value: f64) -> Message {
    let text = match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        value => Value::from(value).to_string(),
    };
    to.message(ITEM, &Message::new().text(NESTED_KEY, key).text(VALUE_JSON, &text))
}

fn item(to: Message, key_field: u32, key: &str, value: &Value) -> Message {
    to.message(ITEM, &Message::new().text(key_field, key).text(VALUE_JSON, &value.to_string()))
}

/// What wandb adds to each row: when it was, and its number.
fn time_items(step: u64, at: f64, start: i64) -> [(&'static str, Value); 3] {
    [("_timestamp", at.into()), ("_runtime", (at - start as f64).into()), ("_step", step.into())]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of a log with their types: those of LevelDB's description of its format.
    fn parts(bytes: &[u8]) -> Vec<(usize, u8, usize)> {
        let mut found = Vec::new();
        let mut at = HEADER;
        while at < bytes.len() {
            if BLOCK - at % BLOCK < HEADER {
                at += BLOCK - at % BLOCK;
                continue;
            }
            let length = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
            found.push((at, bytes[at + 6], length));
            at += HEADER + length;
        }
        found
    }

    #[test]
    fn long_records_are_split_at_blocks() {
        let mut log = RecordLog::new(Vec::new()).unwrap();
        log.write(b"short").unwrap();
        // Fills the block but for three bytes, which are padding.
        let rest = BLOCK - HEADER - (HEADER + 5) - HEADER - 3;
        log.write(&vec![1; rest]).unwrap();
        log.write(&vec![2; 2 * BLOCK]).unwrap();
        log.write(b"").unwrap();
        let bytes = log.to;
        assert_eq!(bytes[..HEADER], *b":W&B\xe1\xbe\x00");
        let room = BLOCK - HEADER;
        assert_eq!(
            parts(&bytes),
            [
                (HEADER, FULL, 5),
                (2 * HEADER + 5, FULL, rest),
                (BLOCK, FIRST, room),
                (2 * BLOCK, MIDDLE, room),
                (3 * BLOCK, LAST, 2 * HEADER),
                (3 * BLOCK + 3 * HEADER, FULL, 0),
            ]
        );
        assert_eq!(bytes[BLOCK - 3..BLOCK], [0; 3]);
    }

    #[test]
    fn numbers_that_are_none_have_words() {
        let text = |value| String::from_utf8_lossy(item_of_number(Message::new(), "a", value).bytes()).into_owned();
        assert!(text(f64::NAN).ends_with("NaN") && text(f64::NEG_INFINITY).ends_with("-Infinity"));
        assert!(text(0.25).ends_with("0.25"));
    }
}
