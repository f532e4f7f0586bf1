//! The command line: a file per verb, small ones beside another. Data goes to stdout, everything else to stderr.

mod cancel;
mod compare;
mod completions;
mod data;
mod diff;
mod doctor;
mod export;
mod fetch;
mod history;
mod host_words;
mod import;
mod init;
mod internal;
mod isolate;
mod logs;
mod man_pages;
mod on_end;
mod on_host;
mod plan;
mod predict;
mod remote;
mod remote_submit;
mod report;
mod rerun;
mod retry;
mod run_plan;
mod search;
mod site;
mod status;
mod submit;
mod timings;
mod trace;

use std::io::IsTerminal;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use expctl_config::UserDefaults;
use expctl_ledger::JobRecord;
use serde::de::DeserializeOwned;

use self::cancel::CancelArgs;
use self::compare::CompareArgs;
use self::completions::CompletionsArgs;
use self::data::DataCommand;
use self::diff::DiffArgs;
use self::doctor::DoctorArgs;
use self::export::ExportArgs;
use self::fetch::FetchArgs;
use self::history::HistoryArgs;
use self::host_words::HostWords;
use self::import::ImportArgs;
use self::init::InitArgs;
use self::internal::{ConcludeArgs, RunCommandArgs, RunLocalArgs, StageAttemptArgs, StepArgs};
use self::isolate::IsolateArgs;
use self::logs::LogsArgs;
use self::man_pages::ManPagesArgs;
use self::plan::{CheckArgs, PlanArgs};
use self::predict::PredictArgs;
use self::remote::RemoteCommand;
use self::report::ReportArgs;
use self::rerun::RerunArgs;
use self::retry::RetryArgs;
use self::search::SearchArgs;
use self::site::SiteArgs;
use self::status::{StatusArgs, WatchArgs};
use self::submit::SubmitArgs;
use self::timings::TimingsArgs;
use self::trace::TraceArgs;
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Where does the time of a training pipeline go, and which change makes it faster?
#[derive(Debug, Parser)]
#[command(name = "expctl", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 ok, 1 a gate failed, 2 usage, 3 config or other input invalid, 4 cluster unreachable, 5 some trials failed, \
                        6 results incomplete, or records or data cannot be read or written, 7 comparison refused, 70 internal, or the worker cannot start\n\
                        Words of tables and notes: docs/guide/reading-results.md; when something fails: docs/guide/troubleshooting.md"
)]
pub struct Cli {
    /// Project folder (holds experiments/, results/, data/)
    #[arg(
        long,
        global = true,
        env = "EXPCTL_ROOT",
        value_name = "DIR",
        help_heading = "Global options",
        display_order = 1000
    )]
    root: Option<PathBuf>,
    /// Run it on another machine, or with the records of that one; `[ssh.NAME]` in ~/.config/expctl/config.toml or the cluster profile NAME says
    /// how to get there, and NAME:12 is job 12 there
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options", display_order = 1001)]
    on: Option<String>,
    /// (from another machine) The name of this one there
    #[arg(long, global = true, hide = true, value_name = "NAME")]
    known_as: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Begin a project with a first config
    Init(InitArgs),
    /// Check a config and say what is wrong with it
    Check(CheckArgs),
    /// Show the trials that a config makes
    Plan(PlanArgs),
    /// Run a config on Slurm or on this machine; prints the job id
    Submit(SubmitArgs),
    /// Find the fastest of many settings of a config, without running them all
    Search(SearchArgs),
    /// Show where jobs and their trials stand
    Status(StatusArgs),
    /// Show live progress of a job
    Watch(WatchArgs),
    /// Print what the ranks of a job printed
    Logs(LogsArgs),
    /// Stop a job; completed trials keep their figures
    Cancel(CancelArgs),
    /// Run again the trials of a job that did not complete
    Retry(RetryArgs),
    /// Run the code and config of a past job again, as a new job
    Rerun(RerunArgs),
    /// Run the variants of a past job on one rank: data, forward, forward + backward, train
    Isolate(IsolateArgs),
    /// Copy the records of jobs from another machine (--on)
    Fetch(FetchArgs),
    /// Write the markdown note of a job
    Report(ReportArgs),
    /// Put jobs side by side
    Compare(CompareArgs),
    /// Show how the rates of a config or variant developed over all jobs, and what changed with them
    History(HistoryArgs),
    /// Show code, settings and environment in which two jobs differ
    Diff(DiffArgs),
    /// Write all jobs of the ledger as a folder of pages: a list to search, and the newest jobs' pages
    Site(SiteArgs),
    /// Predict what changes to a job would bring: loader threads, prefetch, batches, faster stages
    Predict(PredictArgs),
    /// Say where the time of single batches goes: distribution, slow batches and their period
    Timings(TimingsArgs),
    /// Merge what a profiler recorded on the ranks of a job, and sum it up; compare that of several jobs
    Trace(TraceArgs),
    /// Write the records of a job for other tools: CSV, parquet, MLflow, TensorBoard, W&B, Prometheus, JUnit
    Export(ExportArgs),
    /// Take published results into the project
    Import(ImportArgs),
    /// Build, show and verify data sets
    #[command(subcommand)]
    Data(DataCommand),
    /// Check what jobs need here, and say what to do: Slurm, folders, expctl-worker, GPUs
    Doctor(DoctorArgs),
    /// Print a shell's completion script
    Completions(CompletionsArgs),
    /// (in packages) Write manual pages
    #[command(hide = true)]
    ManPages(ManPagesArgs),
    /// (in the background) Run the trials of a local job
    #[command(hide = true)]
    RunLocal(RunLocalArgs),
    /// (as a rank) Run the program of a trial and watch over it
    #[command(hide = true)]
    RunCommand(RunCommandArgs),
    /// (inside a batch script) Create the folder of the next attempt of an array task
    #[command(hide = true)]
    StageAttempt(StageAttemptArgs),
    /// (inside a batch script) Write the outcome of an attempt
    #[command(hide = true)]
    Conclude(ConcludeArgs),
    /// (as a job of Slurm) Build the data of a job
    #[command(hide = true)]
    BuildStep(StepArgs),
    /// (as a job of Slurm) Write the note of a job that has ended
    #[command(hide = true)]
    NoteStep(StepArgs),
    /// (over ssh) Be the far side of --on
    #[command(subcommand, hide = true)]
    Remote(RemoteCommand),
}

/// Verbs by purpose, in the order of the help.
const VERBS_BY_PURPOSE: [(&str, &[&str]); 5] = [
    ("Before a job", &["init", "check", "plan", "doctor"]),
    ("Jobs", &["submit", "search", "status", "watch", "logs", "cancel", "retry", "rerun", "isolate"]),
    (
        "Results",
        &["fetch", "report", "compare", "diff", "history", "site", "predict", "timings", "trace", "export", "import"],
    ),
    ("Data sets", &["data"]),
    ("Shell", &["completions"]),
];

/// Columns of help where the width of the terminal is not known, and at most.
const MAX_HELP_WIDTH: usize = 100;

/// The command line. Its help has the verbs by purpose, which clap cannot do.
fn command_line() -> Command {
    let command = Cli::command();
    let width = console::Term::stdout().size_checked().map_or(MAX_HELP_WIDTH, |(_, columns)| columns.into());
    let verbs = verbs_by_purpose(&command, width.min(MAX_HELP_WIDTH));
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{verbs}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// The verbs of a command with their descriptions, under a heading for each purpose.
fn verbs_by_purpose(command: &Command, width: usize) -> String {
    let longest = VERBS_BY_PURPOSE.iter().flat_map(|(_, verbs)| *verbs).map(|verb| verb.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (purpose, verbs) in VERBS_BY_PURPOSE {
        text.push_str(&format!("\n{purpose}:\n"));
        for verb in verbs.iter().filter_map(|verb| command.find_subcommand(verb)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let mut line = format!("  {:longest$} ", verb.get_name());
            for word in about.split_whitespace() {
                if line.chars().count() + 1 + word.chars().count() > width {
                    text.push_str(&format!("{line}\n"));
                    line = " ".repeat(longest + 3);
                }
                line.push_str(&format!(" {word}"));
            }
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}

impl Verb {
    /// Whether the user's defaults apply. A batch script names all its folders, and completions need none.
    fn is_for_users(&self) -> bool {
        !matches!(
            self,
            Self::Completions(_)
                | Self::ManPages(_)
                | Self::RunCommand(_)
                | Self::StageAttempt(_)
                | Self::Conclude(_)
                | Self::Remote(_)
        )
    }

    /// Whether a project may be missing: `init` makes one, and a file of batch times needs none.
    fn needs_no_project(&self) -> bool {
        match self {
            Self::Init(_) | Self::ManPages(_) => true,
            Self::Timings(args) => args.is_of_file(),
            _ => false,
        }
    }

    /// The config that the verb reads, if it reads one.
    fn config(&self) -> Option<&Path> {
        match self {
            Self::Check(args) => args.config(),
            Self::Plan(args) => Some(args.config()),
            Self::Submit(args) => Some(args.config()),
            Self::Search(args) => Some(args.config()),
            _ => None,
        }
    }
}

/// Run the program and turn its result into an exit code.
pub fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("EXPCTL_LOG").unwrap_or_else(|_| "warn".into());
    // Where stderr is closed or full, the subscriber would complain about it with `eprintln!`, which panics then.
    let messages =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // In a file, as the log of a rank is, codes of colours would be noise.
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    messages.with_target(false).with_ansi(colours).init();
    let words = match HostWords::read(std::env::args_os().collect()) {
        Ok(words) => words,
        Err(failure) => {
            say(&failure);
            return failure.exit.into();
        }
    };
    let cli = Cli::from_arg_matches(&command_line().get_matches_from(&words.all)).unwrap_or_else(|error| error.exit());
    // A panic is a defect of this program: it has its own code, so that scripts do not take it for a failed trial.
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(cli, &words.passed)))
        .unwrap_or_else(|_| Err(Failure::internal("this is a defect of expctl; please report what is printed above")));
    match result {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => {
            say(&failure);
            failure.exit.into()
        }
    }
}

/// Run the verb. `passed` are its words for another machine.
fn run(cli: Cli, passed: &[String]) -> Result<(), Failure> {
    let named = cli.root.as_deref().filter(|root| cli.verb.is_for_users() && !root.as_os_str().is_empty());
    if let Some(root) = named.filter(|root| !root.is_dir()) {
        return Err(Failure::new(Exit::Config, format!("--root: there is no folder {}", root.display())));
    }
    let project = Project::find(cli.root.as_deref(), cli.verb.config()).map_err(Failure::internal)?;
    let project = if cli.verb.is_for_users() {
        let user = UserDefaults::load(&project)?;
        project.with_folders(user.data, user.runs)
    } else {
        project
    };
    let project = project.known_as(cli.known_as);
    let needs_no_hint = project.has_studies() || cli.verb.needs_no_project();
    let result = match &cli.on {
        Some(name) => on_host::run(&project, name, cli.verb, passed),
        None => dispatch(cli.verb, &project),
    };
    result.map_err(|failure| {
        if needs_no_hint || !is_of_project(&failure) {
            return failure;
        }
        failure.hint(no_project(&project))
    })
}

/// What to do where there is no project.
fn no_project(project: &Project) -> String {
    let place = project.root().display();
    format!(
        "no project here: no experiments/ folder in {place} or above; make one (expctl init NAME) or name it with --root DIR"
    )
}

/// Whether something was not found that another project folder may have: a job, a study, a data set or a file.
fn is_of_project(failure: &Failure) -> bool {
    let missing = ["there is no study", "there is no data set", "there is no file", "no file matches"];
    match failure.exit {
        Exit::Refused => true,
        Exit::Config => missing.iter().any(|words| failure.message.contains(words)),
        _ => false,
    }
}

fn dispatch(verb: Verb, project: &Project) -> Result<(), Failure> {
    match verb {
        Verb::Init(args) => init::run(project, &args),
        Verb::Check(args) => plan::check(project, &args),
        Verb::Plan(args) => plan::run(project, &args),
        Verb::Submit(args) => submit::run(project, &args),
        Verb::Search(args) => search::run(project, &args),
        Verb::Status(args) => status::run(project, &args),
        Verb::Watch(args) => status::watch(project, &args),
        Verb::Logs(args) => logs::run(project, &args),
        Verb::Cancel(args) => cancel::run(project, &args),
        Verb::Retry(args) => retry::run(project, &args),
        Verb::Rerun(args) => rerun::run(project, &args),
        Verb::Isolate(args) => isolate::run(project, &args),
        Verb::Fetch(_) => Err(fetch::no_host()),
        Verb::Report(args) => report::run(project, &args),
        Verb::Compare(args) => compare::run(project, &args),
        Verb::History(args) => history::run(project, &args),
        Verb::Diff(args) => diff::run(project, &args),
        Verb::Site(args) => site::run(project, &args),
        Verb::Predict(args) => predict::run(project, &args),
        Verb::Timings(args) => timings::run(project, &args),
        Verb::Trace(args) => trace::run(project, &args),
        Verb::Export(args) => export::run(project, &args),
        Verb::Import(args) => import::run(project, &args),
        Verb::Data(args) => data::run(project, &args),
        Verb::Doctor(args) => doctor::run(project, &args),
        Verb::Completions(args) => completions::run(&args),
        Verb::ManPages(args) => man_pages::run(&args),
        Verb::RunLocal(args) => internal::run_local(project, &args),
        Verb::RunCommand(args) => internal::run_command(project, &args),
        Verb::StageAttempt(args) => internal::stage_attempt(&args),
        Verb::Conclude(args) => internal::conclude(&args),
        Verb::BuildStep(args) => internal::build_data(project, &args),
        Verb::NoteStep(args) => internal::write_note(project, &args),
        Verb::Remote(command) => remote::run(&command),
    }
}

/// A job, or one trial of it: `12`, `12_3` (the array task), `12_lazy-r1-0123abcd` (the trial).
#[derive(Clone, Debug, PartialEq, Eq)]
struct JobName {
    job: u64,
    task: Option<String>,
}

/// The text is no name of a job or trial.
#[derive(Debug, thiserror::Error)]
#[error("a job's number is expected, or JOB_TASK, for example 12 or 12_0")]
struct JobNameError;

impl FromStr for JobName {
    type Err = JobNameError;

    fn from_str(text: &str) -> Result<Self, JobNameError> {
        let (job, task) = match text.split_once('_') {
            Some((job, task)) => (job, Some(task.to_owned())),
            None => (text, None),
        };
        match job.parse() {
            Ok(job) if task.as_deref() != Some("") => Ok(Self { job, task }),
            _ => Err(JobNameError),
        }
    }
}

impl JobName {
    /// Index of the named trial in the job; `None` if the whole job is meant.
    fn index(&self, record: &JobRecord) -> Result<Option<usize>, Failure> {
        let Some(task) = &self.task else { return Ok(None) };
        let by_number = task.parse().ok().filter(|index| *index < record.trials.len());
        let found = by_number.or_else(|| record.trials.iter().position(|trial| trial.id == *task));
        found.map(Some).ok_or_else(|| {
            let trials: Vec<String> =
                record.trials.iter().enumerate().map(|(i, trial)| format!("{i} ({})", trial.name())).collect();
            Failure::new(Exit::Usage, format!("job {} has no trial {task}", self.job))
                .hint(format!("it has {}", trials.join(", ")))
        })
    }
}

/// A value parser for words of a settings enum.
fn words<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(word.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_help_names_every_verb_once() {
        let command = Cli::command();
        let all: BTreeSet<&str> =
            command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        let named: Vec<&str> = VERBS_BY_PURPOSE.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        assert_eq!((named.len(), named.into_iter().collect::<BTreeSet<_>>()), (all.len(), all));
        let narrow = verbs_by_purpose(&command, 60);
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        assert!(
            narrow.starts_with("\nBefore a job:\n  init         Begin a project with a first config\n"),
            "{narrow}"
        );
    }
}
