//! Published results: a TOML file with one `[[result]]` per row of a published table, and one `[[breakdown]]` per published account of where
//! the time of a step goes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use expctl_settings::{Estimator, Mode};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::PublishedBreakdown;
use crate::published_breakdown::RawBreakdown;

/// The largest job number: Slurm's are of 32 bits.
pub const MAX_JOB: u64 = u32::MAX as u64;
/// Largest number of processes of a row. The product with [`MAX_BATCH`], which every rate is multiplied by, stays exact.
pub const MAX_RANKS: u64 = 1_000_000;
/// Largest number of samples per rank and iteration of a row.
pub const MAX_BATCH: u64 = 1_000_000_000;

/// Origin of a published figure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSource {
    /// Title of the note or paper.
    pub title: String,
    /// Repository, note id or address.
    pub from: String,
    /// Date of publication, `YYYY-MM-DD`.
    pub date: String,
}

/// One published row.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRow {
    /// Job numbers; several where the source gives one figure for them together.
    pub jobs: Vec<u64>,
    /// Name of the config.
    pub config: String,
    /// Folder of the study in experiments/.
    pub study: String,
    /// Name of the row within its job; empty if the job has one row.
    pub variant: String,
    /// Its name in the source.
    pub method: String,
    /// Mode of its steps: data, forward, forward_backward, train.
    pub mode: String,
    /// Lowest and highest published rate, iterations per second; equal if the source gives one.
    pub it_per_s: (f64, f64),
    /// How the source computed the rate.
    pub estimator: String,
    /// The estimator of this project that computes a rate of measured steps in the same way.
    pub matches_estimator: Option<Estimator>,
    /// Variants of this project that repeat the row, as `config.variant`.
    pub repeated_by: Vec<String>,
    /// Processes.
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
    /// All other known settings, by the keys of a config where such a key exists.
    pub settings: BTreeMap<String, String>,
    /// Known defects and open questions.
    pub notes: Vec<String>,
    /// How the rate was read from progress text. `None`: it was published as a number.
    pub reading: Option<RateReading>,
    /// Further figures of that text.
    pub progress: Option<ProgressText>,
    /// Its origin.
    pub source: PublishedSource,
}

impl PublishedRow {
    /// The job as tables name it: `392`, `428/430`.
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

/// How a rate was read from progress text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RateReading {
    /// The mean of the last 20 matches of `<number>it/s`, as the published script took it.
    #[serde(rename = "last_20")]
    LastTwenty,
    /// The last rate that the training bar printed.
    #[serde(rename = "last")]
    Last,
    /// Steps over time of the training bars.
    #[serde(rename = "training")]
    Training,
}

impl RateReading {
    /// The word used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LastTwenty => "last_20",
            Self::Last => "last",
            Self::Training => "training",
        }
    }

    /// Words that a table adds to the method.
    pub const fn words(self) -> &'static str {
        match self {
            Self::LastTwenty => "mean of the last 20 printed",
            Self::Last => "last printed",
            Self::Training => "steps over time",
        }
    }
}

/// Figures of a log's progress text besides the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressText {
    /// Name of the log.
    pub log: String,
    /// First 16 hex digits of its BLAKE3.
    pub blake3: String,
    /// Steps of the training bars that count.
    pub steps: f64,
    /// Whole seconds printed with them, summed.
    pub elapsed_s: u64,
    /// Lowest rate that these allow, it/s.
    pub it_per_s_low: f64,
    /// Highest rate that these allow, it/s.
    pub it_per_s_high: f64,
    /// Bars of training.
    pub training_bars: u64,
    /// Printed rates in s/it, which the published pattern misses.
    pub missed_s_per_it: u64,
    /// Printed rates in other units, which it misses too.
    pub missed_other_units: u64,
    /// States without a rate.
    pub without_rate: u64,
    /// States printed, by kind of bar.
    pub prints: BTreeMap<String, u64>,
    /// Values of each kind of bar in the published mean.
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
    /// A file does not have the documented form.
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

/// Collects the mistakes of one file, at byte offsets of its text.
pub(crate) struct Mistakes<'a> {
    text: &'a str,
    path: &'a Path,
    found: Vec<FormMistake>,
}

impl Mistakes<'_> {
    /// Add a mistake at a range of bytes.
    pub fn add(&mut self, span: Range<usize>, reason: impl Into<String>) {
        let before = &self.text[..span.start.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        let (path, position) = (self.path.to_owned(), Some((line, column)));
        self.found.push(FormMistake { path, position, reason: reason.into() });
    }
}

/// Version of the form.
const SCHEMA: u32 = 1;

/// A file of published results.
#[derive(Clone, Debug)]
pub struct PublishedFile {
    /// Its rows, in order.
    pub rows: Vec<PublishedRow>,
    /// Its breakdowns, in order.
    pub breakdowns: Vec<PublishedBreakdown>,
}

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
    /// The file cannot be read, does not have the documented form (with all mistakes), or has no row.
    pub fn read(path: &Path) -> Result<Self, PublishedError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| PublishedError::Read { path: path.to_owned(), source })?;
        let file = Self::parse(&text, path)?;
        if file.rows.is_empty() {
            return Err(PublishedError::NoResult { path: path.to_owned() });
        }
        Ok(file)
    }

    /// Check a text that was read from `path`, which may have no row yet.
    ///
    /// # Errors
    /// The text does not have the documented form.
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

/// Names of variants of this project, each as `config.variant`.
pub(crate) fn variant_names(given: Option<Spanned<Vec<String>>>, mistakes: &mut Mistakes<'_>) -> Vec<String> {
    let Some(given) = given else { return Vec::new() };
    let span = given.span();
    let names = given.into_inner();
    let both = |name: &String| name.rsplit_once('.').is_some_and(|(config, variant)| ![config, variant].contains(&""));
    if !names.iter().all(both) {
        mistakes.add(span, "repeated_by lists variants here, each as \"config.variant\"");
    }
    names
}

impl RawRow {
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
        for (name, value, most) in [("ranks", &self.ranks, MAX_RANKS), ("batch_size", &self.batch_size, MAX_BATCH)] {
            if !(1..=most).contains(value.get_ref()) {
                mistakes.add(value.span(), format!("{name} must be at least 1 and at most {most}"));
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
        let of_log = (self.reading == Some(RateReading::LastTwenty)).then_some(Estimator::Last20);
        let mut settings = BTreeMap::new();
        let mut set = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                settings.insert(key.to_owned(), value);
            }
        };
        let (ranks, batch_size) = (self.ranks.into_inner(), self.batch_size.into_inner());
        // Measured rows name their data set after the study, too.
        set("data.set", Some(study.to_owned()));
        set("loader.batch_size", Some(batch_size.to_string()));
        set("launch.ranks", Some(ranks.to_string()));
        set("loader.workers", self.workers.map(|v| v.to_string()));
        set("loader.pin_memory", self.pin_memory.map(|v| v.to_string()));
        set("loader.prefetch_factor", self.prefetch_factor.map(|v| v.to_string()));
        set("data.samples", self.samples.map(|v| v.to_string()));
        set("cpus", self.cpus.map(|v| v.to_string()));
        // How several ranks share the CPUs of a job is not published; with one rank there is nothing to share.
        set("cpus_per_rank", self.cpus.filter(|_| ranks == 1).map(|v| v.to_string()));
        set("allocator", self.allocator);
        set("device", self.device);
        set("model", self.model);
        // Two ways to read one text make two numbers, and that is no effect of the method.
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
            matches_estimator: self.matches_estimator.or(of_log),
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
