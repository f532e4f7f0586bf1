//! The ledger on the command line: failures with exit codes, settings as text, what is cached of jobs, and import of published results.

mod import;
mod job_cache;
mod job_files;
mod listed_job;
mod progress_text;
mod settings;

use expctl_ledger::{FindJobError, JobVerdictError, LedgerFolders, PublishedError, RunTotals, StepSeconds};
use expctl_text::format;
pub use import::{Imported, ImportedLog, LogRow, import, import_log};
pub use job_cache::{CachedValue, JobCache};
pub use job_files::{FilesOf, JobFiles, TrialFiles};
pub use listed_job::{ListedJob, state_words};
pub use progress_text::{BarKind, LogReading, read_log};
pub use settings::{
    all_keys, differences_within, draw_of, flatten_all, flatten_in_job, run_settings, says_something, setting_text,
    shown_setting, step_words, surroundings_text,
};

use crate::exit::{Exit, Failure};
use crate::project::Project;

/// One sentence: the seconds of the measured steps by stage, and those of all steps.
pub fn totals_sentence(totals: &RunTotals) -> String {
    let over = if totals.ranks == 1 { String::new() } else { format!(" (mean of {} ranks)", totals.ranks) };
    let (measured, run) = (&totals.measured, &totals.run);
    format!(
        "In seconds, of a rank{over}: {} in {} measured steps{}; {} in all {} steps with the warm-up{}.",
        format::seconds(measured.wall_s),
        format::rate(measured.steps),
        exposed_words(measured),
        format::seconds(run.wall_s),
        format::rate(run.steps),
        exposed_words(run),
    )
}

/// `, exposed collate 4 s, forward 2 s`; empty if no step waited for a stage.
fn exposed_words(steps: &StepSeconds) -> String {
    let waited = steps.stages.iter().filter(|of| of.exposed_s > 0.0);
    let words: Vec<String> = waited.map(|of| format!("{} {}", of.stage, format::seconds(of.exposed_s))).collect();
    if words.is_empty() { String::new() } else { format!(", exposed {}", words.join(", ")) }
}

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

#[cfg(test)]
mod tests {
    use expctl_ledger::{Stage, StageSeconds};

    use super::*;

    #[test]
    fn totals_are_said_in_one_sentence() {
        let steps = |steps, wall_s, collate_s, forward_s| {
            let stages = [(Stage::Collate, collate_s), (Stage::Forward, forward_s)];
            let stages = stages.map(|(stage, exposed_s)| StageSeconds { stage, exposed_s, busy_s: 4.0 * exposed_s });
            StepSeconds { steps, wall_s, stages: stages.to_vec() }
        };
        let totals = RunTotals { ranks: 2, measured: steps(20.0, 2.0, 1.2, 0.5), run: steps(21.0, 3.0, 1.26, 0.525) };
        assert_eq!(
            totals_sentence(&totals),
            "In seconds, of a rank (mean of 2 ranks): 2 s in 20 measured steps, exposed collate 1.2 s, forward 500 ms; \
             3 s in all 21 steps with the warm-up, exposed collate 1.3 s, forward 525 ms."
        );
    }
}
