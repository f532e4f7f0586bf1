//! Import of published results: files of the documented form, and rates from the progress text of logs.

use std::fmt::Write;
use std::io::{BufReader, Seek};
use std::path::{Path, PathBuf};

use expctl_ledger::{ProgressText, PublishedFile, RateReading, write_atomic};
use expctl_settings::Mode;
use serde::Serialize;

use super::progress_text::{BarCounts, LogReading, read_log};
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Result of an import.
#[derive(Debug)]
pub struct Imported {
    /// The file in the project.
    pub path: PathBuf,
    /// Its content.
    pub file: PublishedFile,
    /// Whether the file is new or has other content than before.
    pub changed: bool,
}

/// Check a file of published results and copy it into `results/imported/`, under its own name.
///
/// # Errors
/// The file does not have the documented form; or its name is taken by other content, unless `force`.
pub fn import(project: &Project, source: &Path, force: bool) -> Result<Imported, Failure> {
    let name = source
        .file_name()
        .filter(|_| source.extension().is_some_and(|e| e == "toml"))
        .ok_or_else(|| Failure::new(Exit::Usage, format!("{} is not a .toml file", source.display())))?;
    let file = PublishedFile::read(source)?;
    let path = project.imported().join(name);
    let content =
        std::fs::read(source).map_err(|e| Failure::internal(format!("cannot read {}: {e}", source.display())))?;
    let present = std::fs::read(&path).ok();
    if present.as_ref() == Some(&content) {
        return Ok(Imported { path, file, changed: false });
    }
    if present.is_some() && !force {
        return Err(Failure::new(Exit::Usage, format!("{} exists with other content", path.display()))
            .hint("--force replaces it"));
    }
    write_atomic(&path, &content)?;
    Ok(Imported { path, file, changed: true })
}

/// A row for a log: facts that the log itself does not give.
#[derive(Clone, Debug, Serialize)]
pub struct LogRow {
    /// Job number.
    pub job: u64,
    /// Name of the config.
    pub config: String,
    /// Name of the row within its job and config.
    pub variant: String,
    /// Its name in tables.
    pub method: String,
    /// Mode of its steps.
    pub mode: Mode,
    /// Processes.
    pub ranks: u64,
    /// Samples per rank and step.
    pub batch_size: u64,
    /// Loader processes or threads of a rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u64>,
    /// Copies into page-locked memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin_memory: Option<bool>,
    /// Samples of the data set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// CPUs of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u64>,
    /// Device of its steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Whether a profiler was on.
    pub profiler: bool,
}

/// A row of the file that is written.
#[derive(Serialize)]
struct WrittenRow<'a> {
    #[serde(flatten)]
    row: &'a LogRow,
    it_per_s: f64,
    estimator: String,
    reading: RateReading,
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressText>,
}

#[derive(Serialize)]
struct Results<'a> {
    result: Vec<WrittenRow<'a>>,
}

/// Result of an import of a log.
#[derive(Debug)]
pub struct ImportedLog {
    /// The file in the project.
    pub path: PathBuf,
    /// All its rows, including those of other logs of the job.
    pub file: PublishedFile,
    /// Figures of the log.
    pub reading: LogReading,
    /// Whether its rows are new or differ from before.
    pub changed: bool,
}

/// Read the progress text of a log and write its rates as rows of class imported: `results/imported/log_<job>.toml`, which all logs of a job
/// share.
///
/// # Errors
/// Exit 3: the log has no bar of training. Exit 2: its rows exist already with other content, unless `force`.
pub fn import_log(
    project: &Project,
    study: &str,
    log: &Path,
    row: &LogRow,
    training: Option<&str>,
    force: bool,
) -> Result<ImportedLog, Failure> {
    let unreadable = |e: std::io::Error| Failure::new(Exit::Config, format!("cannot read {}: {e}", log.display()));
    let mut file = std::fs::File::open(log).map_err(unreadable)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&mut file).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    let reading = read_log(BufReader::with_capacity(1 << 18, &file), training).map_err(unreadable)?;
    if reading.training_bars == 0 {
        return Err(no_training(log, &reading, training));
    }
    let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let digest = hasher.finalize().to_hex()[..16].to_owned();
    let rows = rows(row, &reading, &name, &digest);
    if rows.is_empty() {
        let message = format!("{}: no bar of training printed a rate or ran for a second", log.display());
        return Err(Failure::new(Exit::Config, message).hint("there is nothing to take a rate from"));
    }
    let path = project.imported().join(format!("log_{}.toml", row.job));
    let text = toml::to_string(&Results { result: rows }).map_err(Failure::internal)?;
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => head(study, row.job, &file),
        Err(e) => return Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
    };
    let there = PublishedFile::parse(&before, &path)?.rows;
    if there.iter().any(|other| other.study != study) {
        let message = format!("{} holds job {} of the study {}", path.display(), row.job, there[0].study);
        return Err(Failure::new(Exit::Usage, message).hint("one job belongs to one study"));
    }
    let same = there.iter().any(|other| other.config == row.config && other.variant == row.variant);
    // As rows, not as text: the file may have been edited. The source is that of the whole file.
    let mut now = PublishedFile::parse(&format!("{}{text}", head(study, row.job, &file)), &path)?.rows;
    now.iter_mut().zip(there.first().iter().cycle()).for_each(|(now, first)| now.source = first.source.clone());
    let own = there.iter().filter(|other| other.config == row.config && other.variant == row.variant);
    let changed = !own.eq(&now);
    let whole = match () {
        () if !changed => before,
        () if same && !force => {
            let what = format!("{} has config {}, variant {:?} already", path.display(), row.config, row.variant);
            return Err(Failure::new(Exit::Usage, what)
                .hint("--variant NAME tells the logs of a job apart; --force replaces what is there"));
        }
        () if same => format!("{}\n\n{text}", without(&before, row)?.trim_end()),
        () => format!("{}\n\n{text}", before.trim_end()),
    };
    let file = PublishedFile::parse(&whole, &path)?;
    if changed {
        write_atomic(&path, whole.as_bytes())?;
    }
    Ok(ImportedLog { path, file, reading, changed })
}

/// The rates of a log, the published one first, so that rows of other logs are compared with the one that was read in the same way.
fn rows<'a>(row: &'a LogRow, reading: &LogReading, log: &str, digest: &str) -> Vec<WrittenRow<'a>> {
    let mut rows = Vec::new();
    let source = format!("read from {log}");
    let missed = missed(reading);
    let mut add = |it_per_s, reading, estimator: &str, notes: Vec<String>, progress| {
        let estimator = estimator.to_owned();
        rows.push(WrittenRow { row, it_per_s, estimator, reading, notes, progress });
    };
    if let Some(naive) = &reading.naive {
        let (n, of) = (naive.of.values().sum::<u64>(), words_of_values(&naive.of));
        let notes = [Some(format!("{source}: mean of the last {n} progress values: {of}")), missed.clone()];
        let estimator = "mean of the last 20 matches of `<number>it/s`, over all bars, warm-up included";
        add(naive.it_per_s, RateReading::LastTwenty, estimator, notes.into_iter().flatten().collect(), None);
    }
    if let Some(last) = reading.last_it_per_s {
        let estimator = "last rate of the training bar, warm-up and validation included";
        add(last, RateReading::Last, estimator, vec![source.clone()], None);
    }
    if let Some((low, middle, high)) = reading.training_rate() {
        let mut notes = vec![format!(
            "{source}: {} steps in {} s of {} training {} before validation, warm-up included; between {low:.4} and {high:.4} it/s, \
             because seconds are printed whole",
            reading.steps,
            reading.elapsed_s,
            reading.counted_bars,
            if reading.counted_bars == 1 { "bar" } else { "bars" }
        )];
        if reading.naive.is_none() {
            notes.extend(missed);
        }
        let progress = ProgressText {
            log: log.to_owned(),
            blake3: digest.to_owned(),
            steps: reading.steps,
            elapsed_s: reading.elapsed_s,
            it_per_s_low: low,
            it_per_s_high: high,
            training_bars: reading.training_bars,
            prints: named(&reading.prints),
            last_20_of: reading.naive.as_ref().map(|naive| named(&naive.of)).unwrap_or_default(),
            missed_s_per_it: reading.inverse,
            missed_other_units: reading.other_units,
            without_rate: reading.without_rate,
        };
        let estimator = "steps over time of the training bars, as far as no validation ran, warm-up included";
        add(middle, RateReading::Training, estimator, notes, Some(progress));
    }
    // What a damaged log prints may be no rate.
    rows.retain(|row| row.it_per_s.is_finite() && row.it_per_s > 0.0);
    rows
}

/// Note on the rates that the published pattern does not match.
fn missed(reading: &LogReading) -> Option<String> {
    let missed = reading.inverse + reading.other_units;
    let nothing = if reading.naive.is_none() { "finds nothing: it " } else { "" };
    (missed > 0).then(|| {
        format!(
            "the pattern `<number>it/s` {nothing}misses {missed} printed rates ({} as s/it, which is how tqdm writes rates below 1; \
             {} in other units)",
            reading.inverse, reading.other_units
        )
    })
}

fn named(kinds: &BarCounts) -> std::collections::BTreeMap<String, u64> {
    kinds.iter().map(|(kind, n)| (kind.name().to_owned(), *n)).collect()
}

fn words(kinds: &BarCounts) -> String {
    kinds.iter().map(|(kind, n)| format!("{} {n}", kind.name())).collect::<Vec<_>>().join(", ")
}

/// `3 from training bars, 17 from validation bars`.
fn words_of_values(kinds: &BarCounts) -> String {
    kinds.iter().map(|(kind, n)| format!("{n} from {} bars", kind.name())).collect::<Vec<_>>().join(", ")
}

fn head(study: &str, job: u64, log: &std::fs::File) -> String {
    let changed = log.metadata().and_then(|m| m.modified()).ok().and_then(|t| jiff::Timestamp::try_from(t).ok());
    let date = changed.unwrap_or_else(jiff::Timestamp::now).strftime("%Y-%m-%d").to_string();
    let mut text = String::from(
        "# Written by expctl import from progress text. docs/reference/published-results.md describes the form.\nschema = 1\n",
    );
    let _ = write!(text, "study = {}\n\n[source]\ntitle = \"Progress text of job {job}\"\n", toml::Value::from(study));
    let _ = write!(text, "from = \"logs, named with each row\"\ndate = \"{date}\"\n");
    // A file needs its list even before the first row.
    text.push_str("\n# rows\n");
    text
}

/// Remove the rows of one variant, and the comments right above them, from a file.
fn without(text: &str, row: &LogRow) -> Result<String, Failure> {
    let mut file: toml_edit::DocumentMut = text.parse().map_err(Failure::internal)?;
    if let Some(rows) = file.get_mut("result").and_then(toml_edit::Item::as_array_of_tables_mut) {
        let is = |other: &toml_edit::Table, key: &str, value: &str| {
            other.get(key).and_then(toml_edit::Item::as_str).unwrap_or("") == value
        };
        rows.retain(|other| !(is(other, "config", &row.config) && is(other, "variant", &row.variant)));
        if rows.is_empty() {
            file.remove("result");
        }
    }
    Ok(file.to_string())
}

fn no_training(log: &Path, reading: &LogReading, training: Option<&str>) -> Failure {
    let path = log.display();
    if reading.prints.is_empty() {
        return Failure::new(Exit::Config, format!("{path} has no progress bar")).hint(
            "looked for what tqdm and Lightning print: `Epoch 0:  10%|█ | 29/286 [00:25<03:41, 1.16it/s]`, or `29it [00:25, 1.16it/s]`",
        );
    }
    let found = words(&reading.prints);
    let wanted = training.map_or_else(|| "Epoch or Train".to_owned(), |name| format!("{name:?}"));
    let mut failure =
        Failure::new(Exit::Config, format!("{path} has no bar whose name begins with {wanted}; it has {found}"));
    if !reading.unknown.is_empty() {
        let names: Vec<String> = reading.unknown.iter().map(|name| format!("{name:?}")).collect();
        failure =
            failure.hint(format!("--bar NAME says which bar is the training's; names found: {}", names.join(", ")));
    }
    failure
}
