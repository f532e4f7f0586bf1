//! Errors of all stores, readers and writers.

use std::any::Any;
use std::error::Error;
use std::path::{Path, PathBuf};

use crate::annotation::frame::FrameError;
use crate::codec::CodecError;
use crate::h5ad::array_layout::Hdf5Error;
use crate::matrix::matrix_file::MatrixError;
use crate::mds::error::MdsError;
use crate::names::{MissingName, NameError};
use crate::parquet::error::ParquetError;
use crate::source::SourceError;
use crate::write::WriteError;
use crate::zarr::metadata::ZarrError;
use crate::{Form, LabelKind};

/// An error of a store, a reader or a writer. A variant that is about a file or an object names it.
#[derive(Debug, thiserror::Error)]
pub enum AnnDataError {
    /// An operation on a file failed in the operating system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, such as "read".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The content of a file contradicts its format, or this crate does not support it.
    #[error("{}: {damage}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        damage: Damage,
    },
    /// A file was written to, replaced or removed after it was opened.
    #[error("store {} was rewritten while it was read", path.display())]
    Rewritten {
        /// The file or folder.
        path: PathBuf,
    },
    /// An object of a server cannot be read.
    #[error("{url}: {reason}")]
    Remote {
        /// URL of the object.
        url: String,
        /// The answer of the server, or why there was none.
        reason: String,
    },
    /// A CSC matrix is too large to be transposed in memory.
    #[error(
        "{}: is stored by columns (CSC); to read rows of it, {bytes} bytes of memory would be needed, and {available} are left of \
         what all files together may take; write it by rows in Python: `adata.X = adata.X.tocsr()`, then `adata.write_h5ad(…)`",
        path.display()
    )]
    CscTooLarge {
        /// The file.
        path: PathBuf,
        /// Size of the transposed matrix in bytes.
        bytes: u64,
        /// Bytes of memory that all transposed matrices may still take.
        available: u64,
    },
    /// The rows of a store do not fit into memory.
    #[error("reading {rows} rows of {name} into memory needs {} GiB at least, {} GiB are free", gib(*needed), gib(*free))]
    OutOfMemory {
        /// Name of the store.
        name: String,
        /// Number of its rows.
        rows: u64,
        /// Lower bound of the size of its rows in bytes.
        needed: u64,
        /// Bytes of memory that are free.
        free: u64,
    },
    /// What was to be written contradicts the format or the file that it was to go to.
    #[error("{}: {problem}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        problem: WriteError,
    },
    /// A request that cannot be fulfilled.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// An error of an [`ArrayStore`](crate::ArrayStore) of another crate.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl AnnDataError {
    #[cold]
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    #[cold]
    pub(crate) fn damaged(path: &Path, damage: impl Into<DamageKind>) -> Self {
        Self::Damaged { path: path.to_owned(), damage: Damage(Box::new(damage.into())) }
    }

    #[cold]
    pub(crate) fn write(path: &Path, problem: impl Into<WriteError>) -> Self {
        Self::Write { path: path.to_owned(), problem: problem.into() }
    }

    /// The error for a panic of a thread that did `work`.
    #[cold]
    pub(crate) fn panicked(work: impl Into<String>, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        RequestError::Panicked { work: work.into(), message: text.unwrap_or("unknown reason").to_owned() }.into()
    }

    /// The error for memory that the system does not give.
    #[cold]
    pub(crate) fn no_memory(bytes: usize, purpose: impl Into<String>) -> Self {
        RequestError::NoMemory { bytes: bytes as u64, purpose: purpose.into() }.into()
    }
}

/// Formats bytes as GiB with two decimals.
fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 30))
}

/// What is wrong with the content of a file. Its text says it; the kinds are those of each format, and are not for callers to
/// rely on.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Damage(Box<DamageKind>);

/// Damage by the part of the crate that finds it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DamageKind {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Names(#[from] NameError),
    #[error(transparent)]
    Hdf5(#[from] Hdf5Error),
    #[error(transparent)]
    Zarr(#[from] ZarrError),
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error(transparent)]
    Mds(#[from] MdsError),
    /// A part of the file, such as `layers/counts` or `row group 3`, has the damage.
    #[error("{part}: {damage}")]
    Inside { part: String, damage: Box<DamageKind> },
}

impl DamageKind {
    #[cold]
    pub fn inside(part: impl Into<String>, damage: impl Into<Self>) -> Self {
        Self::Inside { part: part.into(), damage: Box::new(damage.into()) }
    }
}

/// A request that a store or this process cannot fulfil.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// A row is asked for that the store does not have.
    #[error("row {row} was asked for, and there are {rows} rows in {store}")]
    RowBeyondEnd {
        /// The row.
        row: u64,
        /// Name of the store.
        store: String,
        /// Number of its rows.
        rows: u64,
    },
    /// Rows are asked for that the store does not have, or a range that ends before it starts.
    #[error("rows {start} to {end} were asked for, and there are {rows} rows in {store}")]
    RangeBeyondEnd {
        /// First row of the range.
        start: u64,
        /// End of the range.
        end: u64,
        /// Name of the store.
        store: String,
        /// Number of its rows.
        rows: u64,
    },
    /// Rows of one form are to be appended to rows of the other form.
    #[error("{} rows cannot be read behind rows of another form", form.name())]
    OtherForm {
        /// Form of the rows of the store.
        form: Form,
    },
    /// Dense rows are to be appended to dense rows of another length.
    #[error("rows of {columns} values cannot be read behind rows of {found}")]
    OtherColumns {
        /// Values of a row of the store.
        columns: usize,
        /// Values of each row that the buffer holds already.
        found: usize,
    },
    /// The rows of a store cannot be read to given places of a buffer.
    #[error("rows of this store cannot be read to given places")]
    NoPlaces,
    /// The values of a row are to be read from beyond the end of the matrix.
    #[error("{values} values from value {first} on were asked for, and there are {stored} in {store}")]
    LocationBeyondEnd {
        /// Index of the first value of the row.
        first: u64,
        /// Number of its values.
        values: u64,
        /// Name of the store.
        store: String,
        /// Number of values in the matrix.
        stored: u64,
    },
    /// A row is to be read to a place beyond the end of the buffer.
    #[error("place {place} of a row is beyond {values} values")]
    PlaceBeyondEnd {
        /// Index of the first value of the row in the buffer.
        place: u64,
        /// Length of the buffer.
        values: u64,
    },
    /// A reader of a store returned another number of rows than it was asked for.
    #[error("{expected} rows were asked for, and {found} came")]
    RowCount {
        /// Rows that were asked for.
        expected: usize,
        /// Rows that came.
        found: usize,
    },
    /// The system has no memory for a buffer.
    #[error("there is no memory for {bytes} bytes of {purpose}")]
    NoMemory {
        /// Size of the buffer in bytes.
        bytes: u64,
        /// What the buffer is for.
        purpose: String,
    },
    /// A thread panicked.
    #[error("{work}: {message}")]
    Panicked {
        /// What the thread did.
        work: String,
        /// Message of the panic.
        message: String,
    },
    /// Whoever asked for rows wants them no longer.
    #[error("reading {store} was interrupted")]
    Interrupted {
        /// Name of the store.
        store: String,
    },
    /// A collection of no store.
    #[error("a collection needs one file at least")]
    NoStores,
    /// A collection of more than 2^64 rows.
    #[error("there are more than 2^64 rows")]
    TooManyRows,
    /// A collection of more genes than int32 numbers.
    #[error("{genes} genes are more than 32 bits can number")]
    TooManyGenes {
        /// Number of genes.
        genes: usize,
    },
    /// A gene is selected that no store, or not every store of an inner join, has.
    #[error(transparent)]
    UnknownGene(Box<MissingName>),
    /// A gene is selected twice.
    #[error("gene {gene:?} is asked for twice")]
    RepeatedGene {
        /// The gene.
        gene: String,
    },
    /// A column of obs has values of several types, so that a class would have several names.
    #[error(
        "classes of {column:?} are {} in {first}, but {} in {second}; the same class would have two names: write the column with \
         one type in all files",
        first_kind.name(),
        second_kind.name()
    )]
    MixedClasses {
        /// The column of obs.
        column: String,
        /// Name of the first store.
        first: String,
        /// Type of the classes of the first store.
        first_kind: LabelKind,
        /// Name of a store with another type.
        second: String,
        /// The other type.
        second_kind: LabelKind,
    },
    /// No reader of a store can be open beside those that are in use.
    #[error("no reader of {store} can be open beside the others")]
    NoReader {
        /// Name of the store.
        store: String,
    },
    /// The process may not open so many files.
    #[error(
        "{files} files need {needed} descriptors, and this process may have {limit}; raise the limit (`ulimit -n`), or convert \
         them to fewer files"
    )]
    TooManyFiles {
        /// Files that are to be open.
        files: usize,
        /// Descriptors that they need, with those of everything else.
        needed: u64,
        /// Hard limit of the process.
        limit: u64,
    },
    /// A cache of remote objects has no room for a block.
    #[error("a cache of {bytes} bytes has no room for blocks: 3 MiB do")]
    CacheTooSmall {
        /// Capacity of the cache in bytes.
        bytes: u64,
    },
    /// libhdf5 refuses a filter.
    #[error("the HDF5 library takes no filters")]
    NoFilters,
}
