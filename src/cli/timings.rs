use std::ops::Range;
use std::path::{Path, PathBuf};

use super::out;
use crate::exit::{Exit, Failure};
use crate::ledger::{Ledger, MeasuredJob};
use crate::project::Project;
use crate::timings::{Analysis, Columns, Settings, Source, Store, Unit, markdown, read_file, read_job, write_note};

/// Arguments of `expctl timings`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A job of the ledger, or a parquet or CSV file with a row for each batch
    #[arg(value_name = "JOB|FILE")]
    source: String,
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
    unit: Option<Unit>,
    /// Rank whose steps are read, of a job
    #[arg(long, value_name = "N", default_value_t = 0)]
    rank: u32,
    /// Batches that pictures show in detail, from A up to but without B
    #[arg(long, value_name = "A:B", default_value = "1200:1800", value_parser = range)]
    range: Range<u64>,
    /// Follow this period in place of the one that is found
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1024))]
    period: Option<u64>,
    /// Write a note and its pictures into this folder, and print the note's path
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

impl Args {
    /// The job that is meant; none for a file.
    fn job(&self) -> Option<u64> {
        self.source.parse().ok().filter(|_| !Path::new(&self.source).exists())
    }

    /// Whether it needs no project.
    pub fn is_of_file(&self) -> bool {
        self.job().is_none()
    }
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once(':').ok_or("two numbers with a colon between them are expected: 1200:1800")?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| format!("'{text}' is no batch number"));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("there is no batch between these".to_owned()) } else { Ok(range) }
}

/// Say where the time of the batches goes.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let path = Path::new(&args.source);
    let (source, mut store, stem, incomplete) = match args.job() {
        Some(job) => of_job(project, job, args)?,
        None => {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let (source, store) = read_file(path, &columns(args))?;
            (source, store, stem, None)
        }
    };
    let settings = Settings {
        period: args.period.and_then(|period| usize::try_from(period).ok()),
        range: args.range.clone(),
        pictures: args.out.is_some(),
    };
    let analysis = Analysis::of(source, &mut store, &settings)?;
    if args.json {
        out(serde_json::to_string_pretty(&analysis).map_err(Failure::internal)?);
    } else if let Some(folder) = &args.out {
        out(write_note(&analysis, folder, &stem)?.display());
    } else {
        let sections: Vec<String> = markdown(&analysis).into_iter().map(|(_, text)| text).collect();
        out(sections.join("\n\n"));
    }
    incomplete.map_or(Ok(()), Err)
}

fn columns(args: &Args) -> Columns {
    Columns {
        method: args.method.clone(),
        epoch: args.epoch.clone(),
        batch: args.batch.clone(),
        time: args.time.clone(),
        unit: args.unit.unwrap_or_default(),
    }
}

/// The steps of a job, the stem of its note, and what is missing of it.
fn of_job(project: &Project, id: u64, args: &Args) -> Result<(Source, Store, String, Option<Failure>), Failure> {
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
    let job = MeasuredJob::load(&Ledger::open(project)?.measured(id)?)?;
    let ranks = job.runs.iter().map(|run| run.trial.settings.launch.ranks).max().unwrap_or_default();
    if args.rank >= ranks {
        let message = format!("job {id} has up to {ranks} rank(s), counted from 0; there is no rank {}", args.rank);
        return Err(Failure::new(Exit::Usage, message));
    }
    let missing = job.incomplete().count();
    let completed = job.runs.len() - missing;
    if completed == 0 {
        return Err(Failure::new(Exit::Incomplete, format!("no trial of job {id} completed: there are no times")));
    }
    let incomplete = (missing > 0).then(|| {
        Failure::new(
            Exit::Incomplete,
            format!("{missing} of {} trials did not complete and are left out", job.runs.len()),
        )
    });
    let stem = format!("{}_{id}", job.record.config);
    let (source, store) = read_job(&job, args.rank)?;
    Ok((source, store, stem, incomplete))
}
