use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::{
    cancel, check, compare, completions, conclude, data, doctor, import, isolate, logs, plan, report, retry,
    run_command, run_local, say, stage_attempt, status, step, submit, timings, trace, watch,
};
use crate::conf::UserDefaults;
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Where does the time of a training pipeline go, and which change makes it faster?
#[derive(Debug, Parser)]
#[command(name = "expctl", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 ok, 1 a gate of compare failed, 2 usage, 3 config invalid, 4 cluster unreachable, 5 some trials failed, \
                        6 results incomplete, 7 comparison refused, 70 internal"
)]
pub struct Cli {
    /// Project folder (holds experiments/, results/, data/)
    #[arg(long, global = true, env = "EXPCTL_ROOT", value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a config and say what is wrong with it
    Check(check::Args),
    /// Show the trials that a config makes
    Plan(plan::Args),
    /// Run a config on Slurm or on this machine; prints the job id
    Submit(submit::Args),
    /// Show where jobs and their trials stand
    Status(status::Args),
    /// Show how a job goes, until it has ended
    Watch(watch::Args),
    /// Print what the ranks of a job printed
    Logs(logs::Args),
    /// Stop a job; what it measured is kept
    Cancel(cancel::Args),
    /// Run again the trials of a job that did not complete
    Retry(retry::Args),
    /// Run the variants of a past job on one rank: data, forward, forward + backward, train
    Isolate(isolate::Args),
    /// Write the markdown note of a job
    Report(report::Args),
    /// Put jobs side by side
    Compare(compare::Args),
    /// Say where the time of single batches goes: distribution, slow batches and their period
    Timings(timings::Args),
    /// Merge what a profiler recorded on the ranks of a job, and sum it up; compare that of several jobs
    Trace(trace::Args),
    /// Take published results into the project
    Import(import::Args),
    /// Build, show and verify data sets
    #[command(subcommand)]
    Data(data::Args),
    /// Check what jobs need here: Slurm, folders, expctl-worker
    Doctor(doctor::Args),
    /// Print a shell's completion script
    Completions(completions::Args),
    /// (in the background) Run the trials of a local job
    #[command(hide = true)]
    RunLocal(run_local::Args),
    /// (as a rank) Run the program of a trial and watch over it
    #[command(hide = true)]
    RunCommand(run_command::Args),
    /// (inside a batch script) Create the folder of the next attempt of an array task
    #[command(hide = true)]
    StageAttempt(stage_attempt::Args),
    /// (inside a batch script) Write the outcome of an attempt
    #[command(hide = true)]
    Conclude(conclude::Args),
    /// (as a job of Slurm) Build the data of a job
    #[command(hide = true)]
    BuildStep(step::Args),
    /// (as a job of Slurm) Write the note of a job that has ended
    #[command(hide = true)]
    NoteStep(step::Args),
}

impl Verb {
    /// Whether a user's defaults matter. A batch script names all its folders, and completions need none.
    fn is_for_users(&self) -> bool {
        !matches!(self, Self::Completions(_) | Self::RunCommand(_) | Self::StageAttempt(_) | Self::Conclude(_))
    }

    /// The config that the verb is about, if it is about one.
    fn config(&self) -> Option<&Path> {
        match self {
            Self::Check(args) => args.config(),
            Self::Plan(args) => Some(args.config()),
            Self::Submit(args) => Some(args.config()),
            _ => None,
        }
    }
}

/// Run the program and turn its result into an exit code.
pub fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("EXPCTL_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    let cli = Cli::parse();
    // A panic is a defect of this program: it has its own code, so that scripts do not take it for a failed trial.
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(cli)))
        .unwrap_or_else(|_| Err(Failure::internal("this is a defect of expctl; please report what is printed above")));
    match result {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => {
            say(&failure);
            failure.exit.into()
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let project = Project::find(cli.root.as_deref(), cli.verb.config()).map_err(Failure::internal)?;
    let project = if cli.verb.is_for_users() {
        let user = UserDefaults::load(&project)?;
        project.with_folders(user.data, user.runs)
    } else {
        project
    };
    // A file of batch times is read wherever it is.
    let says_all = project.has_studies() || matches!(&cli.verb, Verb::Timings(args) if args.is_of_file());
    dispatch(cli, &project).map_err(|failure| {
        if says_all || failure.exit == Exit::Usage {
            return failure;
        }
        let place = project.root().display();
        failure.hint(format_args!("{place} is no project (no experiments/ at or above it): name one with --root DIR"))
    })
}

fn dispatch(cli: Cli, project: &Project) -> Result<(), Failure> {
    match cli.verb {
        Verb::Check(args) => check::run(project, &args),
        Verb::Plan(args) => plan::run(project, &args),
        Verb::Submit(args) => submit::run(project, &args),
        Verb::Status(args) => status::run(project, &args),
        Verb::Watch(args) => watch::run(project, &args),
        Verb::Logs(args) => logs::run(project, &args),
        Verb::Cancel(args) => cancel::run(project, &args),
        Verb::Retry(args) => retry::run(project, &args),
        Verb::Isolate(args) => isolate::run(project, &args),
        Verb::Report(args) => report::run(project, &args),
        Verb::Compare(args) => compare::run(project, &args),
        Verb::Timings(args) => timings::run(project, &args),
        Verb::Trace(args) => trace::run(project, &args),
        Verb::Import(args) => import::run(project, &args),
        Verb::Data(args) => data::run(project, &args),
        Verb::Doctor(args) => doctor::run(project, &args),
        Verb::Completions(args) => completions::run(&args),
        Verb::RunLocal(args) => run_local::run(project, &args),
        Verb::RunCommand(args) => run_command::run(project, &args),
        Verb::StageAttempt(args) => stage_attempt::run(&args),
        Verb::Conclude(args) => conclude::run(&args),
        Verb::BuildStep(args) => step::build(project, &args),
        Verb::NoteStep(args) => step::note(project, &args),
    }
}
