//! Slurm's own commands: how they are run, and what their failures mean.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use wait_timeout::ChildExt;

use crate::exit::{Exit, Failure};

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
    /// This launcher, and the worker beside it or at `EXPCTL_WORKER`.
    ///
    /// # Errors
    /// If the system cannot say where this program is.
    pub fn find() -> Result<Self, Failure> {
        let expctl = std::env::current_exe().map_err(Failure::internal)?;
        let worker = match std::env::var_os("EXPCTL_WORKER") {
            Some(path) if !path.is_empty() => std::path::absolute(path).map_err(Failure::internal)?,
            _ => expctl.with_file_name("expctl-worker"),
        };
        // The site's own libtorch may need the path under which it was found; ours is found without.
        let site = std::env::var_os("EXPCTL_LIBTORCH").filter(|site| !site.is_empty());
        let library_path = site.and_then(|_| std::env::var("LD_LIBRARY_PATH").ok());
        Ok(Self { expctl, worker, library_path })
    }

    /// Check that both can be run, before a job waits in the queue for nothing.
    pub(super) fn check(&self) -> Result<(), Failure> {
        for program in [&self.expctl, &self.worker] {
            if !is_program(program) {
                return Err(Failure::internal(format!("{} is not a program", program.display()))
                    .hint("build it (make build), or set EXPCTL_WORKER to the worker's path"));
            }
        }
        Ok(())
    }
}

/// The Slurm that the commands speak to.
#[derive(Clone, Debug, Default)]
pub struct Slurm {
    environment: Vec<(OsString, OsString)>,
}

/// Why a Slurm command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error("cannot run {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{program} did not answer within {} s", limit.as_secs())]
    Silent { program: String, limit: Duration },
    #[error("{program}: {message}")]
    Refused { program: String, message: String },
}

impl From<ToolError> for Failure {
    fn from(e: ToolError) -> Self {
        Self::new(Exit::Cluster, e)
    }
}

impl Slurm {
    /// The Slurm that this process's environment leads to (`PATH`, `SLURM_CONF`).
    pub fn from_environment() -> Self {
        Self::default()
    }

    /// The same with a variable set for the commands, for example `SLURM_CONF`.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Whether `sbatch` is on the path and a controller answers within seconds.
    pub fn is_available(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| is_program(&folder.join("sbatch")))
            && self.run_for("scontrol", ["ping"], PROBE).is_ok_and(|answer| answer.contains(" UP"))
    }

    /// Run a command and return its stdout. `SBATCH_*` variables never reach it: they would override the script.
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
        let start = |source| ToolError::Start { program: program.to_owned(), source };
        let silent = || ToolError::Silent { program: program.to_owned(), limit };
        // Files, not pipes: nobody has to read while the command runs, and a full pipe cannot block it.
        let mut stdout = tempfile::tempfile().map_err(start)?;
        let mut stderr = tempfile::tempfile().map_err(start)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            // English messages and plain columns, whatever the user's settings.
            .env("LC_ALL", "C")
            .env_remove("SQUEUE_FORMAT")
            .env_remove("SACCT_FORMAT")
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().map_err(start)?)
            .stderr(stderr.try_clone().map_err(start)?);
        for variable in inherited() {
            command.env_remove(variable);
        }
        let mut child = command.spawn().map_err(start)?;
        let Some(status) = child.wait_timeout(limit).map_err(start)? else {
            child.kill().map_err(start)?;
            child.wait().map_err(start)?;
            return Err(silent());
        };
        if status.success() {
            return content(&mut stdout).map_err(start);
        }
        let message = message(program, &content(&mut stderr).map_err(start)?);
        let message = if message.is_empty() { status.to_string() } else { message };
        Err(ToolError::Refused { program: program.to_owned(), message })
    }
}

/// The `SBATCH_*` variables of this process.
pub(super) fn inherited() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with("SBATCH_")).collect()
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
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
    fn a_missing_command_is_named() {
        let answer = Slurm::from_environment().run("no-such-slurm-command", ["x"]);
        assert!(answer.unwrap_err().to_string().starts_with("cannot run no-such-slurm-command: "));
    }
}
