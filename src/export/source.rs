//! [`ExportSource`]: the job that is exported, read trial by trial, so that the steps of one trial are in memory at a time.

use expctl_ledger::{AttemptDir, JobDir, JobRecord, JobVerdictError, PublishedRow, Run, RunRecords, RunState};

use super::ExportError;
use super::step_series::StepSeries;
use super::trial_facts::TrialFacts;

/// A job that is exported.
#[derive(Clone, Debug)]
pub enum ExportSource {
    /// Measured here: its folder and its record.
    Measured(JobDir, Box<JobRecord>),
    /// Published by others: its rows, one at least.
    Published(Vec<PublishedRow>),
}

/// Whether every trial of a job completed.
pub type JobVerdict = Result<(), JobVerdictError>;

impl ExportSource {
    /// A job that was measured here.
    ///
    /// # Errors
    /// Its record cannot be read.
    pub fn measured(folder: JobDir) -> Result<Self, ExportError> {
        let record = Box::new(folder.record()?);
        Ok(Self::Measured(folder, record))
    }

    /// The job as tables name it: `12`, `428/430`.
    pub fn job(&self) -> String {
        match self {
            Self::Measured(_, record) => record.job.to_string(),
            Self::Published(rows) => rows.first().map(PublishedRow::job_name).unwrap_or_default(),
        }
    }

    /// Name of the config; of several published ones the first.
    pub fn config(&self) -> &str {
        match self {
            Self::Measured(_, record) => &record.config,
            Self::Published(rows) => rows.first().map_or("", |row| row.config.as_str()),
        }
    }

    /// The record of a job that was measured here.
    pub fn record(&self) -> Option<&JobRecord> {
        match self {
            Self::Measured(_, record) => Some(record),
            Self::Published(_) => None,
        }
    }

    /// When it was submitted, or published; seconds since 1970, 0 where that is not known.
    pub fn submitted(&self) -> i64 {
        match self {
            Self::Measured(_, record) => record.submitted,
            Self::Published(rows) => {
                let day = rows.first().and_then(|row| row.source.date.parse::<jiff::civil::Date>().ok());
                let begun = day.and_then(|day| day.to_zoned(jiff::tz::TimeZone::UTC).ok());
                begun.map_or(0, |begun| begun.timestamp().as_second())
            }
        }
    }

    /// A text that is the same whenever the same submission is exported, and another one for every other.
    pub fn identity(&self) -> String {
        match self {
            Self::Measured(_, record) => format!("{} {} {}", record.config, record.job, record.submitted),
            Self::Published(_) => format!("{} {} published", self.config(), self.job()),
        }
    }

    /// Visit the trials one after another: what is known of each, and its steps if it was measured here. Gives whether all completed.
    ///
    /// # Errors
    /// That of a visit, or a folder of the ledger cannot be read.
    pub fn visit(
        &self,
        mut visit: impl FnMut(&TrialFacts, Option<&StepSeries<'_>>) -> Result<(), ExportError>,
    ) -> Result<JobVerdict, ExportError> {
        match self {
            Self::Measured(folder, record) => visit_runs(folder, record, |run, attempts| {
                visit(&TrialFacts::from_run(record, run), Some(&StepSeries::new(run, attempts)))
            }),
            Self::Published(rows) => {
                for row in rows {
                    visit(&TrialFacts::from_published(row), None)?;
                }
                Ok(Ok(()))
            }
        }
    }
}

/// Visit the runs of a job one after another, each with the attempts of its trial. Gives whether all completed.
///
/// # Errors
/// That of a visit, or a folder of the ledger cannot be read.
pub fn visit_runs(
    folder: &JobDir,
    record: &JobRecord,
    mut visit: impl FnMut(&Run, &[AttemptDir]) -> Result<(), ExportError>,
) -> Result<JobVerdict, ExportError> {
    let (mut unended, mut damaged, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for planned in &record.trials {
        let run = Run::load(folder, record.job, planned, RunRecords::All);
        match &run.state {
            RunState::Completed => {}
            RunState::Failed(_) => failed.push(run.trial.name()),
            RunState::Unreadable(_) => damaged.push(run.trial.name()),
            RunState::Interrupted | RunState::Unfinished | RunState::NotStarted => unended.push(run.trial.name()),
        }
        // A folder that cannot be listed has made the run unreadable already.
        visit(&run, &folder.attempts(&planned.id).unwrap_or_default())?;
    }
    Ok(JobVerdictError::check(record.trials.len(), unended, damaged, failed))
}
