//! `expctl trace`: the traces of the ranks of a trial in one file, with a summary; of several trials, a comparison of their operations.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use expctl_ledger::{JobRecord, Ledger, write_atomic};
use expctl_text::Table;
use serde_json::{Value as Json, json};

use super::JobName;
use crate::console::{out, out_json, say};
use crate::exit::{Exit, Failure};
use crate::project::Project;
use crate::trace::{
    RankTrace, Summary, TraceComparison, TraceError, TraceSide, TrialTraces, find, merge, pairs, write_for_tensorboard,
};

/// Form of the output on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TraceForm {
    /// Pipe tables for a note
    Markdown,
    /// Boxed tables for a terminal
    Table,
    /// Everything, raw values
    Json,
}

impl TraceForm {
    /// A table in this form.
    fn table(self, table: &Table) -> String {
        if self == Self::Table { table.terminal() } else { table.markdown() }
    }
}

/// Arguments of `expctl trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl trace 12\n  expctl trace 12 13")]
pub struct TraceArgs {
    /// A job that was profiled, or one trial of it: 12, 12_3, 12_lazy-r1-0123abcd. Several are compared, with the first as baseline
    #[arg(required = true, value_name = "JOB[_TASK]")]
    jobs: Vec<JobName>,
    /// One trial of the job, by its id
    #[arg(long, value_name = "ID")]
    trial: Option<String>,
    /// Where the merged trace goes, of one trial [default: trace.json.gz beside the traces of the ranks]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where the summary goes as markdown, of one trial [default: beside the merged trace, with .md at its end]; of several jobs the
    /// comparison, which is not written without it
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Write the traces of the ranks once more into a folder per trial in DIR, as TensorBoard's plugin of PyTorch reads them
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
    /// Form of the output [default: table on a terminal, else markdown]
    #[arg(long, value_enum)]
    format: Option<TraceForm>,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl TraceArgs {
    /// The numbers of the jobs.
    pub fn numbers(&self) -> Vec<u64> {
        self.jobs.iter().map(|name| name.job).collect()
    }

    fn form(&self) -> TraceForm {
        match self.format {
            _ if self.json => TraceForm::Json,
            Some(form) => form,
            None if std::io::stdout().is_terminal() => TraceForm::Table,
            None => TraceForm::Markdown,
        }
    }
}

/// A job with the traces of its trials, or of the one that was named.
struct ProfiledJob {
    record: JobRecord,
    found: Vec<TrialTraces>,
    /// Whether one trial was named, not the whole job.
    one_trial: bool,
}

/// A trial with the summary of its traces.
struct SummarizedTrial<'a> {
    of: &'a ProfiledJob,
    found: &'a TrialTraces,
    summary: Summary,
}

/// Merge the traces of the ranks of trials and sum them up; compare those of several.
pub fn run(project: &Project, args: &TraceArgs) -> Result<(), Failure> {
    let several = args.jobs.len() > 1;
    if several && (args.out.is_some() || args.trial.is_some()) {
        let message = "--out and --trial are for one job; several are compared, and nothing is merged";
        return Err(Failure::new(Exit::Usage, message).hint("name single trials as JOB_TASK: 12_0 12_1"));
    }
    let ledger = Ledger::open(project)?;
    let jobs: Vec<ProfiledJob> =
        args.jobs.iter().map(|name| profiled(&ledger, args, name)).collect::<Result<_, _>>()?;
    let all: Vec<(&ProfiledJob, &TrialTraces)> =
        jobs.iter().flat_map(|job| job.found.iter().map(move |found| (job, found))).collect();
    if let ([job], true) = (&jobs[..], all.len() > 1 && (args.out.is_some() || args.summary.is_some())) {
        let trials: Vec<&str> = all.iter().map(|(_, found)| found.trial.id.as_str()).collect();
        let message =
            format!("job {} has traces of {} trials, and --out and --summary are for one", job.record.job, all.len());
        return Err(Failure::new(Exit::Usage, message).hint(format!("name one with --trial: {}", trials.join(", "))));
    }
    let form = args.form();
    let mut shown: Vec<SummarizedTrial<'_>> = Vec::new();
    for (of, found) in all {
        let traces: Vec<RankTrace> = found.files.iter().map(|file| RankTrace::read(file)).collect::<Result<_, _>>()?;
        let summary = Summary::new(&traces, &found.attempt)?;
        if let Some(folder) = &args.tensorboard {
            let folder = folder.join(format!("{}_{}", of.record.job, found.trial.id));
            traces.iter().try_for_each(|trace| write_for_tensorboard(trace, &folder).map(drop))?;
            say(format!("for TensorBoard: {}", folder.display()));
        }
        if !several {
            let path = args.out.clone().unwrap_or_else(|| found.attempt.path().join("trace.json.gz"));
            write(of.record.job, found, &traces, &summary, &path, args.summary.as_deref())?;
            if form != TraceForm::Json {
                out(summary.text(of.record.job, &found.trial.id, &|table| form.table(table)));
            }
        }
        shown.push(SummarizedTrial { of, found, summary });
    }
    let sides = sides(&shown);
    // Between single trials the first one is the baseline.
    let baseline = jobs.first().filter(|job| !job.one_trial).and_then(|job| job.record.baseline.as_deref());
    let pairs = pairs(&sides, baseline);
    if several && pairs.is_empty() {
        let message = "these names are of one variant of one job: there is nothing to compare it with";
        return Err(Failure::new(Exit::Usage, message).hint("two trials are named as JOB_TASK: 12_0 12_1"));
    }
    let comparisons: Vec<TraceComparison<'_>> =
        pairs.into_iter().map(|(base, side)| TraceComparison::new(&sides[base], &sides[side])).collect();
    show_comparisons(&shown, &comparisons, form, args.summary.as_deref().filter(|_| several))?;
    check_complete(&jobs)
}

/// Find the traces of the trials that a name stands for.
fn profiled(ledger: &Ledger, args: &TraceArgs, name: &JobName) -> Result<ProfiledJob, Failure> {
    let folder = ledger.measured(name.job)?;
    let record = folder.record()?;
    let name = match &args.trial {
        Some(_) if name.task.is_some() => {
            return Err(Failure::new(Exit::Usage, "both JOB_TASK and --trial name a trial: leave one out"));
        }
        Some(trial) => JobName { job: name.job, task: Some(trial.clone()) },
        None => name.clone(),
    };
    let index = name.index(&record)?;
    let trials: Vec<usize> = index.map_or_else(|| (0..record.trials.len()).collect(), |at| vec![at]);
    let found = find(&folder, &record, &trials)?;
    Ok(ProfiledJob { record, found, one_trial: index.is_some() })
}

/// Write the merged trace of a trial and its summary.
fn write(
    job: u64,
    found: &TrialTraces,
    traces: &[RankTrace],
    summary: &Summary,
    path: &Path,
    summary_path: Option<&Path>,
) -> Result<(), Failure> {
    merge(traces).write(path)?;
    let summary_path = summary_path.map_or_else(|| summary_path_of(path), Path::to_owned);
    write_atomic(&summary_path, summary.markdown(job, &found.trial.id).as_bytes())?;
    say(format!("trace: {} (open it at https://ui.perfetto.dev)\nsummary: {}", path.display(), summary_path.display()));
    Ok(())
}

/// A side for each variant of each job, and for each trial that was named by itself; each once.
fn sides(shown: &[SummarizedTrial<'_>]) -> Vec<TraceSide> {
    let mut sides: Vec<TraceSide> = Vec::new();
    for SummarizedTrial { of, found, summary } in shown {
        let (job, trial) = (of.record.job, &found.trial);
        let label = if of.one_trial { trial.id.clone() } else { trial.label() };
        match sides.iter_mut().find(|side| side.job == job && side.label == label) {
            // The same name twice is the same side.
            Some(side) if side.trials.contains(&trial.id) => {}
            Some(side) => side.add(&trial.id, summary),
            None => {
                let (variant, method) = (trial.variant.clone(), trial.method.clone());
                let mut side = TraceSide { job, variant, label, method, ..TraceSide::default() };
                side.add(&trial.id, summary);
                sides.push(side);
            }
        }
    }
    sides
}

/// Print the comparisons, and everything at once as JSON; write them to `path` as markdown.
fn show_comparisons(
    shown: &[SummarizedTrial<'_>],
    comparisons: &[TraceComparison<'_>],
    form: TraceForm,
    path: Option<&Path>,
) -> Result<(), Failure> {
    if form == TraceForm::Json {
        let trials: Vec<Json> = shown.iter().map(|one| one.summary.json(one.of.record.job, one.found)).collect();
        let all = json!({ "schema": 1, "trials": trials, "comparisons": comparisons });
        out_json(&all)?;
    } else {
        for comparison in comparisons {
            out(comparison.text(&|table| form.table(table)));
        }
    }
    if let Some(path) = path {
        let texts: Vec<String> = comparisons.iter().map(|comparison| comparison.text(&Table::markdown)).collect();
        write_atomic(path, texts.join("\n").as_bytes())?;
        say(format!("comparison: {}", path.display()));
    }
    Ok(())
}

/// Exit 6 unless every rank and window that should have been recorded has its trace.
fn check_complete(jobs: &[ProfiledJob]) -> Result<(), Failure> {
    let mut incomplete = Vec::new();
    for found in jobs.iter().flat_map(|job| &job.found).filter(|found| !found.missing.is_empty()) {
        let which: Vec<String> =
            found.missing.iter().map(|(rank, cycle)| format!("rank {rank}, cycle {cycle}")).collect();
        incomplete.push(format!("trial {} lacks traces: {}", found.trial.id, which.join("; ")));
    }
    if incomplete.is_empty() { Ok(()) } else { Err(Failure::new(Exit::Incomplete, incomplete.join("\n"))) }
}

/// `trace.md` beside `trace.json.gz`.
fn summary_path_of(trace: &Path) -> PathBuf {
    let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    trace.with_file_name(format!("{}.md", stem.strip_suffix(".json").unwrap_or(stem)))
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let keys = "set profile.active to a number of steps, or trace.at_step to one step: \
                    `expctl submit CONF --set trace.at_step=50`";
        let failure = |exit| Self::new(exit, &error);
        match &error {
            TraceError::NotProfiled { .. } => failure(Exit::Refused).hint(keys),
            TraceError::Missing { .. } => failure(Exit::Incomplete).hint("`expctl status` and `expctl logs` say more"),
            TraceError::Unreadable { .. } => {
                failure(Exit::Incomplete).hint("remove the file to go on without it, or run the job again")
            }
            TraceError::Newer { .. } => failure(Exit::Incomplete),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_lies_beside_the_trace() {
        for (trace, summary) in
            [("a/trace.json.gz", "a/trace.md"), ("t.json", "t.md"), ("x.gz", "x.md"), ("b/plain", "b/plain.md")]
        {
            assert_eq!(summary_path_of(Path::new(trace)), Path::new(summary));
        }
    }
}
