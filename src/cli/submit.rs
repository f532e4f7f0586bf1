use std::path::{Path, PathBuf};
use std::time::Duration;

use expctl_record::JobRecord;

use super::{data, say};
use crate::conf;
use crate::console::try_out;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::{local, slurm};
use crate::plan;
use crate::project::Project;
use crate::report;

/// Where a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    /// Slurm if there is one, else this machine
    Auto,
    /// A Slurm array
    Slurm,
    /// Processes of this machine
    Local,
}

/// Arguments of `expctl submit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The config (TOML)
    conf: PathBuf,
    /// Where to run [default: what ~/.config/expctl/config.toml says, else auto]
    #[arg(long, value_enum, env = "EXPCTL_BACKEND")]
    backend: Option<Backend>,
    /// Override a setting, for example `measure.steps=10`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Run only these variants
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Stay until the job has ended, then write its note
    #[arg(long)]
    wait: bool,
}

impl Args {
    pub(super) fn config(&self) -> &Path {
        &self.conf
    }
}

/// Submit a config; the job id goes to stdout, alone.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let config = conf::load(project, &args.conf, &args.overrides)?;
    let plan = plan::expand(project, &config)?.only(&args.only)?;
    let backend = match args.backend {
        Some(backend) => backend,
        None => match conf::UserDefaults::load(project)?.backend.as_deref() {
            Some("slurm") => Backend::Slurm,
            Some("local") => Backend::Local,
            _ => Backend::Auto,
        },
    };
    let slurm = match backend {
        Backend::Slurm => true,
        Backend::Local => false,
        Backend::Auto => match slurm::available() {
            slurm::Availability::Ready => true,
            slurm::Availability::Absent => {
                say("no Slurm found: running on this machine (--backend local)");
                false
            }
            slurm::Availability::Unreachable(reason) => {
                return Err(Failure::new(
                    Exit::Cluster,
                    format!("this machine has a Slurm that does not answer: {reason}"),
                )
                .hint("try again later, or run on this machine: --backend local"));
            }
        },
    };
    let job = JobRecord {
        submitted: jiff::Timestamp::now().as_second(),
        commit: commit(project),
        ..plan.job_record(if slurm { "slurm" } else { "local" })
    };
    // What can be refused is refused before hours of data building, and before a number is taken.
    if slurm {
        slurm::script(project, &job)?;
    } else {
        local::check(&job)?;
    }
    let interrupt = Interrupt::listen()?;
    data::ensure_all(project, &plan.trials, &interrupt)?;
    if slurm { submit_slurm(project, args, job, interrupt) } else { submit_local(project, args, job, &interrupt) }
}

/// Commit of the project's working tree, marked when it has changes; none outside a repository or without git.
fn commit(project: &Project) -> Option<String> {
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git").arg("-C").arg(project.root()).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    Some(if dirty { format!("{head}-dirty") } else { head })
}

fn submit_local(project: &Project, args: &Args, job: JobRecord, interrupt: &Interrupt) -> Result<(), Failure> {
    let job = local::allocate(project, job)?;
    show_id(job.job);
    if !args.wait {
        return start_in_background(project, &job);
    }
    let result = local::run(project, &job, interrupt);
    finish(project, job.job, result)
}

/// Run a local job in a process of its own, and say how to go on.
pub(super) fn start_in_background(project: &Project, job: &JobRecord) -> Result<(), Failure> {
    let (_, log) = local::detach(project, job)?;
    let id = job.job;
    say(format!("job {id} runs in the background; it writes its note when it ends"));
    say(format!("  progress: expctl watch {id}, or {}\n  stop it: expctl cancel {id}", log.display()));
    Ok(())
}

fn submit_slurm(project: &Project, args: &Args, job: JobRecord, interrupt: Interrupt) -> Result<(), Failure> {
    let id = slurm::submit(project, job, slurm::Order::default())?;
    show_id(id);
    if !args.wait {
        return Ok(());
    }
    wait_for_slurm(project, id, interrupt)
}

/// Wait until every trial of a job has its outcome, then write its note.
pub(super) fn wait_for_slurm(project: &Project, id: u64, interrupt: Interrupt) -> Result<(), Failure> {
    leave_on_interrupt(id, interrupt);
    let mut shown = String::new();
    let result = slurm::wait(project, id, &mut |progress| {
        let line = progress.to_string();
        if line != shown {
            say(format!("job {id}: {line}"));
            shown = line;
        }
    });
    finish(project, id, result)
}

/// The id, alone on stdout. The job exists by now: it goes on even if nobody can read its number here.
fn show_id(id: u64) {
    if let Err(e) = try_out(id) {
        say(format!("job {id} was submitted, but its id cannot be written to stdout: {e}"));
    }
}

/// Ctrl-C while waiting for Slurm ends the waiting, not the job.
fn leave_on_interrupt(job: u64, interrupt: Interrupt) {
    std::thread::spawn(move || {
        while !interrupt.is_set() {
            std::thread::sleep(Duration::from_millis(100));
        }
        say(format!(
            "job {job} goes on without me\n  hint: stop it with `expctl cancel {job}`; `expctl report {job}` shows what it has"
        ));
        std::process::exit(Exit::Incomplete as i32)
    });
}

/// Write the note of what there is; then what became of the trials decides the exit code.
pub(super) fn finish(project: &Project, job: u64, launched: Result<(), Failure>) -> Result<(), Failure> {
    let note = report::write_note(project, job);
    if let Ok((path, _)) = &note {
        say(format!("note: {}", path.display()));
    }
    launched?;
    note?.1.verdict()
}
