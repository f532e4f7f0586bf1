//! `expctl diff`: code, settings and environment in which two jobs differ.

use expctl_ledger::{CodeSnapshot, JobDir, Ledger};
use expctl_text::Table;
use expctl_text::format::{MISSING, count};
use serde::Serialize;

use crate::console::{out, out_json, out_table};
use crate::exit::Failure;
use crate::project::Project;
use crate::report::job_difference::JobDifference;
use crate::snapshot::{CodeDifference, FileDifference};

/// Arguments of `expctl diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl diff 12 13\n  expctl diff 12 13 --full")]
pub struct DiffArgs {
    /// Two jobs of this ledger
    #[arg(value_name = "JOB", required = true, num_args = 2)]
    jobs: Vec<u64>,
    /// Show the lines of files that differ, as a unified diff
    #[arg(long)]
    full: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl DiffArgs {
    /// The first job that is named.
    pub fn first_job(&self) -> Option<u64> {
        self.jobs.first().copied()
    }
}

/// The code of a job, as far as its snapshot says.
#[derive(Serialize)]
struct CodeFacts {
    hash: String,
    files: usize,
    bytes: u64,
}

/// What two jobs differ in.
#[derive(Serialize)]
struct ShownDifference {
    jobs: [u64; 2],
    /// `None` for a job that ran from the project's folder.
    snapshots: [Option<CodeFacts>; 2],
    /// `None` where one of them did.
    code: Option<CodeDifference>,
    #[serde(flatten)]
    told: JobDifference,
}

/// Print what two jobs differ in.
pub fn run(project: &Project, args: &DiffArgs) -> Result<(), Failure> {
    let [old, new] = args.jobs[..] else { return Err(Failure::internal("diff takes two jobs")) };
    let ledger = Ledger::open(project)?;
    let folders = [ledger.measured(old)?, ledger.measured(new)?];
    let told = JobDifference::new([&folders[0], &folders[1]])?;
    let (snapshots, mut code) = code_difference(project, &folders)?;
    if args.json && !args.full {
        code.iter_mut().flat_map(|code| &mut code.files).for_each(|file| file.hunks.clear());
    }
    let difference = ShownDifference { jobs: [old, new], snapshots, code, told };
    if args.json {
        return out_json(&difference);
    }
    print_code(&difference, args.full);
    print_settings(&difference);
    print_environment(&difference);
    Ok(())
}

fn code_difference(
    project: &Project,
    folders: &[JobDir; 2],
) -> Result<([Option<CodeFacts>; 2], Option<CodeDifference>), Failure> {
    let snapshots = [CodeSnapshot::read(&folders[0])?, CodeSnapshot::read(&folders[1])?];
    let code = match &snapshots {
        [Some(old), Some(new)] => Some(CodeDifference::new(project.runs(), old, new)?),
        _ => None,
    };
    let facts = |snapshot: CodeSnapshot| {
        let (files, bytes) = snapshot.size();
        CodeFacts { hash: snapshot.hash, files, bytes }
    };
    Ok((snapshots.map(|snapshot| snapshot.map(facts)), code))
}

fn print_code(difference: &ShownDifference, full: bool) {
    let Some(code) = &difference.code else {
        let live = difference.jobs.iter().zip(&difference.snapshots).filter(|(_, snapshot)| snapshot.is_none());
        let live: Vec<String> = live.map(|(job, _)| job.to_string()).collect();
        return out(format!("Code: not compared, because there is no snapshot of job {}", live.join(" and of job ")));
    };
    match code.files.len() {
        0 => out("Code: the same"),
        n => out(format!("Code: {} not the same", count(n as u64, "file"))),
    }
    if !code.not_compared.is_empty() {
        out(format!("Not compared, because a snapshot left them in the project: {}", code.not_compared.join(", ")));
    }
    if code.files.is_empty() {
        return;
    }
    if full {
        return out(format!("\n{}", code.patch().trim_end()));
    }
    let mut table = Table::new(["File", "Change", "Lines"]);
    for FileDifference { path, change, added_lines, removed_lines, .. } in &code.files {
        let lines = match (added_lines, removed_lines) {
            (Some(added), Some(removed)) => format!("+{added} -{removed}"),
            _ => MISSING.to_owned(),
        };
        table.row([path.escape_debug().to_string(), change.name().to_owned(), lines]);
    }
    out("");
    out_table(&table);
}

fn print_settings(difference: &ShownDifference) {
    let JobDifference { only_in, settings, .. } = &difference.told;
    let is_same = settings.is_empty() && only_in.iter().all(Vec::is_empty);
    out(format!("\nSettings: {}", if is_same { "the same" } else { "not the same" }));
    for (job, only) in difference.jobs.iter().zip(only_in).filter(|(_, only)| !only.is_empty()) {
        out(format!("Only job {job} has {}", only.join(", ")));
    }
    if settings.is_empty() {
        return;
    }
    let [old, new] = difference.jobs.map(|job| format!("Job {job}"));
    let mut table = Table::new(["Setting".to_owned(), old, new, "Variants".to_owned()]);
    for one in settings {
        let [old, new] = one.values.clone();
        table.row([one.setting.clone(), old, new, one.variants.join(", ")]);
    }
    out("");
    out_table(&table);
}

fn print_environment(difference: &ShownDifference) {
    let environment = &difference.told.environment;
    if environment.is_empty() {
        return out("\nEnvironment: the same, as far as it is recorded");
    }
    out("\nEnvironment: not the same\n");
    let [old, new] = difference.jobs.map(|job| format!("Job {job}"));
    let mut table = Table::new(["What".to_owned(), old, new]);
    for one in environment {
        let [old, new] = one.values.clone();
        table.row([one.name.clone(), old, new]);
    }
    out_table(&table);
}
