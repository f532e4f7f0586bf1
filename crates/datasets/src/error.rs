use std::path::{Path, PathBuf};

use anndata_io::AnnDataError;
use cell_loader::CellError;
use expctl_settings::{ArrayFormat, Data, LabelSource, Networks, StoreKind};
use graph_loader::GraphError;

use crate::build_folder::{PARTIAL, STORES_FOLDER};
use crate::graph::Dataset;

/// What can go wrong with a data set. Every variant names the file or folder where there is one.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The operating system refused to read or write.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file does not have the documented content.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A data set was asked for that has not been built.
    #[error("data set {} has not been built", path.display())]
    NotBuilt {
        /// Its folder.
        path: PathBuf,
    },
    /// A store was asked for that the data set has not been converted to.
    #[error("data set {} has no {store} store: `{command}` makes it", path.display())]
    NotConverted {
        /// Folder of the data set.
        path: PathBuf,
        /// The store, or the format of the files.
        store: &'static str,
        /// The command that makes it.
        command: String,
    },
    /// Another process is at the same work.
    #[error("another process is building {}", path.display())]
    Busy {
        /// The folder that it makes.
        path: PathBuf,
    },
    /// A problem that something can be done about.
    #[error("{problem}; {advice}")]
    Advised {
        /// What is wrong.
        problem: Box<DatasetError>,
        /// Advice, or what was done already.
        advice: String,
    },
    /// Something that a store or a batch of a graph is made of is missing or damaged.
    #[error(transparent)]
    Graph(GraphError),
    /// A file of an array cannot be read or written.
    #[error(transparent)]
    AnnData(#[from] AnnDataError),
    /// Rows of an array cannot be drawn or collated as asked.
    #[error(transparent)]
    Cell(CellError),
    /// Something was asked for that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// The work was stopped from outside before its end.
    #[error("stopped")]
    Stopped,
}

impl From<GraphError> for DatasetError {
    fn from(error: GraphError) -> Self {
        match error {
            GraphError::NoStore { path } => Self::NotBuilt { path },
            // An error of a data set that came through a loader.
            GraphError::Other(error) => match error.downcast::<Self>() {
                Ok(error) => *error,
                Err(error) => Self::Graph(GraphError::Other(error)),
            },
            error => Self::Graph(error),
        }
    }
}

impl From<DatasetError> for GraphError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::Graph(error) => error,
            error => Self::Other(Box::new(error)),
        }
    }
}

impl DatasetError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// The problem, without what to do about it.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Advised { problem, .. } => problem.cause(),
            other => other,
        }
    }

    /// Advice, if there is any.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::Advised { advice, .. } => Some(advice),
            _ => None,
        }
    }

    /// The message of a panic after `what`, which names the work that panicked.
    pub(crate) fn panicked(what: &str, panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Invalid(format!("{what}: {}", text.unwrap_or("unknown reason")))
    }

    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl DatasetError {
    /// Add advice to a problem of the data set in `folder`, which `data` describes. Other problems stay as they are.
    #[must_use]
    pub fn advise(self, folder: &Path, data: &Data) -> Self {
        let advice = match &self {
            Self::NotBuilt { path } if path == folder => format!("`{}` builds it", command("build", data, None)),
            Self::NotBuilt { path }
            | Self::Damaged { path, .. }
            | Self::AnnData(AnnDataError::Damaged { path, .. })
            | Self::Graph(GraphError::Lmdb { path, .. } | GraphError::Record { store: path, .. }) => {
                let Ok(inside) = path.strip_prefix(folder) else { return self };
                match made_store(inside) {
                    Some((name, kind)) => {
                        let store = folder.join(STORES_FOLDER).join(name);
                        let convert = command("convert", data, Some(kind));
                        format!("remove {} and run `{convert}`", store.display())
                    }
                    None => format!("`{}` checks the whole data set", command("verify", data, None)),
                }
            }
            _ => return self,
        };
        self.and(advice)
    }

    /// The problem with advice.
    pub fn and(self, advice: String) -> Self {
        Self::Advised { problem: Box::new(self), advice }
    }
}

impl Dataset {
    /// A problem of this data set with what can be done about it.
    pub(crate) fn advise(&self, problem: DatasetError) -> DatasetError {
        problem.advise(self.folder(), &self.manifest().data)
    }
}

/// Folder name and kind of the store that a path inside a data set belongs to, finished or under construction; `None` for the
/// base store.
fn made_store(inside: &Path) -> Option<(&str, &'static str)> {
    let mut parts = inside.strip_prefix(STORES_FOLDER).ok()?.components();
    let name = parts.next()?.as_os_str().to_str()?;
    let finished = name.strip_suffix(PARTIAL).unwrap_or(name);
    let graphs = StoreKind::ALL.iter().map(|kind| kind.name());
    let mut known = graphs.chain(ArrayFormat::ALL.iter().map(|format| format.name()));
    Some((name, known.find(|known| *known == finished)?))
}

/// `expctl data VERB` for a data set, as a user types it; `to` is what it is converted to.
pub fn command(verb: &str, data: &Data, to: Option<&str>) -> String {
    let to = to.map(|to| format!(" --to {to}")).unwrap_or_default();
    let networks = match data.networks {
        Networks::Real => " --networks real",
        Networks::Completed => " --networks completed",
        Networks::None => "",
    };
    let labels = match data.labels {
        LabelSource::Random => "",
        LabelSource::Planted => " --labels planted",
    };
    let files = if data.files == 1 { String::new() } else { format!(" --files {}", data.files) };
    let genes = match data.genes {
        0 => format!("--scale {}", data.scale),
        genes => format!("--genes {genes}"),
    };
    let Data { set, samples, seed, .. } = data;
    format!("expctl data {verb} {set}{to} --samples {samples} {genes}{networks} --seed {seed}{labels}{files}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_says_the_command_that_helps() {
        let data = Data {
            set: "study".to_owned(),
            samples: 9,
            scale: 0.5,
            networks: Networks::Real,
            seed: 3,
            labels: LabelSource::Random,
            files: 1,
            genes: 0,
        };
        let folder = Path::new("/data/set");
        let advised = |problem: DatasetError| problem.advise(folder, &data).to_string();
        let options = "--samples 9 --scale 0.5 --networks real --seed 3";
        assert_eq!(
            advised(DatasetError::NotBuilt { path: folder.to_owned() }),
            format!("data set /data/set has not been built; `expctl data build study {options}` builds it")
        );
        assert_eq!(
            advised(DatasetError::damaged(&folder.join("genes.txt"), "short")),
            format!("/data/set/genes.txt: short; `expctl data verify study {options}` checks the whole data set")
        );
        for name in ["ids", "ids.partial"] {
            let store = folder.join(STORES_FOLDER).join(name).join("lmdb");
            assert_eq!(
                advised(GraphError::Record { store, index: 7, reason: "bad".to_owned() }.into()),
                format!(
                    "record 7 of /data/set/stores/{name}/lmdb: bad; remove /data/set/stores/{name} and run `expctl data \
                     convert study --to ids {options}`"
                )
            );
        }
        let array = Data { networks: Networks::None, scale: 1.0, genes: 60_000, files: 2, ..data.clone() };
        assert_eq!(
            command("build", &array, None),
            "expctl data build study --samples 9 --genes 60000 --seed 3 --files 2"
        );
        let elsewhere = DatasetError::damaged(Path::new("/other"), "short").advise(folder, &data);
        assert_eq!((elsewhere.to_string(), elsewhere.advice()), ("/other: short".to_owned(), None));
    }
}
