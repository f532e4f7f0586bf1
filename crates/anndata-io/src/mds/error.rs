//! Errors of MDS folders: of the index, of shards and of samples.

use std::error::Error;
use std::io;

use crate::annotation::coded_column::UnknownCategory;
use crate::mds::encoding::MdsDtype;
use crate::mds::store::GENES_FILE;
use crate::names::{MissingName, NameError};

/// Why a sample is no row, or a value of it no value of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SampleError {
    #[error("a sample is cut short")]
    CutShort,
    #[error("a sample has {bytes} bytes, its columns {columns}")]
    Length { bytes: u64, columns: u64 },
    #[error("it is no array")]
    NotArray,
    #[error("an array is cut short")]
    ShortArray,
    #[error("an array is of type {number}, which there is not")]
    DtypeNumber { number: u8 },
    #[error("an array has no axis")]
    NoAxis,
    #[error("an array of {rows} × {columns} values is no row")]
    Shape { rows: u64, columns: u64 },
    #[error("an array of {count} values of {} has {bytes} bytes", dtype.name())]
    ArrayBytes { count: u64, dtype: MdsDtype, bytes: usize },
    #[error("{bytes} bytes are no values of {}", dtype.name())]
    RawBytes { bytes: usize, dtype: MdsDtype },
    #[error("rows of another form than the store has")]
    OtherForm,
    #[error("it has {values} values, there are {genes} genes")]
    ValueCount { values: usize, genes: usize },
    #[error("it has {indices} numbers of genes and {values} values")]
    ListLengths { indices: usize, values: usize },
    #[error("numbers of genes are {}", dtype.name())]
    IndexType { dtype: MdsDtype },
    #[error("it has a value for a gene that there is not; there are {genes}")]
    UnknownGene { genes: usize },
    #[error("it has two values for gene {gene}")]
    RepeatedGene { gene: i32 },
    #[error("a text is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),
    #[error("what should be an integer is none")]
    NotInteger,
    #[error("what should be a number is none")]
    NotNumber,
    #[error("{code} is the number of none of its {classes} classes")]
    UnknownClass { code: i64, classes: usize },
}

/// What is wrong with a folder of shards.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MdsError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("it is of version {version}; 2 is read here")]
    Version { version: u32 },
    #[error("it is of format {format:?}; \"mds\" is read here")]
    Format { format: String },
    #[error("it has no shards, so nothing says what a sample is")]
    NoShards,
    /// A shard in the index.
    #[error("shard {shard}: {error}")]
    Shard { shard: usize, error: Box<MdsError> },
    #[error("there are more than 2^64 samples")]
    TooManySamples,
    #[error("{samples} samples are not in {bytes} bytes")]
    SampleBytes { samples: u64, bytes: u64 },
    #[error("its file is {file:?}, which is not in the folder")]
    FileOutside { file: String },
    #[error("it has other columns than the first")]
    MixedColumns,
    #[error("it has not one encoding and one size for each column")]
    ColumnCount,
    #[error("two columns have the name '{column}'")]
    RepeatedColumn { column: String },
    #[error("encoding {encoding:?} is none of MDS")]
    Encoding { encoding: String },
    #[error("the size of column '{column}' is not that of its encoding")]
    ColumnSize { column: String },
    #[error("\"expctl.categories\": two classes of '{column}' have one name")]
    RepeatedClass { column: String },

    #[error("it has to note \"expctl.x\", or \"expctl.indices\" and \"expctl.values\"")]
    IncompleteNotes,
    #[error("{key:?} names '{column}', which is no column of arrays or bytes")]
    NotedColumn { key: &'static str, column: String },
    #[error("column '{column}' cannot be both numbers of genes and values")]
    SameColumn { column: String },
    #[error("column '{column}' is to be numbers of genes, but holds no integers")]
    IndicesType { column: String },
    #[error(
        "{reason}; columns of arrays or bytes are: {}; the index can note \"expctl.x\", or \"expctl.indices\" and \"expctl.values\"",
        if arrays.is_empty() { "none".to_owned() } else { format!("'{}'", arrays.join("', '")) }
    )]
    UnclearColumns { reason: &'static str, arrays: Vec<String> },
    #[error(
        "nothing says how many genes there are: there is no {GENES_FILE} (their names, one a line) beside it, and it has no \
         \"expctl.columns\" (their number)"
    )]
    NoGeneCount,
    #[error(transparent)]
    Names(#[from] NameError),
    #[error("is not UTF-8")]
    NotUtf8,
    #[error("line {line} has no name")]
    EmptyLine { line: usize },

    #[error("it is cut short")]
    CutShort,
    #[error("has {found} bytes, the index says {expected}")]
    Length { found: u64, expected: u64 },
    #[error("has {found} samples, the index says {expected}")]
    Samples { found: u64, expected: u64 },
    #[error("its samples are not where it says")]
    Offsets,
    #[error("its columns are damaged: {0}")]
    Columns(serde_json::Error),
    #[error("it has other columns than the index says")]
    IndexColumns,
    #[error(
        "shards are compressed with {compression:?}, which is not read here: decompress them, or write them with zstd, gz or snappy"
    )]
    Compression { compression: String },
    #[error("is damaged: {0}")]
    Start(io::Error),
    #[error("{packed} bytes of Snappy are never {bytes}")]
    Ratio { packed: u64, bytes: u64 },
    #[error("cannot be decompressed: {0}")]
    Decompression(Box<dyn Error + Send + Sync>),
    #[error("is not {bytes} bytes when it is decompressed, as the index says")]
    DecompressedLength { bytes: u64 },
    #[error("its {name} is {found}, the index says {expected}")]
    Hash { name: String, found: String, expected: String },
    #[error("sample {sample}: {error}")]
    Sample { sample: u64, error: SampleError },

    #[error(transparent)]
    MissingColumn(Box<MissingName>),
    /// A column of obs.
    #[error("obs column '{column}': {error}")]
    Obs { column: String, error: Box<MdsError> },
    #[error("it holds numbers with fractions: they are no classes")]
    Fractions,
    #[error("it holds text, not numbers")]
    Text,
    #[error(transparent)]
    UnknownCategory(#[from] UnknownCategory),
}
