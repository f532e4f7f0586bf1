//! The command of the user's that hears of the end of a job: `on_end` in `~/.config/expctl/config.toml`, or `EXPCTL_ON_END`.
//!
//! Invariant: whatever the command does, the job and the exit code of expctl stay as they are.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use expctl_config::UserDefaults;
use expctl_ledger::MeasuredJob;
use expctl_text::format::count;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;

use crate::console::say;
use crate::project::Project;
use crate::report::note::answers;

/// How long the command may run.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What the command reads on its standard input, as one line of JSON.
#[derive(Debug, Serialize)]
struct JobSummary {
    job: u64,
    /// The machine that the job is on, if not this one.
    host: Option<String>,
    config: Option<String>,
    backend: Option<String>,
    /// `completed`, or `failed` with `reason`.
    state: &'static str,
    reason: Option<String>,
    trials: usize,
    completed: usize,
    /// Seconds since the job was submitted.
    seconds: Option<i64>,
    /// What the note answers; empty without a comparison.
    answers: Vec<String>,
    note: Option<String>,
    /// All of it in a sentence or two.
    message: String,
}

impl JobSummary {
    fn new(
        project: &Project,
        job: u64,
        measured: Option<&MeasuredJob>,
        note: Option<&Path>,
        ended: Result<(), String>,
    ) -> Self {
        let state = if ended.is_ok() { "completed" } else { "failed" };
        let reason = ended.err();
        let (trials, incomplete) = measured.map_or((0, 0), |m| (m.runs.len(), m.incomplete().count()));
        let config = measured.map(|m| m.record.config.clone());
        let answers = measured.map(answers).unwrap_or_default();
        let name = config.as_ref().map(|config| format!(" ({config})")).unwrap_or_default();
        let outcome = match &reason {
            None => format!("completed, {}", count(trials as u64, "trial")),
            Some(reason) => format!("failed: {reason}"),
        };
        let answer = answers.first().map(|answer| format!(". {answer}")).unwrap_or_default();
        Self {
            job,
            host: project.host().map(str::to_owned),
            backend: measured.map(|m| m.record.backend.clone()),
            state,
            trials,
            completed: trials - incomplete,
            seconds: measured.map(|m| jiff::Timestamp::now().as_second() - m.record.submitted),
            note: note.map(|path| path.display().to_string()),
            message: format!("expctl job {}{name} {outcome}{answer}", project.job_name(job)),
            config,
            reason,
            answers,
        }
    }
}

/// Run the command of the user's for a job that has ended, if there is one. `ended` says why the job is not complete. Says what is wrong with
/// the command, and nothing else.
pub fn run(
    project: &Project,
    job: u64,
    measured: Option<&MeasuredJob>,
    note: Option<&Path>,
    ended: Result<(), String>,
) {
    let named = std::env::var("EXPCTL_ON_END").ok();
    // The user's file was read before the job was submitted; what is wrong with it by now is said by the next command.
    let command = named.or_else(|| UserDefaults::load(project).ok()?.on_end);
    let Some(command) = command.filter(|command| !command.trim().is_empty()) else { return };
    let summary = JobSummary::new(project, job, measured, note, ended);
    match told(project, &command, &summary) {
        Ok(status) if status.success() => {}
        Ok(status) => say(format!("warning: on_end: `{command}` ended with {status}")),
        Err(e) => say(format!("warning: on_end: `{command}`: {e}")),
    }
}

/// Run the command with the summary.
fn told(project: &Project, command: &str, summary: &JobSummary) -> std::io::Result<ExitStatus> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(project.root())
        .env("EXPCTL_JOB", project.job_name(summary.job))
        .env("EXPCTL_STATE", summary.state)
        .env("EXPCTL_MESSAGE", &summary.message)
        .stdin(Stdio::piped())
        // Standard output of expctl is for data alone.
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let mut line = serde_json::to_string(summary)?;
        line.push('\n');
        // A command need not read it: then the write fails when the command has ended, or waits as long as it runs.
        std::thread::spawn(move || stdin.write_all(line.as_bytes()));
    }
    within_limit(&mut child)
}

/// Wait for the command; after [`LIMIT`] all of its processes are killed.
fn within_limit(child: &mut Child) -> std::io::Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > LIMIT {
            // It has not been waited for, so the number is still its own.
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            child.wait()?;
            return Err(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("stopped after {} s", LIMIT.as_secs()),
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
