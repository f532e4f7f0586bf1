//! Exports: the records of a job in the formats that other tools read.
//!
//! * [`ExportSource`] is the job, read trial by trial; [`TrialFacts`] is what is known of a trial, `StepSeries` its steps over all ranks;
//! * [`steps`] and [`trials`] are tables (`table`: CSV, JSON lines, parquet);
//! * `mlflow`, `tensorboard` and `wandb` are folders with a run for each trial, [`openmetrics`] and `junit` are texts.
//!
//! Invariant: an export is complete under its name, or not there ([`ExportTarget`]); published figures are marked as imported in every format.

mod junit;
mod mlflow;
pub mod openmetrics;
mod protobuf;
mod source;
mod step_series;
pub mod steps;
mod table;
mod target;
mod tensorboard;
mod trial_facts;
pub mod trials;
mod wandb;

use std::io;
use std::path::{Path, PathBuf};

use atomic_file::AtomicFileError;
use expctl_ledger::LedgerError;
use parquet::errors::ParquetError;

use self::mlflow::MlflowStore;
use self::openmetrics::Exposition;
pub use self::source::{ExportSource, JobVerdict};
pub use self::table::TableFormat;
use self::table::TableWriteError;
pub use self::target::ExportTarget;
pub use self::trial_facts::{RateFigure, TrialFacts, TrialOutcome};

/// Why an export cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The name of the target is taken.
    #[error("{} exists", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The name is taken by something that no export replaces.
    #[error("{} is not an export of expctl, and stays", path.display())]
    NotAnExport {
        /// The target.
        path: PathBuf,
    },
    /// The job has no steps.
    #[error("job {job} was published by others: its rates and settings are known, its steps are not")]
    NoSteps {
        /// The job.
        job: String,
    },
    /// A trial got steps with columns that the table has not.
    #[error("trial {trial} of job {job} began while the job was exported")]
    Changed {
        /// The job.
        job: u64,
        /// The trial.
        trial: String,
    },
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The system refused to write.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A table cannot be encoded.
    #[error("cannot write {}: {source}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ParquetError,
    },
}

impl ExportError {
    /// The system refused to write this file or folder.
    fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Write { path, source }
    }
}

impl From<AtomicFileError> for ExportError {
    fn from(error: AtomicFileError) -> Self {
        match error {
            AtomicFileError::Create { path, source } | AtomicFileError::Write { path, source } => {
                Self::Write { path, source }
            }
        }
    }
}

/// Where a table goes: a writer, and its name in errors.
pub struct ExportTo<W> {
    writer: W,
    name: PathBuf,
}

impl<W> ExportTo<W> {
    /// To this writer, which errors call `name`.
    pub fn new(writer: W, name: impl Into<PathBuf>) -> Self {
        Self { writer, name: name.into() }
    }

    /// The writer, and what makes errors of its.
    fn into_parts(self) -> (W, impl Fn(TableWriteError) -> ExportError) {
        let name = self.name;
        let failed = move |error: TableWriteError| match error {
            TableWriteError::Io(source) => ExportError::Write { path: name.clone(), source },
            TableWriteError::Parquet(source) => ExportError::Encode { path: name.clone(), source },
        };
        (self.writer, failed)
    }
}

/// A form of a folder with a run for each trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsFormat {
    /// The file store of MLflow.
    Mlflow,
    /// Event files of TensorBoard.
    Tensorboard,
    /// Offline runs of Weights & Biases.
    Wandb,
}

/// Write a run for each trial into a folder that is staged. Gives whether all trials completed.
///
/// # Errors
/// The job cannot be read, or a file not written.
pub fn write_runs(source: &ExportSource, format: RunsFormat, target: &ExportTarget) -> Result<JobVerdict, ExportError> {
    // Without a time the sample has that of its submission.
    let (folder, identity, at) = (target.path(), source.identity(), source.submitted());
    match format {
        RunsFormat::Tensorboard => source.visit(|facts, series| tensorboard::write_run(folder, facts, series)),
        RunsFormat::Wandb => {
            source.visit(|facts, series| wandb::write_run(folder, source.record(), facts, series, &identity, at))
        }
        RunsFormat::Mlflow => {
            let store = MlflowStore::new(folder, target.target(), source.config(), &identity, at)?;
            let mut origin = String::new();
            let verdict = source.visit(|facts, series| {
                origin.clone_from(&facts.origin);
                store.write_trial(facts, series, at)
            })?;
            match source.record() {
                Some(record) => store.write_job(record, &verdict)?,
                None => store.write_published(&source.job(), &origin, at)?,
            }
            Ok(verdict)
        }
    }
}

/// JUnit's XML of a job. Gives whether all trials completed, too.
///
/// # Errors
/// The job cannot be read.
pub fn junit_text(source: &ExportSource) -> Result<(String, JobVerdict), ExportError> {
    let (trials, verdict) = all_facts(source)?;
    let name = format!("expctl {} job {}", source.config(), source.job());
    let submitted = source.record().map(|record| record.submitted);
    Ok((junit::suite(&name, submitted, &trials), verdict))
}

/// Metrics of the trials of a job that others published.
///
/// # Errors
/// The job cannot be read.
pub fn published_metrics(source: &ExportSource) -> Result<String, ExportError> {
    let mut metrics = Exposition::default();
    let (trials, _) = all_facts(source)?;
    trials.iter().for_each(|facts| metrics.add_trial(facts));
    Ok(metrics.text())
}

fn all_facts(source: &ExportSource) -> Result<(Vec<TrialFacts>, JobVerdict), ExportError> {
    let mut trials = Vec::new();
    let verdict = source.visit(|facts, _| {
        trials.push(facts.clone());
        Ok(())
    })?;
    Ok((trials, verdict))
}
