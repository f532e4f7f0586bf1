//! `expctl timings`: how the times of batches change over an epoch, of jobs or of any table with a row for each batch.

use std::ops::Range;
use std::path::{Path, PathBuf};

use expctl_charts::Size;
use expctl_ledger::{Ledger, MeasuredJob};

use crate::console::{out, out_json};
use crate::exit::{Exit, Failure};
use crate::project::Project;
use crate::timings::{
    Analysis, AnalysisOptions, BatchTimes, CellProblem, CurveDetail, LedgerSteps, PictureFiles, TimeUnit,
    TimingsColumns, TimingsError, TimingsSource, markdown, read_file, read_jobs, write_note, write_page,
};

/// Maximum number of batches whose curves are printed in full: some hundred megabytes of JSON.
const MAX_FULL_ROWS: u64 = 1 << 21;

/// Arguments of `expctl timings`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl timings 12\n  expctl timings times.csv --batch step --time seconds")]
pub struct TimingsArgs {
    /// Jobs of the ledger, or a parquet or CSV file with a row for each batch
    #[arg(value_name = "JOB|FILE", required = true)]
    sources: Vec<String>,
    /// Column with what is compared [default: method, if there is one]
    #[arg(long, value_name = "COLUMN")]
    method: Option<String>,
    /// Column with the pass over the data [default: epoch, if there is one]
    #[arg(long, value_name = "COLUMN")]
    epoch: Option<String>,
    /// Column that counts the batches of an epoch from 0 [default: batch or pandas' index, else the order of rows]
    #[arg(long, value_name = "COLUMN")]
    batch: Option<String>,
    /// Column with the time of a batch [default: batch_times, batch_time, time or seconds]
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// Unit of the time column [default: s]
    #[arg(long, value_enum)]
    unit: Option<TimeUnit>,
    /// Rank whose steps are read, of a job
    #[arg(long, value_name = "N", default_value_t = 0)]
    rank: u32,
    /// Batches that pictures show in detail, from A up to but without B
    #[arg(long, value_name = "A:B", default_value = "1200:1800", value_parser = parse_range)]
    range: Range<u64>,
    /// Follow this period in place of the one that is found
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1024))]
    period: Option<u64>,
    /// Write a note and its pictures into this folder, and print the note's path
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the note as one page for a browser, too: pictures tell batch, epoch and time where the pointer is
    #[arg(long, requires = "out")]
    html: bool,
    /// Width and height of the pictures in points, of which a PNG has two by two pixels each
    #[arg(long, value_name = "WxH", requires = "out")]
    size: Option<Size>,
    /// Write what each picture shows as JSON beside it
    #[arg(long, requires = "out")]
    picture_data: bool,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "out")]
    json: bool,
    /// Points of the curves of sorted batches of each epoch [default: reduced]
    #[arg(long, value_enum, requires = "json")]
    curve: Option<CurveDetail>,
}

impl TimingsArgs {
    /// The jobs that are named, each once; `None` where one of the names is that of a file.
    pub fn jobs(&self) -> Option<Vec<u64>> {
        let mut jobs = Vec::new();
        for name in &self.sources {
            let job: u64 = name.parse().ok().filter(|_| !Path::new(name).exists())?;
            if !jobs.contains(&job) {
                jobs.push(job);
            }
        }
        Some(jobs)
    }

    /// Whether a file is read, which needs no project.
    pub fn is_of_file(&self) -> bool {
        self.jobs().is_none()
    }
}

/// Why a text is no range of batches.
#[derive(Debug, thiserror::Error)]
enum RangeError {
    #[error("two numbers with a colon between them are expected: 1200:1800")]
    NoColon,
    #[error("'{0}' is no batch number")]
    NotANumber(String),
    #[error("there is no batch between these")]
    Empty,
}

fn parse_range(text: &str) -> Result<Range<u64>, RangeError> {
    let (from, to) = text.split_once(':').ok_or(RangeError::NoColon)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| RangeError::NotANumber(text.to_owned()));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err(RangeError::Empty) } else { Ok(range) }
}

/// Analyse the times of batches.
pub fn run(project: &Project, args: &TimingsArgs) -> Result<(), Failure> {
    match (args.jobs(), &args.sources[..]) {
        (Some(jobs), _) => of_jobs(project, &jobs, args),
        (None, [file]) => of_file(Path::new(file), args),
        (None, several) => {
            let message = format!("{} are not all jobs: several sources must be", several.join(", "));
            Err(Failure::new(Exit::Usage, message).hint("a file is read alone; its methods are told by a column"))
        }
    }
}

fn of_file(path: &Path, args: &TimingsArgs) -> Result<(), Failure> {
    let (source, mut store) = read_file(path, &columns(args))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    show(source, &mut store, None, &stem, args)
}

/// Print or write the analysis of the rows of a store; `steps` are the ledger's steps of its rows, for jobs.
fn show(
    source: TimingsSource,
    store: &mut BatchTimes,
    steps: Option<&LedgerSteps<'_>>,
    stem: &str,
    args: &TimingsArgs,
) -> Result<(), Failure> {
    let rows: u64 = store.series().iter().map(|series| series.rows()).sum();
    if args.curve == Some(CurveDetail::Full) && rows > MAX_FULL_ROWS {
        let message =
            format!("--curve full has a point for each batch: {rows} are too many, {MAX_FULL_ROWS} are possible");
        return Err(Failure::new(Exit::Usage, message));
    }
    let options = AnalysisOptions {
        period: args.period.and_then(|period| usize::try_from(period).ok()),
        range: args.range.clone(),
        pictures: args.out.is_some(),
        curve: args.curve.unwrap_or_default(),
    };
    let analysis = Analysis::new(source, store, steps, &options)?;
    if args.json {
        out_json(&analysis)?;
    } else if let Some(folder) = &args.out {
        let note = write_note(&analysis, folder, stem, PictureFiles { size: args.size, data: args.picture_data })?;
        out(note.display());
        if args.html {
            out(write_page(&analysis, &note)?.display());
        }
    } else {
        let sections = markdown(&analysis).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty());
        out(sections.collect::<Vec<_>>().join("\n\n"));
    }
    Ok(())
}

fn columns(args: &TimingsArgs) -> TimingsColumns {
    TimingsColumns {
        method: args.method.clone(),
        epoch: args.epoch.clone(),
        batch: args.batch.clone(),
        time: args.time.clone(),
        unit: args.unit.unwrap_or_default(),
    }
}

/// Analyse the steps of some jobs. Trials that did not complete are left out, which the exit code says.
fn of_jobs(project: &Project, ids: &[u64], args: &TimingsArgs) -> Result<(), Failure> {
    let named = [
        ("method", args.method.is_some()),
        ("epoch", args.epoch.is_some()),
        ("batch", args.batch.is_some()),
        ("time", args.time.is_some()),
        ("unit", args.unit.is_some()),
    ];
    if let Some((name, _)) = named.iter().find(|(_, given)| *given) {
        let message = format!("--{name} is for files; the steps of a job have columns of their own");
        return Err(Failure::new(Exit::Usage, message));
    }
    let ledger = Ledger::open(project)?;
    let mut jobs = Vec::new();
    for id in ids {
        let job = MeasuredJob::load(&ledger.measured(*id)?)?;
        let ranks = job.runs.iter().map(|run| run.trial.settings.launch.ranks).max().unwrap_or_default();
        if args.rank >= ranks {
            let message = format!("job {id} has up to {ranks} rank(s), counted from 0; there is no rank {}", args.rank);
            return Err(Failure::new(Exit::Usage, message));
        }
        if job.incomplete().count() == job.runs.len() {
            return Err(Failure::new(Exit::Incomplete, format!("no trial of job {id} completed: there are no times")));
        }
        jobs.push(job);
    }
    let (source, mut store, steps) = read_jobs(&jobs, args.rank)?;
    show(source, &mut store, Some(&steps), &stem(&jobs), args)?;
    let missing: usize = jobs.iter().map(|job| job.incomplete().count()).sum();
    let all: usize = jobs.iter().map(|job| job.runs.len()).sum();
    match missing {
        0 => Ok(()),
        _ => {
            let message = format!("{missing} of {all} trials did not complete and are left out");
            Err(Failure::new(Exit::Incomplete, message))
        }
    }
}

/// Stem of the name of the note of some jobs: `fig1_12`, `fig1_12_13`; `jobs_12_13` where they are of several configs.
fn stem(jobs: &[MeasuredJob]) -> String {
    let config = jobs.first().map_or("jobs", |job| job.record.config.as_str());
    let one = jobs.iter().all(|job| job.record.config == config);
    let numbers: String = jobs.iter().map(|job| format!("_{}", job.record.job)).collect();
    format!("{}{numbers}", if one { config } else { "jobs" })
}

impl From<TimingsError> for Failure {
    fn from(error: TimingsError) -> Self {
        let exit = if matches!(error, TimingsError::Spool { .. }) { Exit::Internal } else { Exit::Config };
        let failure = Self::new(exit, &error);
        match &error {
            TimingsError::NoColumn { meaning, have, .. } => {
                let list = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
                let failure = match have.as_slice() {
                    [only] if only.contains([';', '\t']) => {
                        failure.hint("fields are separated by commas; here it seems to be ; or tabs")
                    }
                    _ => failure,
                };
                failure
                    .hint(format_args!("columns that are there: {list}"))
                    .hint(format_args!("--{meaning} NAME says which one holds the {meaning}"))
            }
            TimingsError::Cell { problem, .. } => match problem {
                problem if problem.is_of_batch() => {
                    failure.hint("--batch NAME says which column counts the batches, from 0")
                }
                CellProblem::Null => failure.hint("leave such rows out of the file"),
                CellProblem::UnsupportedType { .. } => failure,
                _ => failure.hint("times are finite and not negative"),
            },
            TimingsError::SameColumn { .. } => failure.hint("leave out --epoch: the rows are of one epoch then"),
            TimingsError::ManySeries { .. } => failure.hint("is --epoch or --method the column that was meant?"),
            TimingsError::Repeated { .. } => {
                failure.hint("--epoch NAME says which column tells passes over the data apart")
            }
            TimingsError::Spool { .. } => {
                failure.hint("8 bytes a row are needed (16 out of order); TMPDIR names another folder")
            }
            _ => failure,
        }
    }
}
