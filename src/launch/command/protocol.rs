//! The lines that a program writes to `EXPCTL_SOCKET`. Invariant: any bytes make a record or a reason, and nothing is guessed:
//! an unknown key, an unknown stage or a number that cannot be is a reason.

use std::collections::BTreeMap;
use std::fmt;

use expctl_record::{PerStage, ProgramFacts, Stage};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

/// Version of the lines.
pub const PROTOCOL: u32 = 1;
/// The longest line, bytes, its end included.
pub const MAX_LINE: usize = 64 * 1024;
/// The longest time, ns (eleven days), and the largest count. Beyond these a number is not a measurement.
const MAX_NS: u64 = 1_000_000_000_000_000;
const MAX_COUNT: u64 = 1 << 53;
/// How many times the step its exposed stages may add up to. Stages that overlap, or were counted twice, are for the report to show;
/// beyond this they are in another unit.
const MAX_EXPOSED: u64 = 100;
/// What clocks may differ by where a step takes hardly any time, ns.
const CLOCK_STEP_NS: u64 = 1_000_000;
/// Characters of a line or of a program's message that an outcome quotes.
const QUOTED: usize = 160;

/// One line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Record {
    /// The first line of a rank: who it is.
    Run(Box<RunRecord>),
    /// A step that is done.
    Step(Box<StepLine>),
    /// Figures that are known later than the first line.
    Note(Counts),
    /// The last line: how the rank ended.
    End(EndRecord),
}

/// Who a rank is, and what runs in it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// What the program is called.
    pub program: String,
    /// Versions of packages, by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Settings of its own.
    #[serde(default)]
    pub settings: BTreeMap<String, Json>,
    /// Device of the steps; the processor, if it does not say.
    #[serde(default)]
    pub device: Option<String>,
    /// Backend of its process group.
    #[serde(default)]
    pub backend: Option<String>,
    /// What it counts.
    #[serde(default)]
    pub counts: Counts,
}

/// What a program counts besides its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Samples of one epoch, over all ranks.
    #[serde(default)]
    pub samples_per_epoch: Option<u64>,
    /// Samples that it can choose from.
    #[serde(default)]
    pub samples_total: Option<u64>,
    /// Bytes that its data takes on disk.
    #[serde(default)]
    pub stored_bytes: Option<u64>,
    /// The largest resident set of the rank, pages of files too, bytes.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
}

/// A step, as the ledger has it (`StepRecord`); whether it is measured follows from its number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepLine {
    /// Number of the step, from 0, warm-up included.
    pub step: u64,
    /// Epoch that its batch is of.
    #[serde(default)]
    pub epoch: u64,
    /// Start of the step since the rank's loop began, ns.
    pub start_ns: u64,
    /// Length of the step, ns.
    pub wall_ns: u64,
    /// Samples in the rank's batch.
    pub samples: u64,
    /// Bytes taken from the store.
    #[serde(default)]
    pub bytes_read: u64,
    /// Bytes of the batch.
    #[serde(default)]
    pub bytes_batch: u64,
    /// Bytes copied to the device.
    #[serde(default)]
    pub bytes_to_device: u64,
    /// Loss; none where there is none.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Time worked on each stage, ns, summed over the threads and processes of the rank.
    #[serde(default)]
    pub busy: Stages,
    /// Time for which the step waited on each stage, ns. More than `wall_ns` together where stages overlap or were counted twice;
    /// at most [`MAX_EXPOSED`] times as much.
    #[serde(default)]
    pub exposed: Stages,
}

/// How a rank ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRecord {
    /// What went wrong; none if nothing did.
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

/// The record in a line, without the line's end.
///
/// # Errors
/// Why it is none.
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
        all.into_iter().try_for_each(|(name, n)| at_most(name, n.unwrap_or(0), MAX_COUNT))
    }

    /// Take what `later` says, and the larger memory.
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
        at_most("start_ns", self.start_ns, MAX_NS)?;
        at_most("wall_ns", self.wall_ns, MAX_NS)?;
        let counts = [
            ("epoch", self.epoch),
            ("samples", self.samples),
            ("bytes_read", self.bytes_read),
            ("bytes_batch", self.bytes_batch),
            ("bytes_to_device", self.bytes_to_device),
        ];
        counts.into_iter().try_for_each(|(name, n)| at_most(name, n, MAX_COUNT))?;
        for (stage, ns) in self.busy.0.iter().chain(self.exposed.0.iter()) {
            at_most(stage.name(), *ns, MAX_NS)?;
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

fn at_most(name: &str, value: u64, most: u64) -> Result<(), String> {
    if value > most { Err(format!("`{name}` = {value} is more than {most}")) } else { Ok(()) }
}

/// What was written, for an outcome of one line: cut, and with whatever could disturb a terminal escaped.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(line: &str) -> String {
        parse(line.as_bytes()).unwrap_err()
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
