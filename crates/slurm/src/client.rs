//! Slurm's own commands: how they are run, and what their failures mean.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use wait_timeout::ChildExt;

use super::availability::Availability;
use super::rest::Rest;
use crate::exit::{Exit, Failure};
use crate::launch::worker_binary::worker_path;

/// Longest that a question to the controller may take: Slurm's own clients give up after about 20 s.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest that looking for a controller may take.
const PROBE: Duration = Duration::from_secs(5);

/// The programs that a batch script runs, as absolute paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The launcher.
    pub expctl: PathBuf,
    /// The worker: one process per rank.
    pub worker: PathBuf,
    /// `LD_LIBRARY_PATH` for the worker, where the site brings its own libtorch.
    pub library_path: Option<String>,
}

impl Programs {
    /// This launcher, and the worker beside it or at `EXPCTL_WORKER`, which need not be there yet.
    ///
    /// # Errors
    /// If the system cannot say where this program is.
    pub fn find() -> Result<Self, Failure> {
        let expctl = std::env::current_exe().map_err(Failure::internal)?;
        let worker = worker_path()?;
        // The site's own libtorch may need the path under which it was found; ours is found without.
        let site = std::env::var_os("EXPCTL_LIBTORCH").filter(|site| !site.is_empty());
        let library_path = site.and_then(|_| std::env::var("LD_LIBRARY_PATH").ok());
        Ok(Self { expctl, worker, library_path })
    }
}

/// The Slurm that the commands speak to.
#[derive(Clone, Debug, Default)]
pub struct Slurm {
    environment: Vec<(OsString, OsString)>,
    /// Where jobs are submitted, cancelled and looked at over HTTP.
    pub(super) rest: Option<Arc<Rest>>,
}

/// Why Slurm could not be asked, or said no.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ToolError {
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{program} did not answer within {} s", limit.as_secs())]
    Silent { program: String, limit: Duration },
    #[error("{program}: {message}")]
    Refused { program: String, message: String },
    #[error("{program} answered {answer:?}, which is not the table that was asked for")]
    Unreadable { program: String, answer: String },
    /// What slurmrestd needs is not there or not as it must be.
    #[error("{message}")]
    Setup { message: String, hint: String },
    #[error("{program} does not accept the token of {user}: {message}")]
    Token { program: String, user: String, message: String },
    /// An option of a batch script that a version of slurmrestd has no field for.
    #[error("the option {option} of the batch script cannot be handed to slurmrestd: {why}")]
    Option { option: String, why: String },
}

impl From<ToolError> for Failure {
    fn from(e: ToolError) -> Self {
        let exit = if matches!(e, ToolError::Option { .. }) { Exit::Config } else { Exit::Cluster };
        let failure = Self::new(exit, &e);
        match e {
            ToolError::Setup { hint, .. } => failure.hint(hint),
            ToolError::Token { .. } => failure
                .hint("it may have expired; a new one: export $(scontrol token lifespan=SECONDS)")
                .hint("EXPCTL_SLURM_TOKEN_FILE=FILE is read anew for every request"),
            ToolError::Option { .. } => failure.hint("sbatch takes every option: backend = \"slurm\""),
            _ => failure,
        }
    }
}

impl Slurm {
    /// The Slurm that this process's environment leads to (`PATH`, `SLURM_CONF`).
    pub fn from_environment() -> Self {
        Self::default()
    }

    /// The Slurm of jobs with this backend: `slurm`, or `slurmrest`.
    ///
    /// # Errors
    /// Exit 4 if slurmrestd is asked for and its address or the token are missing.
    pub fn of_backend(backend: &str) -> Result<Self, Failure> {
        if backend == "slurmrest" { Self::from_environment().over_rest() } else { Ok(Self::from_environment()) }
    }

    /// The Slurm that knows a job with this backend. A slurmrestd that this shell has no address or token for is not needed
    /// where there are commands: on a node, for example.
    ///
    /// # Errors
    /// As [`Slurm::of_backend`].
    pub fn of_job(backend: &str) -> Result<Self, Failure> {
        Self::of_backend(backend).or_else(|failure| {
            let commands = Self::from_environment();
            if commands.availability() == Availability::Ready { Ok(commands) } else { Err(failure) }
        })
    }

    /// The same Slurm, spoken to over HTTP; see [`Rest::of`].
    ///
    /// # Errors
    /// Exit 4 if the address or the token are missing.
    pub fn over_rest(mut self) -> Result<Self, Failure> {
        self.rest = Some(Arc::new(Rest::of(&self)?));
        Ok(self)
    }

    /// The name of the backend.
    pub const fn backend(&self) -> &'static str {
        if self.rest.is_some() { "slurmrest" } else { "slurm" }
    }

    /// The same with a variable set for the commands, for example `SLURM_CONF`.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The same with times as seconds since 1970.
    #[must_use]
    pub fn with_time_in_seconds(&self) -> Self {
        self.clone().with_variable("SLURM_TIME_FORMAT", "%s")
    }

    /// What a command answers.
    ///
    /// # Errors
    /// Exit 4, with Slurm's own words.
    pub fn ask<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, Failure> {
        self.run(program, arguments).map_err(Failure::from)
    }

    /// Answer of `scontrol ping`; a controller that is up answers within seconds.
    pub(super) fn ping(&self) -> Result<String, ToolError> {
        match &self.rest {
            Some(rest) => rest.ping(),
            None => self.run_for("scontrol", ["ping"], PROBE),
        }
    }

    /// The environment of the commands: ours, less what would change what they do or print.
    pub(super) fn environment(&self) -> BTreeMap<OsString, OsString> {
        let all = std::env::vars_os().chain(self.environment.iter().cloned());
        let mut environment: BTreeMap<_, _> = all.filter(|(name, _)| !name.to_str().is_some_and(overrides)).collect();
        // Slurm's commands take an empty token for a token, and then no way around it.
        if environment.get(OsStr::new("SLURM_JWT")).is_some_and(|token| token.is_empty()) {
            environment.remove(OsStr::new("SLURM_JWT"));
        }
        environment
    }

    /// Run a command and return its stdout.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, ToolError> {
        self.run_for(program, arguments, ANSWER)
    }

    fn run_for<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
        limit: Duration,
    ) -> Result<String, ToolError> {
        Ok(self.answer(program, arguments, limit)?.0)
    }

    /// Run a command that succeeds; its stdout and what it said on stderr.
    pub(super) fn run_with_both<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(String, String), ToolError> {
        self.answer(program, arguments, ANSWER)
    }

    fn answer<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
        limit: Duration,
    ) -> Result<(String, String), ToolError> {
        let start = |source| ToolError::Start { program: program.to_owned(), source };
        let silent = || ToolError::Silent { program: program.to_owned(), limit };
        // Files, not pipes: nobody has to read while the command runs, and a full pipe cannot block it.
        let mut stdout = tempfile::tempfile().map_err(start)?;
        let mut stderr = tempfile::tempfile().map_err(start)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.environment())
            // English messages and plain columns, whatever the user's settings.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().map_err(start)?)
            .stderr(stderr.try_clone().map_err(start)?);
        let mut child = command.spawn().map_err(start)?;
        let Some(status) = child.wait_timeout(limit).map_err(start)? else {
            child.kill().map_err(start)?;
            child.wait().map_err(start)?;
            return Err(silent());
        };
        if status.success() {
            return Ok((content(&mut stdout).map_err(start)?, content(&mut stderr).map_err(start)?));
        }
        let message = message(program, &content(&mut stderr).map_err(start)?);
        let message = if message.is_empty() { status.to_string() } else { message };
        Err(ToolError::Refused { program: program.to_owned(), message })
    }
}

/// The variables of Slurm's that are about the cluster and its user.
const ABOUT_THE_CLUSTER: [&str; 7] = [
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_CLUSTERS",
    "SLURM_JWT",
    "SLURM_USER",
    "SLURM_TIME_FORMAT",
    "SLURM_BITSTR_LEN",
];

/// Whether a variable would override what a command is told: columns, filters, the script's own directives. All others of
/// Slurm's own are about a job that this process may be in, and srun in the new job would take them for its own.
fn overrides(name: &str) -> bool {
    if name.starts_with("SLURM_") {
        return !ABOUT_THE_CLUSTER.contains(&name);
    }
    ["SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_"].iter().any(|prefix| name.starts_with(prefix))
}

/// The `SBATCH_*` variables of this process.
pub(super) fn inherited() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with("SBATCH_")).collect()
}

fn content(file: &mut std::fs::File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Slurm's own words in one line, without the prefixes that it puts before each.
fn message(program: &str, stderr: &str) -> String {
    let lines = stderr.lines().map(str::trim).filter(|l| !l.is_empty());
    let bare = lines.map(|line| {
        let line = line.strip_prefix(program).and_then(|l| l.strip_prefix(": ")).unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line)
    });
    bare.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_carries_slurms_own_message() {
        let stderr = "sbatch: error: invalid partition specified: nowhere\nsbatch: error: Batch job submission failed: \
                      Invalid partition name specified\n";
        assert_eq!(
            message("sbatch", stderr),
            "invalid partition specified: nowhere; Batch job submission failed: Invalid partition name specified"
        );
    }

    #[test]
    fn a_command_that_hangs_is_given_up() {
        let answer = Slurm::from_environment().run_for("sleep", ["30"], Duration::from_millis(50));
        assert!(matches!(answer, Err(ToolError::Silent { .. })), "{answer:?}");
    }

    #[test]
    fn variables_that_override_what_a_command_is_told_do_not_reach_it() {
        let mut slurm = Slurm::from_environment().with_variable("SLURM_CONF", "kept");
        let others =
            ["SQUEUE_FORMAT2", "SQUEUE_STATES", "SACCT_FORMAT", "SCANCEL_INTERACTIVE", "SCONTROL_ALL", "SBATCH_HOLD"];
        for name in others {
            slurm = slurm.with_variable(name, "x");
        }
        let seen = slurm.run("env", [""; 0]).unwrap();
        assert!(others.iter().all(|name| !seen.contains(&format!("{name}="))), "{seen}");
        assert!(seen.contains("SLURM_CONF=kept") && seen.contains("LC_ALL=C"), "{seen}");
    }

    #[test]
    fn a_missing_command_is_named() {
        let answer = Slurm::from_environment().run("no-such-slurm-command", ["x"]);
        assert!(answer.unwrap_err().to_string().starts_with("cannot run no-such-slurm-command: "));
    }
}
