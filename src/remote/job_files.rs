//! The files of jobs in a ledger, as both sides list them: [`ListedFile`], [`ListedJob`] and which of them are fetched, [`FetchExtent`].

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use atomic_file::TEMPORARY_PREFIX;
use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use super::received_tree::is_below;

/// Which files of jobs are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchExtent {
    /// All that notes and comparisons read.
    Records,
    /// Traces of profilers as well.
    Traces,
    /// Everything: the code, checkpoints and weights, too.
    All,
}

impl FetchExtent {
    /// Whether it has an entry of the folder of a job or trial. `depth` is 0 in the folder of the job.
    fn has(self, name: &str, depth: usize) -> bool {
        let needed = match name {
            "code" if depth == 0 => Self::All,
            "checkpoint" | "weights" if depth == 1 => Self::All,
            name if name.starts_with("trace-") => Self::Traces,
            _ => Self::Records,
        };
        self >= needed && !name.starts_with(TEMPORARY_PREFIX) && !name.ends_with(".lock")
    }
}

/// A file of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// Its path in the ledger: `12/job.json`.
    pub path: String,
    /// Its length, bytes.
    pub size: u64,
    /// When it was changed last, ns since the epoch.
    pub mtime_ns: i64,
}

/// A job and its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedJob {
    /// Its number.
    pub job: u64,
    /// When it was submitted, seconds since the epoch; 0 if its record cannot be read.
    pub submitted: i64,
    /// All its trials have completed: nothing will change any more.
    pub completed: bool,
    /// Its files.
    pub files: Vec<ListedFile>,
}

/// The files of a job in the ledger `runs`. What goes while they are listed, and what is no plain file, is left out.
///
/// # Errors
/// A folder cannot be read.
pub(crate) fn files_of_job(runs: &Path, job: u64, extent: FetchExtent) -> Result<Vec<ListedFile>, RemoteError> {
    let mut files = Vec::new();
    walk(runs, &job.to_string(), 0, extent, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(
    runs: &Path,
    inside: &str,
    depth: usize,
    extent: FetchExtent,
    files: &mut Vec<ListedFile>,
) -> Result<(), RemoteError> {
    let folder = runs.join(inside);
    let entries = match std::fs::read_dir(&folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(RemoteError::io("list", &folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(RemoteError::io("list", &folder))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| extent.has(name, depth)) else { continue };
        let path = format!("{inside}/{name}");
        // Of a link, this is what the link itself is.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_dir() {
            walk(runs, &path, depth + 1, extent, files)?;
        } else if found.is_file() {
            let mtime_ns = found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec());
            files.push(ListedFile { path, size: found.len(), mtime_ns });
        }
    }
    Ok(())
}

/// Whether a path is that of a file in the folder of a job, whoever says so.
pub(crate) fn is_file_of_job(path: &str, job: u64) -> bool {
    let inside = path.strip_prefix(&format!("{job}/"));
    inside.is_some_and(|inside| is_below(Path::new(inside)) && !path.contains('\0') && !path.contains("//"))
}

/// The job whose folder a path lies in.
pub(crate) fn job_of_path(path: &str) -> Option<u64> {
    let (job, _) = path.split_once('/')?;
    job.parse().ok().filter(|job| is_file_of_job(path, *job))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_folder_of_the_job_are_none() {
        for path in ["12/job.json", "12/lazy-r1/attempt-1/rank-0.parquet", "12/..x"] {
            assert!(is_file_of_job(path, 12) && job_of_path(path) == Some(12), "{path}");
        }
        for path in [
            "13/job.json",
            "12",
            "12/",
            "12/..",
            "12/../13/job.json",
            "12/a/../../b",
            "/12/job.json",
            "12//etc/passwd",
            "../12/job.json",
            "12/a\0b",
            "",
        ] {
            assert!(!is_file_of_job(path, 12), "{path:?}");
        }
        assert_eq!(job_of_path("012/job.json"), None);
    }

    #[test]
    fn code_checkpoints_and_traces_are_fetched_if_asked_for() {
        let runs = tempfile::tempdir().unwrap();
        let files = [
            "7/job.json",
            "7/code/train.py",
            "7/a-r1/attempt-1/rank-0.parquet",
            "7/a-r1/attempt-1/trace-0-1.json.gz",
            "7/a-r1/checkpoint/step-4/state",
            "7/a-r1/weights/best.safetensors",
            "7/.arrays.lock",
            "7/.writing-x",
        ];
        for file in files {
            let path = runs.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        std::os::unix::fs::symlink("/etc", runs.path().join("7/link")).unwrap();
        let listed = |extent| {
            let files = files_of_job(runs.path(), 7, extent).unwrap();
            files.into_iter().map(|file| file.path).collect::<Vec<_>>()
        };
        assert_eq!(listed(FetchExtent::Records), ["7/a-r1/attempt-1/rank-0.parquet", "7/job.json"]);
        assert_eq!(listed(FetchExtent::Traces).len(), 3);
        assert_eq!(listed(FetchExtent::All).len(), 6);
        assert!(files_of_job(runs.path(), 8, FetchExtent::All).unwrap().is_empty());
    }
}
