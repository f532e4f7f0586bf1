//! `BindingError` is what the binding itself refuses. The functions below it choose the Python exception for each error of the loaders: that of
//! Python's own exceptions that fits the cause, and `DataError` where the data themselves are wrong.

use anndata_io::{AnnDataError, RequestError};
use cell_loader::{CellError, LoaderError};
use expctl_datasets::DatasetError;
use graph_loader::GraphError;
use graph_loader::error::RecordError;
use pyo3::exceptions::{
    PyConnectionError, PyFileNotFoundError, PyIndexError, PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError,
    PyValueError,
};
use pyo3::{PyErr, create_exception};

create_exception!(
    expctl._native,
    DataError,
    PyValueError,
    "Files, columns, genes or weights are not what was asked for: the text says which, and names the file."
);

/// What the binding itself refuses; everything else is an error of the loaders.
#[derive(Debug, thiserror::Error)]
pub enum BindingError {
    /// A format that is not read.
    #[error("format {format:?} is none of h5ad, zarr, parquet, mds")]
    UnknownFormat {
        /// The format.
        format: String,
    },
    /// A join that does not exist.
    #[error("join {join:?} is neither \"inner\" nor \"outer\"")]
    UnknownJoin {
        /// The join.
        join: String,
    },
    /// A draw that does not exist.
    #[error("there is no sampler {kind:?}")]
    UnknownDraw {
        /// Its name.
        kind: String,
    },
    /// A type that values of obs columns cannot have.
    #[error(
        "values of {column:?} cannot be {dtype:?}; \"class\", \"float32\", \"float64\" and \"int64\" are the types"
    )]
    UnknownDtype {
        /// The column.
        column: String,
        /// The type.
        dtype: String,
    },
    /// A column has values that int64 does not hold.
    #[error("column {column:?} has {value} in row {row}, which is no int64; ask for \"float64\"")]
    NotInteger {
        /// The column.
        column: String,
        /// The row.
        row: usize,
        /// The value.
        value: f64,
    },
    /// A layer of a format without layers.
    #[error("{format} files have no layers, and `{layer}` is asked for")]
    NoLayers {
        /// The format.
        format: String,
        /// The layer.
        layer: String,
    },
    /// Arrays of obsm that are not joined.
    #[error(
        "{array} of {file} has {found} columns, and of {first} {columns}: arrays of obsm are joined if all have as many"
    )]
    ObsmColumns {
        /// `obsm/NAME`.
        array: String,
        /// A file.
        file: String,
        /// Columns of its array.
        found: usize,
        /// The first file.
        first: String,
        /// Columns of its array.
        columns: usize,
    },
    /// A form of batches that does not exist.
    #[error("processor {form:?} is none of ids, removed, packed, masks, pyg, perturbation")]
    UnknownForm {
        /// The form.
        form: String,
    },
    /// A word that is none of those that can be asked for.
    #[error("{what} {asked:?} is none of {known}")]
    UnknownWord {
        /// What it is a word for.
        what: &'static str,
        /// The word.
        asked: String,
        /// The words that there are.
        known: String,
    },
    /// A graph that batches cannot be made from.
    #[error("graph, {what}: {problem}")]
    Graph {
        /// The edge type, or the kind of node.
        what: String,
        /// What is wrong with it.
        problem: GraphProblem,
    },
    /// Bytes that are not those of int64 numbers.
    #[error("a list of rows has {bytes} bytes, which is no multiple of 8")]
    RowBytes {
        /// Number of bytes.
        bytes: usize,
    },
    /// A row below 0.
    #[error("{item} {row} is listed, and {item}s are counted from 0")]
    NegativeRow {
        /// `row` or `sample`.
        item: &'static str,
        /// The row.
        row: i64,
    },
    /// A sample is listed that the data set does not have.
    #[error("sample {sample} is listed, and there are {samples} samples")]
    ListedSample {
        /// The sample.
        sample: u64,
        /// Samples of the data set.
        samples: u64,
    },
    /// An array of a batch that does not exist.
    #[error("a batch has {arrays} arrays, and array {index} is asked for")]
    NoArray {
        /// Its index.
        index: usize,
        /// Arrays of the batch.
        arrays: usize,
    },
    /// An array cannot be where it is asked for.
    #[error("a batch is in the memory of the CPU; move it with .to(device)")]
    OtherDevice,
    /// The iteration was started by another process.
    #[error(
        "process {here} is a fork of process {started}, in which this iteration was started, and has none of its threads; \
         begin an iteration here (iter(loader)), or start processes with \"spawn\""
    )]
    Forked {
        /// The process that started the iteration.
        started: u32,
        /// This process.
        here: u32,
    },
    /// The system starts no thread that opens files.
    #[error("cannot start a thread that opens files: {source}")]
    ThreadStart {
        /// The system's reason.
        source: std::io::Error,
    },
    /// A thread that opens files panicked, and has said why on stderr.
    #[error("a thread that opens files panicked; what it printed says why")]
    Panicked,
    /// The process was forked while threads of a loader ran.
    #[error(
        "this process was forked while {what}, so it may hold locks that nobody releases; start processes with \"spawn\" \
         (multiprocessing_context=\"spawn\" of a DataLoader), or fork before the first iteration"
    )]
    UnsafeFork {
        /// What ran in the parent.
        what: &'static str,
    },
}

/// What is wrong with a graph.
#[derive(Debug, thiserror::Error)]
pub enum GraphProblem {
    /// Bytes that are no numbers.
    #[error("{bytes} bytes, which is no multiple of {each}")]
    Bytes {
        /// Number of bytes.
        bytes: usize,
        /// Bytes of a number.
        each: usize,
    },
    /// Edges without a second end.
    #[error("{numbers} numbers are no two rows of one length")]
    OddLength {
        /// Number of numbers.
        numbers: usize,
    },
    /// An end that is no node.
    #[error("an edge ends at node {node}, and there are {nodes}")]
    Node {
        /// The node.
        node: i64,
        /// Nodes of this kind.
        nodes: usize,
    },
    /// Genes that do not ascend.
    #[error("names ascend, each once, and {second:?} comes after {first:?}")]
    GeneOrder {
        /// A gene.
        first: String,
        /// The gene after it.
        second: String,
    },
    /// Edges that do not ascend by reaction.
    #[error("edges ascend by reaction, and these do not")]
    ReactionOrder,
    /// Another number of coefficients than edges.
    #[error("{found} stoichiometric coefficients, and {edges} edges")]
    Stoichiometry {
        /// Number of coefficients.
        found: usize,
        /// Number of edges.
        edges: usize,
    },
}

impl From<BindingError> for PyErr {
    fn from(error: BindingError) -> Self {
        let text = error.to_string();
        match error {
            BindingError::Forked { .. } | BindingError::UnsafeFork { .. } | BindingError::Panicked => {
                PyRuntimeError::new_err(text)
            }
            BindingError::NegativeRow { .. } | BindingError::ListedSample { .. } | BindingError::NoArray { .. } => {
                PyIndexError::new_err(text)
            }
            BindingError::ThreadStart { .. } => PyOSError::new_err(text),
            BindingError::OtherDevice => pyo3::exceptions::PyBufferError::new_err(text),
            _ => PyValueError::new_err(text),
        }
    }
}

/// The exception for an error of a file. Its text is that of the error, as the command line prints it.
pub fn anndata_error(error: AnnDataError) -> PyErr {
    let text = error.to_string();
    match error {
        AnnDataError::Io { source, .. } => io_error(&source, text),
        AnnDataError::Rewritten { .. } => PyOSError::new_err(text),
        AnnDataError::Remote { .. } => PyConnectionError::new_err(text),
        AnnDataError::CscTooLarge { .. } | AnnDataError::OutOfMemory { .. } => PyMemoryError::new_err(text),
        AnnDataError::Request(RequestError::NoMemory { .. }) => PyMemoryError::new_err(text),
        AnnDataError::Request(RequestError::RowBeyondEnd { .. } | RequestError::RangeBeyondEnd { .. }) => {
            PyIndexError::new_err(text)
        }
        AnnDataError::Request(RequestError::TooManyFiles { .. }) => PyOSError::new_err(text),
        AnnDataError::Request(RequestError::Panicked { .. }) => PyRuntimeError::new_err(text),
        _ => DataError::new_err(text),
    }
}

/// The exception for an error of a loader.
pub fn cell_error(error: CellError) -> PyErr {
    match error {
        CellError::AnnData(error) => anndata_error(error),
        CellError::Loader(LoaderError::ThreadStart { .. }) => PyOSError::new_err(error.to_string()),
        CellError::Loader(_) => PyRuntimeError::new_err(error.to_string()),
        CellError::ListedRow { .. } | CellError::RowBeyondEnd { .. } => PyIndexError::new_err(error.to_string()),
        CellError::ScaleTarget { .. } | CellError::NoBatch { .. } | CellError::BlockSize { .. } => {
            PyValueError::new_err(error.to_string())
        }
        _ => DataError::new_err(error.to_string()),
    }
}

/// The exception for a refusal of the operating system.
fn io_error(source: &std::io::Error, text: String) -> PyErr {
    match source.kind() {
        std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
        std::io::ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

/// The exception for an error of a data set of a graph. Its text is that of the error, as the command line prints it.
pub fn dataset_error(error: DatasetError) -> PyErr {
    let text = error.to_string();
    match error.cause() {
        DatasetError::NotBuilt { .. } | DatasetError::NotConverted { .. } => PyFileNotFoundError::new_err(text),
        DatasetError::Io { source, .. } | DatasetError::Graph(GraphError::Io { source, .. }) => io_error(source, text),
        DatasetError::Graph(GraphError::Rewritten { .. }) => PyOSError::new_err(text),
        DatasetError::Graph(GraphError::Record { problem: RecordError::Missing { .. }, .. }) => {
            PyIndexError::new_err(text)
        }
        DatasetError::Graph(GraphError::Loader(LoaderError::ThreadStart { .. })) => PyOSError::new_err(text),
        DatasetError::Graph(GraphError::Loader(_)) => PyRuntimeError::new_err(text),
        DatasetError::Graph(GraphError::Options(_)) => PyValueError::new_err(text),
        _ => DataError::new_err(text),
    }
}

/// The exception for an error of samples of a graph.
pub fn graph_error(error: GraphError) -> PyErr {
    dataset_error(error.into())
}
