//! Where things are: the folder that holds experiments/, conf/, data/ and results/.

use std::path::{Path, PathBuf};

use expctl_record::{Data, JobDir};

/// The folders of a project.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    data: PathBuf,
    runs: PathBuf,
}

impl Project {
    /// The project at `root`; without it, the nearest folder at or above the current one that holds `experiments/`, else
    /// the current one. `EXPCTL_DATA` and `EXPCTL_RUNS` move data sets and ledger elsewhere, for example to scratch.
    pub fn find(root: Option<&Path>) -> std::io::Result<Self> {
        let current = std::env::current_dir()?;
        let root = match root {
            Some(root) => current.join(root),
            None => current.ancestors().find(|d| d.join("experiments").is_dir()).unwrap_or(&current).to_owned(),
        };
        let moved = |variable: &str, default: PathBuf| match std::env::var_os(variable) {
            Some(path) if !path.is_empty() => current.join(path),
            _ => default,
        };
        Ok(Self {
            data: moved("EXPCTL_DATA", root.join("data")),
            runs: moved("EXPCTL_RUNS", root.join("results").join("runs")),
            root,
        })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of a study.
    pub fn study(&self, study: &str) -> PathBuf {
        self.root.join("experiments").join(study)
    }

    /// Folder of all studies.
    pub fn studies(&self) -> PathBuf {
        self.root.join("experiments")
    }

    /// Folder of a built data set, absolute.
    pub fn data_dir(&self, data: &Data) -> PathBuf {
        self.data.join(&data.set).join(data.folder_name())
    }

    /// The ledger.
    pub fn runs(&self) -> &Path {
        &self.runs
    }

    /// A job in the ledger.
    pub fn job(&self, id: u64) -> JobDir {
        JobDir::new(self.runs.join(id.to_string()))
    }

    /// Folder of the generated notes.
    pub fn results(&self) -> PathBuf {
        self.root.join("results")
    }

    /// Folder of published results that the user imported.
    pub fn imported(&self) -> PathBuf {
        self.root.join("results").join("imported")
    }
}
