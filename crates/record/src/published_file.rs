//! The form of published results: a TOML file with one `[[result]]` per row of a published table, and one `[[breakdown]]` per published
//! account of where the time of a step goes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use expctl_record::{Estimator, Mode};
use serde::Deserialize;
use toml::Spanned;

use super::raw_breakdown::RawBreakdown;
use super::{MOST_BATCH, MOST_JOB, MOST_RANKS, Progress, PublishedBreakdown, PublishedRow, Reading, Source};
use crate::exit::{Exit, Failure};

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
    source: Source,
    #[serde(default)]
    result: Vec<RawRow>,
    #[serde(default)]
    breakdown: Vec<RawBreakdown>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or a list of numbers")]
pub(super) enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
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
    reading: Option<Reading>,
    progress: Option<Progress>,
}

impl PublishedFile {
    /// Read and check a file.
    ///
    /// # Errors
    /// Exit 3, with file, line and reason of every mistake.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::new(Exit::Config, format!("cannot read {}: {e}", path.display())))?;
        let file = Self::parse(&text, path)?;
        if file.rows.is_empty() {
            return Err(Failure::new(Exit::Config, format!("{}: there is no [[result]] in it", path.display())));
        }
        Ok(file)
    }

    /// The same of a text that was read from `path`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        let place = Place { text, path: path.to_owned() };
        let raw: RawFile = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or_else(|| path.display().to_string(), |span| place.at(span));
            Failure::new(Exit::Config, format!("{at}: {}", e.message()))
        })?;
        let mut mistakes = Vec::new();
        if *raw.schema.get_ref() != SCHEMA {
            let found = raw.schema.get_ref();
            mistakes.push(format!("{}: schema {found}; this expctl reads {SCHEMA}", place.at(raw.schema.span())));
        }
        let key = |row: &PublishedRow| (row.jobs.clone(), row.config.clone(), row.variant.clone(), row.reading);
        let mut rows: Vec<PublishedRow> = Vec::new();
        for row in raw.result {
            let line = row.job.span();
            let row = row.check(&place, &raw.study, &raw.source, &mut mistakes);
            if rows.iter().any(|r| key(r) == key(&row)) {
                let reason = "this job, config and variant stand in the file already";
                mistakes.push(format!("{}: {reason}", place.at(line)));
            }
            rows.push(row);
        }
        let mut breakdowns: Vec<PublishedBreakdown> = Vec::new();
        for breakdown in raw.breakdown {
            let line = breakdown.span();
            let breakdown = breakdown.check(&place, &rows, &raw.study, &raw.source, &mut mistakes);
            if breakdowns.iter().any(|other| other.is_same_table(&breakdown)) {
                let reason =
                    "a breakdown of this job, config and variant from the same table stands in the file already";
                mistakes.push(format!("{}: {reason}", place.at(line)));
            }
            breakdowns.push(breakdown);
        }
        if mistakes.is_empty() {
            Ok(Self { rows, breakdowns })
        } else {
            Err(Failure::new(Exit::Config, mistakes.join("\n       ")))
        }
    }
}

/// Turns byte offsets into `file:line:column`.
pub(super) struct Place<'a> {
    text: &'a str,
    path: PathBuf,
}

impl Place<'_> {
    pub(super) fn at(&self, span: Range<usize>) -> String {
        let before = &self.text[..span.start.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        format!("{}:{line}:{column}", self.path.display())
    }
}

/// Names of variants here, each as `config.variant`.
pub(super) fn variant_names(
    given: Option<Spanned<Vec<String>>>,
    wrong: &mut dyn FnMut(Range<usize>, &str),
) -> Vec<String> {
    let Some(given) = given else { return Vec::new() };
    let span = given.span();
    let names = given.into_inner();
    let both = |name: &String| name.rsplit_once('.').is_some_and(|(config, variant)| ![config, variant].contains(&""));
    if !names.iter().all(both) {
        wrong(span, "repeated_by lists variants here, each as \"config.variant\"");
    }
    names
}

impl RawRow {
    fn check(self, place: &Place<'_>, study: &str, source: &Source, mistakes: &mut Vec<String>) -> PublishedRow {
        let mut wrong = |span: Range<usize>, reason: &str| mistakes.push(format!("{}: {reason}", place.at(span)));
        let span = self.job.span();
        let jobs = self.job.into_inner().into_vec();
        if jobs.is_empty() || jobs.contains(&0) {
            wrong(span.clone(), "job numbers start at 1");
        }
        if jobs.iter().any(|job| *job > MOST_JOB) {
            wrong(span, &format!("job numbers end at {MOST_JOB}"));
        }
        let span = self.it_per_s.span();
        let rates = self.it_per_s.into_inner().into_vec();
        if rates.iter().any(|r| !r.is_finite() || *r <= 0.0) {
            wrong(span.clone(), "it_per_s must be above 0");
        }
        let it_per_s = match rates[..] {
            [one] => (one, one),
            [low, high] if low <= high => (low, high),
            _ => {
                wrong(span, "it_per_s is one number, or [lowest, highest]");
                (0.0, 0.0)
            }
        };
        for (name, value, most) in [("ranks", &self.ranks, MOST_RANKS), ("batch_size", &self.batch_size, MOST_BATCH)] {
            if !(1..=most).contains(value.get_ref()) {
                wrong(value.span(), &format!("{name} must be at least 1 and at most {most}"));
            }
        }
        for (name, value) in [("storage_gb", &self.storage_gb), ("batch_mib", &self.batch_mib)] {
            if let Some(value) = value
                && !(*value.get_ref() > 0.0 && value.get_ref().is_finite())
            {
                wrong(value.span(), &format!("{name} must be above 0"));
            }
        }
        let repeated_by = variant_names(self.repeated_by, &mut wrong);
        let of_log = (self.reading == Some(Reading::LastTwenty)).then_some(Estimator::Last20);
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
        let failure = PublishedFile::parse(&format!("{HEAD}{rows}"), Path::new("p.toml")).unwrap_err();
        assert_eq!(failure.exit, Exit::Config);
        failure.message
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
