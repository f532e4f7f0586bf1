//! Errors of parquet files, from the innermost loops outwards.

use std::error::Error;

use parquet::basic::{Compression, Encoding};

use crate::AnnDataError;
use crate::annotation::coded_column::UnknownCategory;
use crate::names::{MissingName, NameError};
use crate::parquet::page_header::HeaderError;
use crate::parquet::schema::{COLUMNS_KEY, DENSE_COLUMN, GENES_KEY, INDICES_COLUMN, OBS_KEY, VALUES_COLUMN};

/// Why levels or values of a page cannot be decoded. One byte, since the loops over values return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EncodingError {
    #[error("values are cut short")]
    CutShort,
    #[error("values have more than 32 bits")]
    Width,
    #[error("a run is too long")]
    LongRun,
    #[error("a run of no values")]
    EmptyRun,
    #[error("a value is not in the dictionary")]
    NotInDictionary,
    #[error("values are missing (null)")]
    Null,
    #[error("there are more lists than rows")]
    TooManyLists,
    #[error("a row has more values than there are genes")]
    LongRow,
    #[error("a list that is empty goes on")]
    EmptyList,
    #[error("there are too many values")]
    TooManyValues,
    #[error("there is no memory for so many values")]
    NoMemory,
    #[error("blocks of differences have a wrong size")]
    DeltaBlock,
    #[error("differences have more than 64 bits")]
    DeltaWidth,
    #[error("values that are no integers are encoded as differences")]
    DeltaType,
    #[error("a number has too many bytes")]
    LongNumber,
    #[error("numbers are no integers")]
    NotIntegers,
}

/// Why a page, or the rows of the pages of a row group, cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    #[error("a page is cut short")]
    CutShort,
    #[error("a page says that it has {bytes} bytes, which is too much for its values")]
    TooLarge { bytes: usize },
    #[error("a page has another length than it says")]
    Length,
    #[error("a page has a wrong checksum")]
    Checksum,
    #[error("pages are compressed with {compression}, which is not read here: write the file with zstd or snappy")]
    Compression { compression: Compression },
    #[error("a page cannot be decompressed: {0}")]
    Decompression(Box<dyn Error + Send + Sync>),
    #[error("a page cannot be decompressed: an LZ4 block is cut short or too long")]
    Lz4Block,
    #[error("a page cannot be decompressed: it has {found} bytes, its header says {expected}")]
    DecompressedLength { found: usize, expected: usize },
    #[error("levels are encoded as {encoding}, which is not read here")]
    LevelEncoding { encoding: Encoding },
    #[error("levels are cut short")]
    ShortLevels,
    #[error("levels are longer than their page")]
    LongLevels,
    #[error(
        "values are encoded as {encoding}, which is not read here: write the file with plain or dictionary encoding"
    )]
    ValueEncoding { encoding: Encoding },
    #[error("a dictionary is encoded as {encoding}")]
    DictionaryEncoding { encoding: Encoding },
    #[error("a dictionary is cut short")]
    ShortDictionary,
    #[error("a page needs a dictionary, there is none")]
    NoDictionary,
    #[error("truth values have a dictionary")]
    BoolDictionary,
    #[error("this is no data page")]
    NotData,
    #[error("this is no dictionary page")]
    NotDictionary,
    #[error("a text is not UTF-8: {0}")]
    Utf8(#[from] std::str::Utf8Error),

    #[error("a page says that it has {values} values, there can be {max_values}")]
    TooManyValues { values: usize, max_values: u64 },
    #[error("there are more values than {rows} rows of {genes} have")]
    MoreValues { rows: u64, genes: u64 },
    #[error("{values} values are missing at the end of a row group")]
    MissingValues { values: u64 },
    #[error("{rows} rows are missing at the end of a row group")]
    MissingRows { rows: u64 },
    #[error("row {row} of its row group has not {genes} values: rows are of different lengths")]
    Ragged { row: u64, genes: u64 },
    #[error("a page has other rows than the page index, or its row group, says")]
    PageRows,
    #[error("a row has {indices:?} numbers of genes and {values:?} values")]
    ListLengths { indices: Option<u32>, values: Option<u32> },
    #[error("a row has a value for gene {gene}, there are {genes}")]
    Gene { gene: i32, genes: usize },
    #[error("numbers of genes do not ascend within a row")]
    Unsorted,
    #[error("the column of gene {gene}: {error}")]
    GeneColumn { gene: usize, error: Box<PageError> },
    #[error("a column is missing")]
    MissingColumn,
    #[error("it has more values than its row group has rows")]
    LongColumn,
    #[error("it has {values} values fewer than its row group has rows")]
    ShortColumn { values: usize },
    #[error("there is no memory for {rows} rows")]
    NoMemory { rows: usize },
    #[error("there is no room for a row")]
    NoRoom,
}

/// What is wrong with a parquet file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParquetError {
    #[error(transparent)]
    Page(#[from] PageError),
    #[error(transparent)]
    Library(#[from] parquet::errors::ParquetError),
    #[error(transparent)]
    Names(#[from] NameError),
    #[error("row group {group}: {error}")]
    RowGroup { group: usize, error: Box<ParquetError> },
    #[error("obs column '{column}': {error}")]
    Obs { column: String, error: Box<ParquetError> },
    /// The file cannot be read.
    #[error("{0}")]
    Read(Box<AnnDataError>),

    #[error("it has no column {column}")]
    NoColumn { column: usize },
    #[error("column '{column}' is in another file")]
    OtherFile { column: String },
    #[error("column '{column}' is not where the footer says")]
    ColumnPlace { column: String },
    #[error("it has {found} columns, the file has {expected}")]
    ColumnCount { found: usize, expected: usize },
    #[error("it has {rows} rows")]
    RowGroupRows { rows: i64 },
    #[error("its footer says that it has {footer} rows, its row groups have {row_groups}")]
    Rows { footer: i64, row_groups: u64 },
    #[error("it has {values} values in {rows} rows; rows of {genes} were expected")]
    RowGroupValues { values: u64, rows: u64, genes: u64 },
    #[error("the column of gene {gene} has {values} values")]
    GeneValues { gene: usize, values: u64 },
    #[error("its page index is wrong")]
    PageIndex,

    #[error("two columns have the name '{column}'")]
    RepeatedColumn { column: String },
    #[error("key '{key}' of its metadata: {source}")]
    Metadata { key: String, source: serde_json::Error },
    #[error("list column '{INDICES_COLUMN}' holds no integers")]
    IndicesType,
    #[error(
        "there is no list column '{DENSE_COLUMN}', nor both '{INDICES_COLUMN}' and '{VALUES_COLUMN}'; list columns are: {}",
        lists.join(", ")
    )]
    UnknownLists { lists: Vec<String> },
    #[error("there is no matrix: no list column of numbers, and no column of numbers that could be a gene")]
    NoMatrix,
    #[error("there is no column of numbers for gene '{gene}'")]
    NoGeneColumn { gene: String },
    #[error("{values} values in {rows} rows: rows are of different lengths")]
    RowLength { values: i64, rows: i64 },
    #[error(
        "nothing says how many genes there are: the key-value metadata has neither '{GENES_KEY}' (a JSON list of their names) nor \
         '{COLUMNS_KEY}' (their number)"
    )]
    NoGeneCount,

    #[error(transparent)]
    MissingColumn(Box<MissingName>),
    #[error(
        "column '{column}' is one of the genes, not of obs; the key-value metadata can say '{OBS_KEY}' (a JSON list of columns of \
         numbers that are no genes)"
    )]
    GeneAsObs { column: String },
    #[error("it holds numbers with fractions: they are no classes")]
    Fractions,
    #[error("it holds text, not numbers")]
    Text,
    #[error(transparent)]
    UnknownCategory(#[from] UnknownCategory),
    #[error("it has more values than there are rows")]
    LongObs,
    #[error("it has too few values")]
    ShortObs,
}

impl ParquetError {
    /// The error of a row group.
    #[cold]
    pub fn in_group(group: usize, error: impl Into<Self>) -> Self {
        Self::RowGroup { group, error: Box::new(error.into()) }
    }

    /// The error of a column of obs.
    #[cold]
    pub fn in_obs(column: &str, error: impl Into<Self>) -> Self {
        Self::Obs { column: column.to_owned(), error: Box::new(error.into()) }
    }
}

impl From<AnnDataError> for ParquetError {
    #[cold]
    fn from(error: AnnDataError) -> Self {
        Self::Read(Box::new(error))
    }
}

impl From<EncodingError> for ParquetError {
    #[cold]
    fn from(error: EncodingError) -> Self {
        Self::Page(error.into())
    }
}
