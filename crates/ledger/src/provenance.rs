//! `provenance.json` of a job says what the job came from, so that it can be run again from the same code and config. It is written at submission.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::layout::{known_schema, read_optional};
use crate::{JobDir, LedgerError};

/// Version of `provenance.json`.
pub const PROVENANCE_SCHEMA_VERSION: u32 = 1;

/// `provenance.json`: code, config, programs and environment that a job was submitted with. Hashes are BLAKE3, in hex.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// [`PROVENANCE_SCHEMA_VERSION`].
    pub schema: u32,
    /// The working tree of the project. `None`: it is not in a repository, or there is no git.
    pub source: Option<SourceState>,
    /// The config.
    pub config: ConfigOrigin,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// User that submitted.
    pub user: String,
    /// Machine that submitted.
    pub host: String,
    /// Folder of the submission.
    pub folder: PathBuf,
    /// This program.
    pub expctl: Program,
    /// The program that each rank runs. `None`: the user's own command.
    #[serde(default)]
    pub worker: Option<Program>,
    /// libtorch as the worker finds it on the machine that submitted.
    pub libtorch: Option<LibtorchFound>,
    /// Variables of the submitting shell that change what a job does.
    pub variables: BTreeMap<String, String>,
    /// Names of such variables whose values were left out because they look like secrets.
    pub left_out: Vec<String>,
}

/// State of a working tree, without the folders that expctl writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// Commit, whole.
    pub commit: String,
    /// Branch. `None`: no branch is checked out.
    pub branch: Option<String>,
    /// Whether a tracked file differs from the commit.
    pub dirty: bool,
    /// Number of untracked files that git does not ignore.
    pub untracked: usize,
    /// Hash over all differences from the commit, even those that `source.diff` does not hold. `None`: there are none.
    pub hash: Option<String>,
}

impl SourceState {
    /// First 12 digits of the commit, with `-dirty` if tracked files differ from it.
    pub fn short(&self) -> String {
        let head = self.commit.get(..12).unwrap_or(&self.commit);
        if self.dirty { format!("{head}-dirty") } else { head.to_owned() }
    }
}

/// The config of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigOrigin {
    /// Hash over the resolved settings of all rows of the config, however they were written.
    pub hash: String,
    /// Labels of all its rows, before `--only` and `--only-missing`.
    pub rows: Vec<String>,
    /// The file, the files that it extends, the profile and the defaults.
    pub files: Vec<ConfigFile>,
}

/// A file of a config, and its copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigFile {
    /// Path, as messages show it.
    pub path: String,
    /// Its copy, relative to the job's folder.
    pub copy: PathBuf,
    /// Hash of the file.
    pub hash: String,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// Its version. `None`: it does not answer.
    pub version: Option<String>,
    /// Commit that it was built from. `None`: the build did not record it.
    pub commit: Option<String>,
    /// Hash of its file. `None`: the file cannot be read.
    pub hash: Option<String>,
}

/// libtorch as the dynamic linker finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibtorchFound {
    /// Its folder `lib`.
    pub folder: PathBuf,
    /// Its version. `None`: it has no file with its version.
    pub version: Option<String>,
}

impl Provenance {
    /// `provenance.json` of a job.
    pub fn path(job: &JobDir) -> PathBuf {
        job.path().join("provenance.json")
    }

    /// Read `provenance.json`. `None`: an older expctl submitted the job.
    ///
    /// # Errors
    /// The file cannot be read, or a newer expctl wrote it.
    pub fn read(job: &JobDir) -> Result<Option<Self>, LedgerError> {
        let path = Self::path(job);
        let read: Option<Self> = read_optional(&path)?;
        if let Some(provenance) = &read {
            known_schema(&path, provenance.schema, PROVENANCE_SCHEMA_VERSION)?;
        }
        Ok(read)
    }
}
