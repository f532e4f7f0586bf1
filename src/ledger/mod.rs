//! The ledger on the command line: failures with exit codes, settings as text, and import of published results.

mod import;
mod progress_text;
mod settings;

use expctl_ledger::{FindJobError, JobVerdictError, LedgerFolders, MeasuredJob, PublishedError, Run, RunPart};

pub use import::{Imported, ImportedLog, LogRow, import, import_log};
pub use progress_text::{BarKind, LogReading};
pub use settings::{differences_within, flatten_all, flatten_in_job, run_settings, setting_text, step_words};

use crate::exit::{Exit, Failure};
use crate::project::Project;

impl From<&Project> for LedgerFolders {
    fn from(project: &Project) -> Self {
        Self { runs: project.runs().to_owned(), imported: project.imported(), studies: project.studies() }
    }
}

impl From<PublishedError> for Failure {
    fn from(error: PublishedError) -> Self {
        let exit = if matches!(error, PublishedError::Folder { .. }) { Exit::Internal } else { Exit::Config };
        Self::new(exit, error)
    }
}

impl From<FindJobError> for Failure {
    fn from(error: FindJobError) -> Self {
        let list = |all: &[String], separator: &str| all.join(separator);
        let numbers = |ids: &[u64]| ids.iter().map(u64::to_string).collect::<Vec<_>>();
        let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
        match &error {
            FindJobError::NotAJob { .. } => {
                Self::new(Exit::Usage, &error).hint("examples: 392, 428/430, published:392")
            }
            FindJobError::PartlyMeasured { ids, .. } => {
                Self::new(Exit::Refused, &error).hint(format!("name them apart: {}", list(&numbers(ids), " ")))
            }
            FindJobError::OnlyPublished { .. } => Self::new(Exit::Refused, &error),
            FindJobError::Unknown { runs, measured, published, .. } => Self::new(Exit::Refused, &error)
                .hint(format!("measured jobs in {}: {}", runs.display(), or_none(list(&numbers(measured), ", "))))
                .hint(format!("published jobs: {}", or_none(list(published, ", ")))),
            FindJobError::Record(_) => Self::internal(&error),
        }
    }
}

impl From<JobVerdictError> for Failure {
    fn from(error: JobVerdictError) -> Self {
        let exit = match error {
            JobVerdictError::Incomplete { .. } => Exit::Incomplete,
            JobVerdictError::Failed { .. } => Exit::TrialsFailed,
        };
        Self::new(exit, error)
    }
}
