use std::path::{Path, PathBuf};

use expctl_record::write_atomic;

use super::job_name::JobName;
use super::{out, say};
use crate::exit::{Exit, Failure};
use crate::ledger::Ledger;
use crate::project::Project;
use crate::trace::{Found, RankTrace, Summary, find, merge};

/// Arguments of `expctl trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A job that was profiled, or one trial of it: 12, 12_3, 12_lazy-r1-0123abcd
    #[arg(value_name = "JOB[_TASK]")]
    job: JobName,
    /// One trial of the job, by its id
    #[arg(long, value_name = "ID")]
    trial: Option<String>,
    /// Where the merged trace goes, of one trial [default: trace.json.gz beside the traces of the ranks]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where the summary goes, of one trial [default: beside the merged trace, with .md at its end]
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

/// Merge what the ranks of trials recorded, and sum it up.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let folder = Ledger::open(project)?.measured(args.job.job)?;
    let record = folder.record()?;
    let name = match &args.trial {
        Some(_) if args.job.task.is_some() => {
            return Err(Failure::new(Exit::Usage, "both JOB_TASK and --trial name a trial: leave one out"));
        }
        Some(trial) => JobName { job: args.job.job, task: Some(trial.clone()) },
        None => args.job.clone(),
    };
    let places = match name.index(&record)? {
        Some(place) => vec![place],
        None => (0..record.trials.len()).collect(),
    };
    let all = find(&folder, &record, &places)?;
    if all.len() > 1 && (args.out.is_some() || args.summary.is_some()) {
        let trials: Vec<&str> = all.iter().map(|found| found.trial.id.as_str()).collect();
        let message =
            format!("job {} has traces of {} trials, and --out and --summary are for one", record.job, all.len());
        return Err(Failure::new(Exit::Usage, message).hint(format!("name one with --trial: {}", trials.join(", "))));
    }
    let mut incomplete = Vec::new();
    for found in &all {
        let path = args.out.clone().unwrap_or_else(|| found.attempt.path().join("trace.json.gz"));
        show(record.job, found, &path, args.summary.as_deref())?;
        if !found.missing.is_empty() {
            let which: Vec<String> =
                found.missing.iter().map(|(rank, cycle)| format!("rank {rank}, cycle {cycle}")).collect();
            incomplete.push(format!("trial {} lacks traces: {}", found.trial.id, which.join("; ")));
        }
    }
    if incomplete.is_empty() { Ok(()) } else { Err(Failure::new(Exit::Incomplete, incomplete.join("\n"))) }
}

fn show(job: u64, found: &Found, path: &Path, summary_path: Option<&Path>) -> Result<(), Failure> {
    let traces: Vec<RankTrace> = found.files.iter().map(|file| RankTrace::read(file)).collect::<Result<_, _>>()?;
    let summary = Summary::of(&traces, &found.attempt)?;
    merge(&traces).write(path)?;
    let text = summary.markdown(job, &found.trial.id);
    let summary_path = summary_path.map_or_else(|| beside(path), Path::to_owned);
    write_atomic(&summary_path, text.as_bytes())?;
    out(text);
    say(format!("trace: {} (open it at https://ui.perfetto.dev)\nsummary: {}", path.display(), summary_path.display()));
    Ok(())
}

/// `trace.md` beside `trace.json.gz`.
fn beside(trace: &Path) -> PathBuf {
    let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    trace.with_file_name(format!("{}.md", stem.strip_suffix(".json").unwrap_or(stem)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_lies_beside_the_trace() {
        for (trace, summary) in
            [("a/trace.json.gz", "a/trace.md"), ("t.json", "t.md"), ("x.gz", "x.md"), ("b/plain", "b/plain.md")]
        {
            assert_eq!(beside(Path::new(trace)), Path::new(summary));
        }
    }
}
