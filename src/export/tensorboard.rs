//! Event files of TensorBoard: a run for each trial, with scalars of its steps and its settings as hyperparameters.
//!
//! An event file is a list of records: the length (8 bytes), the masked CRC-32C of these 8 bytes, the data, the masked CRC-32C of the data. Each
//! record is an `Event` message. The names of fields are those of tensorboard/compat/proto/{event,summary}.proto and
//! tensorboard/plugins/hparams/plugin_data.proto.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ExportError;
use super::protobuf::Message;
use super::step_series::StepSeries;
use super::trial_facts::TrialFacts;

/// `Event`: when (double), at which step, and what.
const WALL_TIME: u32 = 1;
const STEP: u32 = 2;
const FILE_VERSION: u32 = 3;
const SUMMARY: u32 = 5;
/// `Summary.value`, and its fields.
const VALUE: u32 = 1;
const TAG: u32 = 1;
const SIMPLE_VALUE: u32 = 2;
const TENSOR: u32 = 8;
const METADATA: u32 = 9;
/// `SummaryMetadata.plugin_data`, and its fields.
const PLUGIN_DATA: u32 = 1;
const PLUGIN_NAME: u32 = 1;
const CONTENT: u32 = 2;
/// `HParamsPluginData`.
const SESSION_START: u32 = 3;
const SESSION_END: u32 = 4;
/// `SessionStartInfo`.
const HPARAMS: u32 = 1;
const GROUP_NAME: u32 = 4;
const START_TIME: u32 = 5;
/// `SessionEndInfo`, and a `Status`.
const STATUS: u32 = 1;
const END_TIME: u32 = 2;
const SUCCESS: i64 = 1;
const FAILURE: i64 = 2;
/// `google.protobuf.Value`.
const NUMBER: u32 = 2;
const TEXT: u32 = 3;
const TRUTH: u32 = 4;

/// Characters of the name of a run, but for a longer id.
const MAX_NAME: usize = 120;

/// An event file that is being written.
struct EventFile {
    path: PathBuf,
    to: BufWriter<File>,
}

impl EventFile {
    fn create(folder: &Path, start: i64) -> Result<Self, ExportError> {
        // TensorBoard reads files whose names contain `tfevents`, in the order of the seconds behind.
        let path = folder.join(format!("events.out.tfevents.{start:010}.expctl"));
        let made = std::fs::create_dir_all(folder).and_then(|()| File::create_new(&path));
        let to = BufWriter::new(made.map_err(ExportError::write(&path))?);
        let mut file = Self { path, to };
        file.event(&Message::new().double(WALL_TIME, start as f64).text(FILE_VERSION, "brain.Event:2"))?;
        Ok(file)
    }

    fn event(&mut self, event: &Message) -> Result<(), ExportError> {
        write_record(&mut self.to, event.bytes()).map_err(ExportError::write(&self.path))
    }

    fn finish(mut self) -> Result<(), ExportError> {
        self.to.flush().map_err(ExportError::write(&self.path))
    }
}

fn write_record(mut to: impl Write, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u64).to_le_bytes();
    to.write_all(&length)?;
    to.write_all(&masked_crc(&length).to_le_bytes())?;
    to.write_all(data)?;
    to.write_all(&masked_crc(data).to_le_bytes())
}

/// CRC-32C, rotated and shifted, so that a checksum of data that contains checksums stays good.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Write the event file of a trial into a folder of its name below `folder`. `series`: its steps, if it has any.
///
/// # Errors
/// The file cannot be written.
pub fn write_run(folder: &Path, facts: &TrialFacts, series: Option<&StepSeries<'_>>) -> Result<(), ExportError> {
    let start = series.map(StepSeries::start).or(facts.started).unwrap_or_default();
    let mut file = EventFile::create(&folder.join(run_name(facts)), start)?;
    file.event(&hparams_event(
        start as f64,
        "_hparams_/session_start_info",
        SESSION_START,
        &session_start(facts, start),
    ))?;
    let mut last = (0, start as f64);
    for point in series.iter().flat_map(|series| series.points()) {
        last = (point.step, point.at);
        file.event(&scalars(point.step, point.at, &point.values))?;
    }
    let figures = facts.figures();
    if !figures.is_empty() {
        file.event(&scalars(last.0, last.1, &figures))?;
    }
    let status = if facts.outcome.completed() { SUCCESS } else { FAILURE };
    let end = facts.ended.map_or(last.1, |ended| ended as f64);
    if facts.ended.is_some() || facts.outcome.completed() {
        let ended = Message::new().integer(STATUS, status).double(END_TIME, end);
        file.event(&hparams_event(end, "_hparams_/session_end_info", SESSION_END, &ended))?;
    }
    file.finish()
}

/// Folder of a trial: its id, with its swept settings where there are any.
fn run_name(facts: &TrialFacts) -> String {
    let words = if facts.point_words.is_empty() {
        facts.trial.clone()
    } else {
        format!("{}, {}", facts.trial, facts.point_words)
    };
    // A slash would be a folder, and the names of folders end at 255 bytes. The id keeps the name unique.
    let length = facts.trial.chars().count().max(MAX_NAME);
    words.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).take(length).collect()
}

fn scalars(step: u64, at: f64, values: &[(String, f64)]) -> Message {
    let mut summary = Message::new();
    for (tag, value) in values {
        summary = summary.message(VALUE, &Message::new().text(TAG, tag).float(SIMPLE_VALUE, *value as f32));
    }
    Message::new().double(WALL_TIME, at).integer(STEP, step as i64).message(SUMMARY, &summary)
}

/// An event of the plugin for hyperparameters.
fn hparams_event(at: f64, tag: &str, field: u32, info: &Message) -> Message {
    let content = Message::new().message(field, info);
    let plugin = Message::new().text(PLUGIN_NAME, "hparams").data(CONTENT, content.bytes());
    // A tensor of no values (dtype float, shape [0]): only the metadata says something.
    let shape = Message::new().message(2, &Message::new());
    let tensor = Message::new().integer(1, 1).message(2, &shape);
    let metadata = Message::new().message(PLUGIN_DATA, &plugin);
    let value = Message::new().text(TAG, tag).message(TENSOR, &tensor).message(METADATA, &metadata);
    Message::new().double(WALL_TIME, at).message(SUMMARY, &Message::new().message(VALUE, &value))
}

/// The settings of a trial. Trials of one variant and point are a group.
fn session_start(facts: &TrialFacts, start: i64) -> Message {
    let mut info = Message::new();
    let named = [("variant", &facts.variant), ("class", &facts.outcome.class().to_owned())]
        .map(|(name, text)| (name.to_owned(), Value::String(text.clone())));
    let settings = facts.settings.iter().map(|(key, value)| (key.clone(), value.clone()));
    for (key, value) in named.into_iter().chain(settings) {
        let shown = match &value {
            Value::Bool(truth) => Message::new().integer(TRUTH, (*truth).into()),
            Value::Number(number) => Message::new().double(NUMBER, number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => Message::new().text(TEXT, text),
            other => Message::new().text(TEXT, &other.to_string()),
        };
        info = info.message(HPARAMS, &Message::new().text(1, &key).message(2, &shown));
    }
    let group = format!("{} {} {}", facts.job, facts.variant, facts.point_words);
    info.text(GROUP_NAME, group.trim()).double(START_TIME, start as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum of TensorFlow's own example, core/lib/hash/crc32c_test.cc: 32 bytes of zero have the CRC 0x8a9136aa.
    #[test]
    fn records_have_masked_checksums() {
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(masked_crc(&[0; 32]), 0x0fd7_fffa);
        let mut bytes = Vec::new();
        write_record(&mut bytes, b"abc").unwrap();
        assert_eq!(bytes.len(), 8 + 4 + 3 + 4);
        assert_eq!((&bytes[..8], &bytes[12..15]), (&[3, 0, 0, 0, 0, 0, 0, 0][..], &b"abc"[..]));
    }
}
