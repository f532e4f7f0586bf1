use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl_record::{JobDir, RecordError};
use serde::{Deserialize, Serialize};

/// Version of `provenance.json`.
pub const PROVENANCE_SCHEMA_VERSION: u32 = 1;

/// `provenance.json`: where a job comes from. Hashes are BLAKE3, in hex.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// [`PROVENANCE_SCHEMA_VERSION`].
    pub schema: u32,
    /// The working tree of the project; none outside a repository, or without git.
    pub source: Option<Source>,
    /// What was asked for.
    pub config: ConfigOrigin,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Who submitted.
    pub user: String,
    /// On which machine.
    pub host: String,
    /// In which folder.
    pub folder: PathBuf,
    /// This program.
    pub expctl: Program,
    /// What each rank runs.
    #[serde(default)]
    pub worker: Option<Program>,
    /// What the worker loads on the machine that submitted.
    pub libtorch: Option<LibtorchFound>,
    /// Variables of the submitting shell that change what a job does.
    pub variables: BTreeMap<String, String>,
    /// Names of such variables whose values were left out, because they look like secrets.
    pub left_out: Vec<String>,
}

/// State of a working tree, without the folders that expctl writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Commit, whole.
    pub commit: String,
    /// Branch; none if no branch is checked out.
    pub branch: Option<String>,
    /// A tracked file differs from the commit.
    pub dirty: bool,
    /// Number of untracked files that git does not ignore.
    pub untracked: usize,
    /// Hash over all that differs from the commit, whole even where `source.diff` was cut off; none if nothing does.
    pub hash: Option<String>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigOrigin {
    /// Over the resolved settings of all that the config makes, however they were written.
    pub hash: String,
    /// Labels of all rows that it makes, before `--only` and `--only-missing`.
    pub rows: Vec<String>,
    /// The file, what it extends, and the profile and defaults beneath it.
    pub files: Vec<ConfigFile>,
}

/// A file of a config, and its copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigFile {
    /// Path, as messages show it.
    pub path: String,
    /// Its copy, relative to the job's folder.
    pub copy: PathBuf,
    /// Of the file.
    pub hash: String,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// What it says of itself; none if it does not answer.
    pub version: Option<String>,
    /// Commit that it was built from; none if the build was not told.
    pub commit: Option<String>,
    /// Of its file; none if that cannot be read.
    pub hash: Option<String>,
}

/// libtorch, as the dynamic linker finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibtorchFound {
    /// Its folder `lib`.
    pub folder: PathBuf,
    /// Its version; none if it brings no file that tells.
    pub version: Option<String>,
}

impl Provenance {
    /// `provenance.json` of a job.
    pub fn path(job: &JobDir) -> PathBuf {
        job.path().join("provenance.json")
    }

    /// Read `provenance.json`; none for a job of an expctl that did not write it.
    ///
    /// # Errors
    /// A file that cannot be read, or that a newer expctl wrote.
    pub fn of(job: &JobDir) -> Result<Option<Self>, RecordError> {
        let path = Self::path(job);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(RecordError::Io { action: "read", path, source }),
        };
        let read: Self =
            serde_json::from_slice(&text).map_err(|source| RecordError::Json { path: path.clone(), source })?;
        newer(&path, read.schema)?;
        Ok(Some(read))
    }
}

fn newer(path: &Path, found: u32) -> Result<(), RecordError> {
    let known = PROVENANCE_SCHEMA_VERSION;
    if found > known { Err(RecordError::Newer { path: path.to_owned(), found, known }) } else { Ok(()) }
}
