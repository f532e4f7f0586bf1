use std::path::{Path, PathBuf};
use std::time::Duration;

use expctl_record::Trial;

use super::record::{LibtorchFound, Program};
use crate::exit::Failure;
use crate::launch::{libtorch_folder, libtorch_version, needed_worker, worker_version};

/// Longest that the worker may take to say its version. Where it takes longer, the version is left open: each attempt
/// writes it into its `env.json` too.
const ANSWER: Duration = Duration::from_secs(10);

/// Hash of a file's bytes; none if it cannot be read.
pub(super) fn file_hash(path: &Path) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path).ok()?).ok()?;
    Some(hasher.finalize().to_hex().to_string())
}

/// This program. The build names its commit in `EXPCTL_BUILD_COMMIT`.
pub(super) fn expctl() -> Program {
    let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("expctl"));
    Program {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        commit: option_env!("EXPCTL_BUILD_COMMIT").filter(|commit| !commit.is_empty()).map(str::to_owned),
        hash: file_hash(&path),
        path,
    }
}

/// The worker, with what it says of itself; none where none of `trials` needs it.
pub(super) fn worker(trials: &[Trial]) -> Result<Option<Program>, Failure> {
    let Some(path) = needed_worker(trials)? else { return Ok(None) };
    let version = worker_version(&path, ANSWER).ok().map(|line| line.trim_start_matches("expctl-worker ").to_owned());
    // What tells one build of a version from another is the hash.
    Ok(Some(Program { version, commit: None, hash: file_hash(&path), path }))
}

/// The libtorch of a worker.
pub(super) fn libtorch(worker: &Path) -> Option<LibtorchFound> {
    let folder = libtorch_folder(worker)?;
    Some(LibtorchFound { version: libtorch_version(&folder), folder })
}
