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
    /// The project at `root`; without it, the nearest folder that holds `experiments/` at or above the current folder, or
    /// else above `config`; else the current folder. `EXPCTL_DATA` and `EXPCTL_RUNS` move data sets and ledger elsewhere,
    /// for example to scratch.
    pub fn find(root: Option<&Path>, config: Option<&Path>) -> std::io::Result<Self> {
        let current = std::env::current_dir()?;
        let above = |place: &Path| place.ancestors().find(|d| d.join("experiments").is_dir()).map(Path::to_owned);
        let root = match root {
            Some(root) => current.join(root),
            None => above(&current).or_else(|| above(&current.join(config?))).unwrap_or_else(|| current.clone()),
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

    /// Whether there are studies here; without them most questions have no answer.
    pub fn has_studies(&self) -> bool {
        self.studies().is_dir()
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
