//! `expctl import`: published results, rates from a log, or settings from a Hydra config, in the project's own form.

use std::path::PathBuf;

use expctl_config::{is_yaml, toml_of_yaml};
use expctl_ledger::{Ledger, MAX_BATCH, MAX_JOB, MAX_RANKS, PublishedRow};
use expctl_settings::Mode;
use expctl_text::format::range;

use super::words;
use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::ledger::{self, LogRow};
use crate::project::Project;

/// Maximum of a count: TOML integers are signed.
const MAX_COUNT: u64 = i64::MAX as u64;

/// Arguments of `expctl import`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  expctl import results.toml\n  expctl import train.log --study mine --config baseline --batch-size 32 --ranks 4"
)]
pub struct ImportArgs {
    /// TOML file of published results (docs/reference/published-results.md describes the form), or a log with progress bars of tqdm
    /// or Lightning; of a Hydra config (YAML) it prints the TOML that stands for it (docs/guide/their-names.md)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace what has the same name with other content
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    log: LogOptions,
}

/// Facts that a log does not contain.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What a log does not say of itself")]
struct LogOptions {
    /// Study: a folder in experiments/
    #[arg(long)]
    study: Option<String>,
    /// Name of the config
    #[arg(long, value_name = "NAME")]
    config: Option<String>,
    /// Number of the job; by default the next one that no job of the ledger has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_JOB))]
    job: Option<u64>,
    /// Samples per rank and step
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_BATCH))]
    batch_size: Option<u64>,
    /// Processes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_RANKS))]
    ranks: Option<u64>,
    /// What a step did: data, zero_loss, forward, forward_backward, train
    #[arg(long, default_value = "train", value_parser = words::<Mode>(MODES))]
    mode: Mode,
    /// Name of this log within its job, where it has several
    #[arg(long, default_value = "")]
    variant: String,
    /// What tables call it [default: the variant, else the config]
    #[arg(long, value_name = "TEXT")]
    method: Option<String>,
    /// What the name of the training bar begins with [default: Epoch or Train]
    #[arg(long, value_name = "NAME")]
    bar: Option<String>,
    /// Loader processes or threads of a rank
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_RANKS))]
    workers: Option<u64>,
    /// Whether batches were copied into page-locked memory
    #[arg(long, value_name = "true|false")]
    pin_memory: Option<bool>,
    /// Samples of the data set
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_COUNT))]
    samples: Option<u64>,
    /// CPUs of the whole job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_COUNT))]
    cpus: Option<u64>,
    /// What it ran on
    #[arg(long, value_name = "TEXT")]
    device: Option<String>,
    /// A profiler ran along
    #[arg(long)]
    profiler: bool,
}

/// Words of [`Mode`].
const MODES: &[&str] = &["data", "zero_loss", "forward", "forward_backward", "train"];

/// Take published results or what a log says into the project; prints the path of the file. Of a YAML config it prints the TOML.
pub fn run(project: &Project, args: &ImportArgs) -> Result<(), Failure> {
    if is_yaml(&args.file) {
        let name = args.file.display().to_string();
        let text = std::fs::read_to_string(&args.file)
            .map_err(|e| Failure::new(Exit::Config, format!("cannot read {name}: {e}")))?;
        out(toml_of_yaml(&name, &text).trim_end());
        return Ok(());
    }
    if args.file.extension().is_some_and(|e| e == "toml") {
        let imported = ledger::import(project, &args.file, args.force)?;
        imported.file.rows.iter().for_each(|row| say_row(row, imported.changed));
        out(imported.path.display());
        return Ok(());
    }
    if !args.file.exists() {
        return Err(Failure::new(Exit::Config, format!("there is no file {}", args.file.display())));
    }
    let (study, row) = args.log.row(project, args)?;
    if !project.study(&study).is_dir() {
        return Err(Failure::new(Exit::Usage, format!("there is no study {study} in {}", project.studies().display())));
    }
    let bar = args.log.bar.as_deref();
    let imported = ledger::import_log(project, &study, &args.file, &row, bar, args.force)?;
    let of_log = |other: &&PublishedRow| other.config == row.config && other.variant == row.variant;
    for other in imported.file.rows.iter().filter(of_log) {
        say_row(other, imported.changed);
        other.notes.iter().for_each(|note| say(format!("  {note}")));
    }
    out(imported.path.display());
    Ok(())
}

fn say_row(row: &PublishedRow, changed: bool) {
    let verb = if changed { "took" } else { "unchanged:" };
    let (low, high) = row.it_per_s;
    let batch = row.global_batch() as f64;
    let (speed, samples) = (range(low, high), range(low * batch, high * batch));
    let reading = row.reading.map(|reading| format!(" ({})", reading.words())).unwrap_or_default();
    let name = format!("job {} {} {}{reading}", row.job_name(), row.config, row.method);
    say(format!("{verb} {name}: {speed} it/s, {samples} samples/s, imported"));
}

/// The number after those of all jobs, measured and published.
fn next_job(project: &Project) -> Result<u64, Failure> {
    let ledger = Ledger::open(project)?;
    let last = ledger.measured_ids().into_iter().chain(ledger.published_jobs()).max();
    Ok(last.unwrap_or(0).saturating_add(1))
}

impl LogOptions {
    fn row(&self, project: &Project, args: &ImportArgs) -> Result<(String, LogRow), Failure> {
        let (Some(study), Some(config), Some(batch_size), Some(ranks)) =
            (&self.study, &self.config, self.batch_size, self.ranks)
        else {
            let missing = [
                ("--study", self.study.is_none()),
                ("--config", self.config.is_none()),
                ("--batch-size", self.batch_size.is_none()),
                ("--ranks", self.ranks.is_none()),
            ];
            let missing: Vec<&str> = missing.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
            let message = format!(
                "{} is not .toml, so it is read as a progress-bar log; that needs {}",
                args.file.display(),
                missing.join(", ")
            );
            return Err(Failure::new(Exit::Usage, message)
                .hint("a file of published results is a .toml file")
                .hint("samples/s, which is what compares, is the rate × batch size × ranks"));
        };
        let named = if self.variant.is_empty() { config } else { &self.variant };
        let row = LogRow {
            job: self.job.map_or_else(|| next_job(project), Ok)?,
            config: config.clone(),
            variant: self.variant.clone(),
            method: self.method.clone().unwrap_or_else(|| named.clone()),
            mode: self.mode,
            ranks,
            batch_size,
            workers: self.workers,
            pin_memory: self.pin_memory,
            samples: self.samples,
            cpus: self.cpus,
            device: self.device.clone(),
            profiler: self.profiler,
        };
        Ok((study.clone(), row))
    }
}
