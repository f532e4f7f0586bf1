use expctl_record::{JobDir, JobRecord};
use serde::Serialize;

use crate::ledger::MeasuredJob;
use crate::project::Project;
use crate::report::Table;
use crate::report::format::{self, MISSING, code};
use crate::trace::{NO_OPERATION, RankTrace, Summary, find, longest_of_all};

/// Size of the traces of a trial, bytes as packed, above which a note does not read them: parsed they take many times as much memory, and a
/// note may be written within the memory of a small batch job.
const MAX_BYTES: u64 = 4 << 20;

/// What a note says of the traces of a job.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// A row per variant whose traces were read; none without one.
    pub table: Option<String>,
    /// Why those of other variants were not read, a sentence each.
    pub notes: Vec<String>,
}

/// The operation with the most own time and the longest single call of each profiled variant, from the traces of its first profiled trial;
/// none where no trial had a profiler.
pub fn profile(project: &Project, job: &MeasuredJob) -> Option<Profile> {
    let dir = project.job(job.record.job);
    let columns = [
        "Variant",
        "Trial",
        "Steps × ranks",
        "Most own time",
        "ms/step",
        "of a step",
        "Longest single call",
        "ms",
        "where",
    ];
    let mut table = Table::new(columns).right([2, 4, 5, 7]);
    let (mut profiled, mut rows, mut notes) = (false, 0, Vec::new());
    for (label, runs) in job.by_label() {
        let Some(run) = runs.iter().find(|run| run.trial.settings.profiles()) else { continue };
        profiled = true;
        match summary(&dir, &job.record, &run.trial.id) {
            Ok(summary) => {
                table.row(row(label, &run.trial.id, &summary));
                rows += 1;
            }
            Err(why) => notes.push(format!("{label}: {why}")),
        }
    }
    profiled.then(|| Profile { table: (rows > 0).then(|| table.markdown()), notes })
}

fn row(label: String, trial: &str, summary: &Summary) -> [String; 9] {
    let missing = || MISSING.to_owned();
    let operation = summary.operations.iter().find(|operation| operation.name != NO_OPERATION);
    let call = longest_of_all(&summary.longest);
    let per_step = |ns: i64| format::milliseconds(ns as f64 / summary.steps.max(1) as f64);
    [
        label,
        trial.to_owned(),
        summary.steps.to_string(),
        operation.map_or_else(missing, |operation| code(&operation.name)),
        operation.map_or_else(missing, |operation| per_step(operation.own)),
        operation.map_or_else(missing, |operation| format::share(operation.own as f64, summary.wall as f64)),
        call.map_or_else(missing, |call| code(&call.name)),
        call.map_or_else(missing, |call| format::milliseconds(call.ns as f64)),
        call.map_or_else(missing, |call| call.location()),
    ]
}

/// What the traces of a trial show, or why they were not read.
fn summary(dir: &JobDir, record: &JobRecord, trial: &str) -> Result<Summary, String> {
    let index = record.trials.iter().position(|planned| planned.id == trial);
    let index = index.ok_or_else(|| format!("trial {trial} is not in the job as submitted"))?;
    let found = find(dir, record, &[index]).map_err(|e| e.to_string())?;
    let found = found.first().ok_or_else(|| format!("trial {trial} left no trace"))?;
    let bytes: u64 = found.files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    if bytes > MAX_BYTES {
        let size = format::bytes(bytes as f64);
        return Err(format!("the traces of trial {trial} have {size}, which is more than a note reads"));
    }
    let traces: Result<Vec<RankTrace>, _> = found.files.iter().map(|file| RankTrace::read(file)).collect();
    Summary::new(&traces.map_err(|e| e.to_string())?, &found.attempt).map_err(|e| e.to_string())
}
