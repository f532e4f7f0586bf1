//! `expctl export`: the records of a job in the formats that other tools read.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use expctl_ledger::{FindJobError, Ledger, LedgerJob};

use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::export::steps::write_steps;
use crate::export::trials::write_trials;
use crate::export::{
    ExportError, ExportSource, ExportTarget, ExportTo, JobVerdict, RunsFormat, TableFormat, junit_text,
    published_metrics, write_runs,
};
use crate::launch::status::Follow;
use crate::project::Project;
use crate::watch::{JobMetrics, View};

/// Arguments of `expctl export`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  expctl export 12 --to csv > steps.csv\n  expctl export 12 --to parquet --table trials\n  expctl export 12 --to tensorboard --out runs/12"
)]
pub struct ExportArgs {
    /// The job: a number, published:392 for the published one of two
    #[arg(value_name = "JOB")]
    job: String,
    /// What to make of it
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: ExportFormat,
    /// Of csv, jsonl and parquet: what a row is [default: steps]
    #[arg(long, value_enum)]
    table: Option<ExportTable>,
    /// File or folder to make [default: stdout for csv, jsonl, openmetrics and junit, else a name with config and job, here]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Replace a file of this name, or the folder of an earlier export
    #[arg(long)]
    force: bool,
}

impl ExportArgs {
    /// The name of the job.
    pub fn name(&self) -> &str {
        &self.job
    }
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// Comma-separated values
    Csv,
    /// A JSON object a line
    Jsonl,
    /// One parquet file
    Parquet,
    /// File store of MLflow (mlruns): a run for each trial, below one for the job
    Mlflow,
    /// Event files of TensorBoard: a run for each trial
    Tensorboard,
    /// Offline runs of Weights & Biases, for wandb sync
    WandbOffline,
    /// Metrics for Prometheus: progress, rates, shares of stages
    Openmetrics,
    /// XML of JUnit: a test case for each trial
    Junit,
}

/// Rows of an exported table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum ExportTable {
    /// Steps of all trials and ranks
    #[default]
    Steps,
    /// Trials: outcome, rates, intervals, stages, settings
    Trials,
}

impl ExportFormat {
    const fn table(self) -> Option<TableFormat> {
        match self {
            Self::Csv => Some(TableFormat::Csv),
            Self::Jsonl => Some(TableFormat::Jsonl),
            Self::Parquet => Some(TableFormat::Parquet),
            _ => None,
        }
    }

    const fn runs(self) -> Option<RunsFormat> {
        match self {
            Self::Mlflow => Some(RunsFormat::Mlflow),
            Self::Tensorboard => Some(RunsFormat::Tensorboard),
            Self::WandbOffline => Some(RunsFormat::Wandb),
            _ => None,
        }
    }

    /// Whether it goes to stdout unless a file is named.
    const fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Jsonl | Self::Openmetrics | Self::Junit)
    }

    /// End of the name of what is made.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Mlflow => "_mlruns",
            Self::Tensorboard => "_tensorboard",
            Self::WandbOffline => "_wandb",
            // The others that are not text.
            _ => ".parquet",
        }
    }
}

/// Write the export; prints the path of what was made, or the export itself. The exit code then says what is missing.
pub fn run(project: &Project, args: &ExportArgs) -> Result<(), Failure> {
    if args.table.is_some() && args.to.table().is_none() {
        return Err(Failure::new(Exit::Usage, "--table is for csv, jsonl and parquet"));
    }
    let source = find(&Ledger::open(project)?, &args.job)?;
    match (&args.out, args.to.is_text()) {
        (None, true) => to_stdout(&source, args)?,
        (Some(path), _) => to_path(&source, args, path)?,
        (None, false) => {
            let table = if args.table == Some(ExportTable::Trials) { "_trials" } else { "" };
            let job = source.job().replace('/', "_");
            let name = format!("{}_{job}{table}{}", source.config(), args.to.suffix());
            to_path(&source, args, Path::new(&name))?
        }
    }
}

/// What is missing in an export that was written: trials that did not complete.
type Missing = Result<(), Failure>;

/// The job of this name. One that was measured here is not read before it is exported.
fn find(ledger: &Ledger, name: &str) -> Result<ExportSource, Failure> {
    if let Ok(id) = name.parse() {
        match ledger.measured(id) {
            Ok(folder) => return Ok(ExportSource::measured(folder)?),
            Err(FindJobError::OnlyPublished { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match ledger.find(name)?.job {
        LedgerJob::Published(rows) => Ok(ExportSource::Published(rows)),
        LedgerJob::Measured(_) | LedgerJob::Pooled(_) => {
            Err(Failure::new(Exit::Usage, format!("{name} is not one job")).hint("export them one by one"))
        }
    }
}

fn to_stdout(source: &ExportSource, args: &ExportArgs) -> Result<Missing, Failure> {
    let Some(format) = args.to.table() else {
        let (text, missing) = text_of(source, args.to)?;
        out(text.trim_end());
        return Ok(missing);
    };
    match write_table(source, args, format, ExportTo::new(std::io::stdout(), "stdout")) {
        // A reader that went away (`| head`) has what it wanted.
        Err(ExportError::Write { source, .. }) if source.kind() == ErrorKind::BrokenPipe => {
            std::process::exit(Exit::Ok as i32)
        }
        other => Ok(other?.map_err(Failure::from)),
    }
}

fn to_path(source: &ExportSource, args: &ExportArgs, path: &Path) -> Result<Missing, Failure> {
    let target = ExportTarget::new(path, args.to.runs().is_some(), args.force)?;
    let missing = if let Some(format) = args.to.runs() {
        write_runs(source, format, &target)?.map_err(Failure::from)
    } else if let Some(format) = args.to.table() {
        write_table(source, args, format, ExportTo::new(create(&target, path)?, path))?.map_err(Failure::from)
    } else {
        let (text, missing) = text_of(source, args.to)?;
        create(&target, path)?.write_all(text.as_bytes()).map_err(|e| cannot_write(path, e))?;
        missing
    };
    out(target.publish(&format!("job {} of {}", source.job(), source.config()))?.display());
    Ok(missing)
}

/// The staged file, which errors call `path`.
fn create(target: &ExportTarget, path: &Path) -> Result<File, Failure> {
    File::create_new(target.path()).map_err(|e| cannot_write(path, e))
}

fn cannot_write(path: &Path, source: std::io::Error) -> Failure {
    ExportError::Write { path: path.to_owned(), source }.into()
}

fn write_table<W: Write + Send>(
    source: &ExportSource,
    args: &ExportArgs,
    format: TableFormat,
    to: ExportTo<W>,
) -> Result<JobVerdict, ExportError> {
    match (args.table.unwrap_or_default(), source) {
        (ExportTable::Trials, _) => write_trials(source, format, to),
        (ExportTable::Steps, ExportSource::Measured(folder, record)) => write_steps(folder, record, format, to),
        (ExportTable::Steps, ExportSource::Published(_)) => Err(ExportError::NoSteps { job: source.job() }),
    }
}

fn text_of(source: &ExportSource, format: ExportFormat) -> Result<(String, Missing), Failure> {
    if format == ExportFormat::Junit {
        let (text, verdict) = junit_text(source)?;
        return Ok((text, verdict.map_err(Failure::from)));
    }
    let ExportSource::Measured(folder, _) = source else { return Ok((published_metrics(source)?, Ok(()))) };
    let mut job = Follow::new(folder)?;
    job.look()?;
    if let Some(trouble) = job.trouble() {
        say(format!("note: Slurm cannot be asked: {trouble}"));
    }
    let view = View::new(&mut job)?;
    Ok((JobMetrics::default().text(&job, &view), job.status().verdict()))
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        match &error {
            ExportError::Exists { .. } => {
                Self::new(Exit::Usage, &error).hint("--force replaces an earlier export; --out PATH names another place")
            }
            ExportError::NotAnExport { .. } => {
                Self::new(Exit::Usage, &error).hint("--out PATH names another place, or remove it yourself")
            }
            ExportError::NoSteps { .. } => Self::new(Exit::Refused, &error)
                .hint("--table trials has its rates; mlflow, tensorboard, wandb-offline, openmetrics and junit take them, too"),
            ExportError::Changed { .. } => Self::new(Exit::Incomplete, &error).hint("export it again"),
            ExportError::Ledger(_) | ExportError::Write { .. } | ExportError::Encode { .. } => {
                Self::new(Exit::Incomplete, &error)
            }
        }
    }
}
