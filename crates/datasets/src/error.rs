//! `DatasetError`: errors of data sets, with the `Advice` that can be given about them; `RequestError` and `SettingError`: why something cannot be
//! made as it was asked for.

use std::path::{Path, PathBuf};

use anndata_io::AnnDataError;
use cell_loader::CellError;
use expctl_settings::{Advice, ArrayFormat, Converted, Data, Draw, MergeError, StoreKind};
use graph_loader::GraphError;

use crate::build_folder::{PARTIAL, STORES_FOLDER};
use crate::damage::Damage;
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
    #[error("{}: {damage}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A record of a converted store is not the one of the base store.
    #[error("record {index} of {}: {} differs from the base store", store.display(), if *is_mask { "a mask" } else { "gene, label or p-value" })]
    Differs {
        /// The converted store.
        store: PathBuf,
        /// Key of the record.
        index: u64,
        /// A mask differs; else a gene, the label or the p-value.
        is_mask: bool,
    },
    /// A data set was asked for that has not been built.
    #[error("data set {} has not been built", path.display())]
    NotBuilt {
        /// Its folder.
        path: PathBuf,
    },
    /// A store was asked for that the data set has not been converted to.
    #[error("data set {} has no {store} store", path.display())]
    NotConverted {
        /// Folder of the data set.
        path: PathBuf,
        /// The store, or the format of the files.
        store: &'static str,
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
        /// What can be done, or was done already.
        advice: Box<Advice>,
    },
    /// A setting of the trial cannot be what it is.
    #[error("{key}: {problem}")]
    Setting {
        /// Its key.
        key: &'static str,
        /// What is wrong with it.
        problem: SettingError,
    },
    /// Something was asked for that cannot be made.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Something that a store or a batch of a graph is made of is missing or damaged.
    #[error(transparent)]
    Graph(GraphError),
    /// A file of an array cannot be read or written.
    #[error(transparent)]
    AnnData(#[from] AnnDataError),
    /// Rows of an array cannot be drawn or collated as asked.
    #[error(transparent)]
    Cell(CellError),
    /// A store yields other rows in a second reading.
    #[error("{store} yields other rows than when they were counted")]
    RowsChanged {
        /// The store.
        store: String,
    },
    /// A thread panicked.
    #[error("{work}: {message}")]
    Panicked {
        /// What it was doing.
        work: String,
        /// Message of the panic.
        message: String,
    },
    /// A thread ended before its work did.
    #[error("{work}: a thread has ended")]
    ThreadEnded {
        /// What it was doing.
        work: String,
    },
    /// The work was stopped from outside before its end.
    #[error("stopped")]
    Stopped,
}

/// What is wrong with a setting.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// Rows cannot be drawn or collated so.
    #[error(transparent)]
    Cell(CellError),
    /// Edge types cannot be merged so.
    #[error(transparent)]
    Merge(MergeError),
    /// The processor is of arrays.
    #[error("`rows` is of arrays: samples of a graph need another processor")]
    ArrayProcessor,
    /// No column of obs is named to draw by.
    #[error("it is empty, and to draw rows `{}` needs a column of obs", draw.name())]
    NoColumn {
        /// How rows are drawn.
        draw: Draw,
    },
    /// Files have no layers.
    #[error("{format} files have no layers, and `{layer}` is asked for")]
    NoLayers {
        /// Format of the files.
        format: &'static str,
        /// The layer.
        layer: String,
    },
    /// A store has masks of networks, and networks are merged.
    #[error("the store {store} has a mask for each network, and none of several as one")]
    MergedMasks {
        /// The store.
        store: &'static str,
    },
    /// Files have another number of rows than the config says.
    #[error("the files have {rows} rows, and not {stated}: set it to {rows}")]
    RowCount {
        /// Rows of all files.
        rows: u64,
        /// Rows that the config says.
        stated: u64,
    },
    /// Trials ask for different numbers of the same files.
    #[error("trials ask for {first} and for {second} files in {}", folder.display())]
    FileCounts {
        /// Number that one asks for.
        first: u32,
        /// Number that another asks for.
        second: u32,
        /// Folder of the files.
        folder: PathBuf,
    },
}

/// Why something cannot be made as it was asked for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// More samples than the study has, or none.
    #[error("{set} has 1 to {max} samples, not {samples}")]
    SampleCount {
        /// The data set.
        set: String,
        /// Samples of the study.
        max: u64,
        /// Samples that are asked for.
        samples: u64,
    },
    /// More samples than the genes have different triples.
    #[error("{samples} distinct samples cannot be made from the genes at scale {scale}: {max} at most")]
    DistinctSamples {
        /// Samples that are asked for.
        samples: u64,
        /// Share of the genes.
        scale: f64,
        /// Samples that can be made.
        max: u64,
    },
    /// An array without rows.
    #[error("{set} has at least one row")]
    NoRows {
        /// The data set.
        set: String,
    },
    /// A share of the genes that is none.
    #[error("scale is a share of the genes in (0, 1], not {scale}")]
    Scale {
        /// The share.
        scale: f64,
    },
    /// More genes than columns can be numbered.
    #[error("genes are 1 to {}, not {genes}", i32::MAX)]
    GeneCount {
        /// Genes that are asked for.
        genes: u64,
    },
    /// A number and a share of the genes.
    #[error("a number of genes ({genes}) and a share of them ({scale}) exclude each other")]
    GenesAndScale {
        /// The number.
        genes: u64,
        /// The share.
        scale: f64,
    },
    /// A data set of a graph is asked for as one of an array.
    #[error("{set} has networks, and is in one file")]
    NotAnArray {
        /// The data set.
        set: String,
    },
    /// The recipe has samples of another number of genes.
    #[error("samples of {genes} genes are not supported, only of 3")]
    GenesPerSample {
        /// Genes of a sample.
        genes: u32,
    },
    /// More files than rows, or none.
    #[error("{rows} rows cannot be in {files} files")]
    FileCount {
        /// Rows of all files.
        rows: u64,
        /// Files that are asked for.
        files: u64,
    },
    /// An edge type that the data set does not have.
    #[error("no edge type `{name}` in {}; it has {}", path.display(), known.join(", "))]
    UnknownEdgeType {
        /// The edge type.
        name: String,
        /// File of the graph.
        path: PathBuf,
        /// Its edge types.
        known: Vec<String>,
    },
    /// The base of a data set is not made by conversion.
    #[error("{format} is what the other formats are made from")]
    IsBase {
        /// Format of the base.
        format: &'static str,
    },
    /// Row groups without rows.
    #[error("a row group has at least one row")]
    EmptyRowGroup,
    /// Shards without rows.
    #[error("a shard has at least one row")]
    EmptyShard,
    /// No files are named.
    #[error("there are no files")]
    NoFiles,
    /// Two files would get the same name.
    #[error("two files would become {}", target.display())]
    SameTarget {
        /// The path that both would have.
        target: PathBuf,
    },
    /// Row numbers of a matrix by columns are int32.
    #[error("{store} has {rows} rows; more than {} cannot be stored by columns", i32::MAX)]
    TooManyRowsByColumns {
        /// The store.
        store: String,
        /// Its rows.
        rows: u64,
    },
}

impl From<GraphError> for DatasetError {
    fn from(error: GraphError) -> Self {
        match error {
            GraphError::NoStore { path } => Self::NotBuilt { path },
            GraphError::GeneMasksTooLarge { .. } => Self::Graph(error).and(Advice::SmallerGeneMasks),
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
    pub fn advice(&self) -> Option<&Advice> {
        match self {
            Self::Advised { advice, .. } => Some(advice),
            _ => None,
        }
    }

    /// A panic of a thread that did `work`.
    pub(crate) fn panicked(work: String, panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Panicked { work, message: text.unwrap_or("unknown reason").to_owned() }
    }

    pub(crate) fn damaged(path: &Path, damage: impl Into<Damage>) -> Self {
        Self::Damaged { path: path.to_owned(), damage: damage.into() }
    }
}

impl DatasetError {
    /// Add advice to a problem of the data set in `folder`, which `data` describes. Other problems stay as they are.
    #[must_use]
    pub fn advise(self, folder: &Path, data: &Data) -> Self {
        let advice = match &self {
            Self::NotBuilt { path } if path == folder => Advice::Build(data.clone()),
            Self::NotBuilt { path }
            | Self::Damaged { path, .. }
            | Self::Differs { store: path, .. }
            | Self::AnnData(AnnDataError::Damaged { path, .. })
            | Self::Graph(GraphError::Lmdb { path, .. } | GraphError::Record { store: path, .. }) => {
                let Ok(inside) = path.strip_prefix(folder) else { return self };
                match made_store(inside) {
                    Some((name, to)) => Advice::ConvertAgain {
                        remove: folder.join(STORES_FOLDER).join(name),
                        data: data.clone(),
                        to,
                        file_count: None,
                    },
                    None => Advice::Verify(data.clone()),
                }
            }
            _ => return self,
        };
        self.and(advice)
    }

    /// The problem with advice.
    #[must_use]
    pub fn and(self, advice: Advice) -> Self {
        Self::Advised { problem: Box::new(self), advice: Box::new(advice) }
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
fn made_store(inside: &Path) -> Option<(&str, Converted)> {
    let mut parts = inside.strip_prefix(STORES_FOLDER).ok()?.components();
    let name = parts.next()?.as_os_str().to_str()?;
    let finished = name.strip_suffix(PARTIAL).unwrap_or(name);
    let graphs = StoreKind::ALL.iter().map(|kind| Converted::Store(*kind));
    let mut known = graphs.chain(ArrayFormat::ALL.iter().map(|format| Converted::Files(*format)));
    Some((name, known.find(|known| known.name() == finished)?))
}

#[cfg(test)]
mod tests {
    use expctl_settings::{LabelSource, Networks};
    use graph_loader::error::RecordError;

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
            advised(DatasetError::damaged(&folder.join("genes.txt"), Damage::CutShort)),
            format!(
                "/data/set/genes.txt: is cut short; `expctl data verify study {options}` checks the whole data set"
            )
        );
        for name in ["ids", "ids.partial"] {
            let store = folder.join(STORES_FOLDER).join(name).join("lmdb");
            assert_eq!(
                advised(GraphError::Record { store, index: 7, problem: RecordError::Missing { records: 2 } }.into()),
                format!(
                    "record 7 of /data/set/stores/{name}/lmdb: there is none; the store has 2; remove /data/set/stores/{name} and run `expctl data \
                     convert study --to ids {options}`"
                )
            );
        }
        let elsewhere = DatasetError::damaged(Path::new("/other"), Damage::CutShort).advise(folder, &data);
        assert_eq!((elsewhere.to_string(), elsewhere.advice()), ("/other: is cut short".to_owned(), None));
    }
}
