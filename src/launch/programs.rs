use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use expctl_record::Trial;
use wait_timeout::ChildExt;

use crate::exit::Failure;
use crate::program::is_program;

/// The `expctl-worker` to start: `EXPCTL_WORKER`, or the one beside this program.
///
/// # Errors
/// Exit 70 if it is no program.
pub fn worker_binary() -> Result<PathBuf, Failure> {
    let path = worker_path()?;
    if is_program(&path) {
        return Ok(path);
    }
    Err(Failure::internal(format!("the worker {} is not a program", path.display()))
        .hint("build it with `make build`, or set EXPCTL_WORKER to its path"))
}

/// The worker, if one of `trials` needs it: others run programs of the user's.
///
/// # Errors
/// As [`worker_binary`].
pub fn needed_worker<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Result<Option<PathBuf>, Failure> {
    if trials.into_iter().all(|trial| trial.settings.runs_command()) { Ok(None) } else { worker_binary().map(Some) }
}

/// Where the worker has to be, whether it is there or not: enough to show a script.
///
/// # Errors
/// If the system cannot say where this program is.
pub(super) fn worker_path() -> Result<PathBuf, Failure> {
    match std::env::var_os("EXPCTL_WORKER").filter(|p| !p.is_empty()) {
        Some(path) => std::path::absolute(&path)
            .map_err(|e| Failure::internal(format!("EXPCTL_WORKER={}: {e}", PathBuf::from(path).display()))),
        None => std::env::current_exe()
            .map(|here| here.with_file_name("expctl-worker"))
            .map_err(|e| Failure::internal(format!("cannot find this program: {e}"))),
    }
}

/// What the worker says of itself within `limit`, or why it does not.
///
/// # Errors
/// It does not start, or takes longer.
pub fn worker_version(path: &Path, limit: Duration) -> Result<String, String> {
    let mut child = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    if child.wait_timeout(limit).map_err(|e| e.to_string())?.is_none() {
        // It may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("it does not start within {} s", limit.as_secs()));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    let line = String::from_utf8_lossy(text).lines().next().unwrap_or_default().trim().to_owned();
    if output.status.success() { Ok(line) } else { Err(format!("it does not start: {line} ({})", output.status)) }
}
