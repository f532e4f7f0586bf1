//! [`PublishedFile`]: results that others published, as a TOML file. It has one `[[result]]` per row of a published table,
//! and one `[[breakdown]]` per published account of where the time of a step goes. The rate of a row may also have been
//! read from the text of a progress bar (tqdm, Lightning) in a log: [`RateReading`], [`ProgressText`].
//!
//! The keys are documented in `docs/reference/published-results.md`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use expctl_settings::{Estimator, Mode};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::PublishedBreakdown;
use crate::published_breakdown::RawBreakdown;

/// Largest job number: those of Slurm have 32 bits.
pub const MAX_JOB: u64 = u32::MAX as u64;
/// Largest number of processes of a row. Its product with [`MAX_BATCH`] is below 2^53, so samples per iteration are exact
/// as a float64.
pub const MAX_RANKS: u64 = 1_000_000;
/// Largest number of samples per rank and iteration of a row.
pub const MAX_BATCH: u64 = 1_000_000_000;

/// Origin of a published figure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSource {
    /// Title of the note or paper.
    pub title: String,
    /// Where it can be found: repository, note id or address.
    pub from: String,
    /// Date of publication, `YYYY-MM-DD`.
    pub date: String,
}

/// One published row: the rate of one method, and its settings. A setting is `None` if the source does not give it.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRow {
    /// Numbers of the jobs in the source, from 1; several where the source gives one figure for them together.
    pub jobs: Vec<u64>,
    /// Name of the config in the source.
    pub config: String,
    /// Study that the row belongs to: a folder in `experiments/`.
    pub study: String,
    /// Name of the row within its job and config; empty if they have one row.
    pub variant: String,
    /// Name of the method in the source.
    pub method: String,
    /// What its steps did, a word of `train.mode`: data, zero_loss, forward, forward_backward, train, emulate.
    pub mode: String,
    /// Lowest and highest published rate, iterations per second; equal if the source gives one.
    pub it_per_s: (f64, f64),
    /// How the source computed the rate, in plain text.
    pub estimator: String,
    /// The estimator of this project that computes a rate of measured steps in the same way. `None`: no estimator does.
    pub matches_estimator: Option<Estimator>,
    /// Variants of this project that run the same again, each as `config.variant`.
    pub repeated_by: Vec<String>,
    /// Number of processes.
    pub ranks: u64,
    /// Samples per rank and iteration.
    pub batch_size: u64,
    /// Loader processes per rank.
    pub workers: Option<u64>,
    /// Size of the data set on disk, 10^9 bytes.
    pub storage_gb: Option<f64>,
    /// Size of a rank's collated batch, MiB.
    pub batch_mib: Option<f64>,
    /// Folder of the data set, as the source names it.
    pub data_dir: Option<String>,
    /// Whether a profiler was on.
    pub profiler: bool,
    /// All known settings, ranks and batch size included, by the keys of a config where such a key exists
    /// (`loader.workers`).
    pub settings: BTreeMap<String, String>,
    /// Known defects and open questions.
    pub notes: Vec<String>,
    /// How the rate was read from progress bars in a log. `None`: it was published as a number.
    pub reading: Option<RateReading>,
    /// Other figures of those progress bars. An imported log has them in its row of [`RateReading::Training`] alone.
    pub progress: Option<ProgressText>,
    /// Origin of the row.
    pub source: PublishedSource,
}

impl PublishedRow {
    /// The jobs as tables name them: `392`, `428/430`.
    pub fn job_name(&self) -> String {
        job_name(&self.jobs)
    }

    /// Samples per iteration over all ranks.
    pub fn global_batch(&self) -> u64 {
        self.ranks * self.batch_size
    }
}

/// Job numbers as tables name them: `392`, `428/430`.
pub(crate) fn job_name(jobs: &[u64]) -> String {
    jobs.iter().map(u64::to_string).collect::<Vec<_>>().join("/")
}

/// How a rate was read from the text that progress bars printed into a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RateReading {
    /// The mean of the last 20 matches of `<number>it/s` in the log: in bars of any kind, and in other lines. The published
    /// script computed it in this way.
    #[serde(rename = "last_20")]
    LastTwenty,
    /// The last rate that a training bar printed.
    #[serde(rename = "last")]
    Last,
    /// Steps of the training bars over their time.
    #[serde(rename = "training")]
    Training,
}

impl RateReading {
    /// The word that files use: the value of the key `reading`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LastTwenty => "last_20",
            Self::Last => "last",
            Self::Training => "training",
        }
    }

    /// The words that a table adds to the name of the method.
    pub const fn words(self) -> &'static str {
        match self {
            Self::LastTwenty => "mean of the last 20 printed",
            Self::Last => "last printed",
            Self::Training => "steps over time",
        }
    }
}

/// What the progress bars in a log say besides the rate. A bar prints its state (step, time, rate) many times.
///
/// The *published pattern* is `<number>it/s`, which [`RateReading::LastTwenty`] looks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressText {
    /// Name of the log.
    pub log: String,
    /// First 16 hexadecimal digits of the log's BLAKE3 hash.
    pub blake3: String,
    /// Steps behind [`RateReading::Training`]: those of the training bars, each up to the last state before a validation.
    /// Rounded where a bar prints them with a suffix (`1.2k`).
    pub steps: f64,
    /// Time of these steps: the sum over the bars of the seconds that each printed. A bar cuts off fractions of a second.
    pub elapsed_s: u64,
    /// Lowest rate that agrees with `steps` and `elapsed_s`, it/s: each bar took a second more than it printed.
    pub it_per_s_low: f64,
    /// Highest rate that agrees with them, it/s: each bar took the time that it printed.
    pub it_per_s_high: f64,
    /// Number of training bars.
    pub training_bars: u64,
    /// Printed rates that the published pattern misses because they are in s/it.
    pub missed_s_per_it: u64,
    /// Printed rates that it misses because they are in other units (`batch/s`, `kit/s`).
    pub missed_other_units: u64,
    /// Printed states without a rate: `?`, or cut off.
    pub without_rate: u64,
    /// Number of printed states, by kind of bar (training, validation, …).
    pub prints: BTreeMap<String, u64>,
    /// How many of the values in the mean of [`RateReading::LastTwenty`] are from each kind of bar; empty where that mean
    /// was not read.
    #[serde(default)]
    pub last_20_of: BTreeMap<String, u64>,
}

/// Why published results cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PublishedError {
    /// A folder of files cannot be listed.
    #[error("cannot read {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file has no row.
    #[error("{}: there is no [[result]] in it", path.display())]
    NoResult {
        /// The file.
        path: PathBuf,
    },
    /// A file does not have the documented form: all its mistakes, never empty.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n       "))]
    Form(Vec<FormMistake>),
}

/// A mistake in a file of published results, `file:line:column: reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormMistake {
    /// The file.
    pub path: PathBuf,
    /// Line and column, from 1. `None`: it has no position.
    pub position: Option<(usize, usize)>,
    /// The mistake.
    pub reason: String,
}

impl std::fmt::Display for FormMistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Collects the mistakes of one file while it is checked, so that all of them are reported at once.
pub(crate) struct Mistakes<'a> {
    text: &'a str,
    path: &'a Path,
    found: Vec<FormMistake>,
}

impl Mistakes<'_> {
    /// Add a mistake at `span`, a byte range of the text, whose start becomes a line and a column.
    pub fn add(&mut self, span: Range<usize>, reason: impl Into<String>) {
        let before = &self.text[..span.start.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        let (path, position) = (self.path.to_owned(), Some((line, column)));
        self.found.push(FormMistake { path, position, reason: reason.into() });
    }
}

/// The version of the file's form that is read here: its key `schema`.
const SCHEMA: u32 = 1;

/// A file of published results, checked.
#[derive(Clone, Debug)]
pub struct PublishedFile {
    /// Its rows, in order.
    pub rows: Vec<PublishedRow>,
    /// Its breakdowns, in order.
    pub breakdowns: Vec<PublishedBreakdown>,
}

/// The file as TOML has it, before its values are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    schema: Spanned<u32>,
    study: String,
    source: PublishedSource,
    #[serde(default)]
    result: Vec<RawRow>,
    #[serde(default)]
    breakdown: Vec<RawBreakdown>,
}

/// A number, or a list of numbers.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or a list of numbers")]
pub(crate) enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    pub fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value],
            Self::More(values) => values,
        }
    }
}

/// A `[[result]]`. Values that are checked have their position in the text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    job: Spanned<OneOrMore<u64>>,
    config: String,
    #[serde(default)]
    variant: String,
    method: String,
    mode: Mode,
    it_per_s: Spanned<OneOrMore<f64>>,
    estimator: String,
    matches_estimator: Option<Estimator>,
    repeated_by: Option<Spanned<Vec<String>>>,
    ranks: Spanned<u64>,
    batch_size: Spanned<u64>,
    workers: Option<u64>,
    pin_memory: Option<bool>,
    prefetch_factor: Option<u64>,
    samples: Option<u64>,
    cpus: Option<u64>,
    allocator: Option<String>,
    device: Option<String>,
    model: Option<String>,
    epochs: Option<u64>,
    #[serde(default)]
    profiler: bool,
    storage_gb: Option<Spanned<f64>>,
    batch_mib: Option<Spanned<f64>>,
    data_dir: Option<String>,
    #[serde(default)]
    other: BTreeMap<String, toml::Value>,
    #[serde(default)]
    notes: Vec<String>,
    reading: Option<RateReading>,
    progress: Option<ProgressText>,
}

impl PublishedFile {
    /// Read and check a file.
    ///
    /// # Errors
    /// The file cannot be read, does not have the documented form, or has no row.
    pub fn read(path: &Path) -> Result<Self, PublishedError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| PublishedError::Read { path: path.to_owned(), source })?;
        let file = Self::parse(&text, path)?;
        if file.rows.is_empty() {
            return Err(PublishedError::NoResult { path: path.to_owned() });
        }
        Ok(file)
    }

    /// Check `text`, the content of the file at `path`. It may be without rows.
    ///
    /// # Errors
    /// [`PublishedError::Form`] if the text does not have the documented form.
    pub fn parse(text: &str, path: &Path) -> Result<Self, PublishedError> {
        let mut mistakes = Mistakes { text, path, found: Vec::new() };
        let raw: RawFile = toml::from_str(text).map_err(|e| {
            match e.span() {
                Some(span) => mistakes.add(span, e.message()),
                None => {
                    let (path, reason) = (path.to_owned(), e.message().to_owned());
                    mistakes.found.push(FormMistake { path, position: None, reason });
                }
            }
            PublishedError::Form(std::mem::take(&mut mistakes.found))
        })?;
        let schema = *raw.schema.get_ref();
        if schema != SCHEMA {
            mistakes.add(raw.schema.span(), format!("schema {schema}; this expctl reads {SCHEMA}"));
        }
        // No two rows of a file may be equal in these.
        let key = |row: &PublishedRow| (row.jobs.clone(), row.config.clone(), row.variant.clone(), row.reading);
        let mut rows: Vec<PublishedRow> = Vec::new();
        for row in raw.result {
            let span = row.job.span();
            let row = row.check(&raw.study, &raw.source, &mut mistakes);
            if rows.iter().any(|r| key(r) == key(&row)) {
                mistakes.add(span, "this job, config and variant stand in the file already");
            }
            rows.push(row);
        }
        let mut breakdowns: Vec<PublishedBreakdown> = Vec::new();
        for breakdown in raw.breakdown {
            let span = breakdown.span();
            let breakdown = breakdown.check(&rows, &raw.study, &raw.source, &mut mistakes);
            if breakdowns.iter().any(|other| other.is_same_table(&breakdown)) {
                let reason =
                    "a breakdown of this job, config and variant from the same table stands in the file already";
                mistakes.add(span, reason);
            }
            breakdowns.push(breakdown);
        }
        if mistakes.found.is_empty() {
            Ok(Self { rows, breakdowns })
        } else {
            Err(PublishedError::Form(mistakes.found))
        }
    }
}

/// The names in a `repeated_by`, each checked to be of the form `config.variant`. A config's name may contain periods.
pub(crate) fn variant_names(given: Option<Spanned<Vec<String>>>, mistakes: &mut Mistakes<'_>) -> Vec<String> {
    let Some(given) = given else { return Vec::new() };
    let span = given.span();
    let names = given.into_inner();
    let has_both =
        |name: &String| name.rsplit_once('.').is_some_and(|(config, variant)| ![config, variant].contains(&""));
    if !names.iter().all(has_both) {
        mistakes.add(span, "repeated_by lists variants here, each as \"config.variant\"");
    }
    names
}

impl RawRow {
    /// The row, with what is wrong added to `mistakes`. A wrong value stays in the row, or is 0: the file is then refused.
    fn check(self, study: &str, source: &PublishedSource, mistakes: &mut Mistakes<'_>) -> PublishedRow {
        let span = self.job.span();
        let jobs = self.job.into_inner().into_vec();
        if jobs.is_empty() || jobs.contains(&0) {
            mistakes.add(span.clone(), "job numbers start at 1");
        }
        if jobs.iter().any(|job| *job > MAX_JOB) {
            mistakes.add(span, format!("job numbers end at {MAX_JOB}"));
        }
        let span = self.it_per_s.span();
        let rates = self.it_per_s.into_inner().into_vec();
        if rates.iter().any(|r| !r.is_finite() || *r <= 0.0) {
            mistakes.add(span.clone(), "it_per_s must be above 0");
        }
        let it_per_s = match rates[..] {
            [one] => (one, one),
            [low, high] if low <= high => (low, high),
            _ => {
                mistakes.add(span, "it_per_s is one number, or [lowest, highest]");
                (0.0, 0.0)
            }
        };
        for (name, value, max) in [("ranks", &self.ranks, MAX_RANKS), ("batch_size", &self.batch_size, MAX_BATCH)] {
            if !(1..=max).contains(value.get_ref()) {
                mistakes.add(value.span(), format!("{name} must be at least 1 and at most {max}"));
            }
        }
        for (name, value) in [("storage_gb", &self.storage_gb), ("batch_mib", &self.batch_mib)] {
            if let Some(value) = value
                && !(*value.get_ref() > 0.0 && value.get_ref().is_finite())
            {
                mistakes.add(value.span(), format!("{name} must be above 0"));
            }
        }
        let repeated_by = variant_names(self.repeated_by, mistakes);
        let estimator_of_reading = (self.reading == Some(RateReading::LastTwenty)).then_some(Estimator::Last20);
        let mut settings = BTreeMap::new();
        let mut set = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                settings.insert(key.to_owned(), value);
            }
        };
        let (ranks, batch_size) = (self.ranks.into_inner(), self.batch_size.into_inner());
        // As in measured rows, whose data set has the name of the study.
        set("data.set", Some(study.to_owned()));
        set("loader.batch_size", Some(batch_size.to_string()));
        set("launch.ranks", Some(ranks.to_string()));
        set("loader.workers", self.workers.map(|v| v.to_string()));
        set("loader.pin_memory", self.pin_memory.map(|v| v.to_string()));
        set("loader.prefetch_factor", self.prefetch_factor.map(|v| v.to_string()));
        set("data.samples", self.samples.map(|v| v.to_string()));
        set("cpus", self.cpus.map(|v| v.to_string()));
        // The source does not say how the ranks of a job share its CPUs. A single rank has them all.
        set("cpus_per_rank", self.cpus.filter(|_| ranks == 1).map(|v| v.to_string()));
        set("allocator", self.allocator);
        set("device", self.device);
        set("model", self.model);
        // A setting, so that a comparison lists it as a difference: two readings of one log give two rates of one run.
        set("reading", self.reading.map(|v| v.name().to_owned()));
        set("epochs", self.epochs.map(|v| v.to_string()));
        for (key, value) in &self.other {
            set(key, Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
        }
        PublishedRow {
            jobs,
            config: self.config,
            study: study.to_owned(),
            variant: self.variant,
            method: self.method,
            mode: self.mode.name().to_owned(),
            it_per_s,
            estimator: self.estimator,
            matches_estimator: self.matches_estimator.or(estimator_of_reading),
            repeated_by,
            ranks,
            batch_size,
            workers: self.workers,
            storage_gb: self.storage_gb.map(Spanned::into_inner),
            batch_mib: self.batch_mib.map(Spanned::into_inner),
            data_dir: self.data_dir,
            profiler: self.profiler,
            settings,
            notes: self.notes,
            reading: self.reading,
            progress: self.progress,
            source: source.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "schema = 1\nstudy = \"s\"\nsource = { title = \"t\", from = \"f\", date = \"2025-01-01\" }\n";

    fn mistake(rows: &str) -> String {
        let error = PublishedFile::parse(&format!("{HEAD}{rows}"), Path::new("p.toml")).unwrap_err();
        assert!(matches!(error, PublishedError::Form(_)), "{error:?}");
        error.to_string()
    }

    fn row(job: &str, rate: &str, more: &str) -> String {
        format!(
            "[[result]]\njob = {job}\nconfig = \"c\"\nmethod = \"m\"\nmode = \"data\"\nit_per_s = {rate}\nestimator = \"e\"\n\
             ranks = 4\nbatch_size = 28\n{more}\n"
        )
    }

    #[test]
    fn a_row_is_read() {
        let text = format!("{HEAD}{}", row("[428, 430]", "[0.26, 0.38]", "workers = 4\nother = { buffer = 224 }"));
        let file = PublishedFile::parse(&text, Path::new("p.toml")).unwrap();
        let row = &file.rows[0];
        assert_eq!((row.job_name().as_str(), row.it_per_s, row.global_batch()), ("428/430", (0.26, 0.38), 112));
        assert_eq!((row.settings["buffer"].as_str(), row.settings["loader.workers"].as_str()), ("224", "4"));
    }

    #[test]
    fn every_mistake_names_its_line() {
        assert!(mistake(&row("1", "-1.0", "")).contains("p.toml:9:12: it_per_s must be above 0"));
        assert!(mistake(&row("1", "[2.0, 1.0]", "")).contains("p.toml:9:12: it_per_s is one number, or"));
        assert!(mistake(&row("1", "1.0", "wrokers = 4")).contains("p.toml:13:1: unknown field `wrokers`"));
        assert!(mistake(&row("4294967296", "1.0", "")).contains("p.toml:5:7: job numbers end at 4294967295"));
        let many = row("1", "1.0", "").replace("batch_size = 28", "batch_size = 9000000000000000000");
        assert!(mistake(&many).contains("p.toml:12:14: batch_size must be at least 1 and at most 1000000000"));
        assert!(mistake(&row("0", "1.0", "storage_gb = 0.0\nbatch_mib = -1.0")).matches("p.toml:").count() == 3);
        assert!(mistake(&format!("{}{}", row("1", "1.0", ""), row("1", "2.0", ""))).contains("p.toml:15:7: this job"));
    }
}
