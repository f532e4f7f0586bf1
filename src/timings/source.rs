//! Where batch times come from: file or job, columns of a file, and what may be wrong with them.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// Name of the one method or epoch where no column tells several apart.
pub const ALL_ROWS: &str = "all";

/// Class of the times, which figures derived from them name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimingsClass {
    /// From the ledger.
    Measured,
    /// From a file.
    Imported,
    /// Drawn from a random generator; nobody measured them.
    Generated,
}

impl TimingsClass {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Imported => "imported",
            Self::Generated => "generated",
        }
    }
}

/// The file or job that times were read from.
#[derive(Clone, Debug, Serialize)]
pub struct TimingsSource {
    /// File or job, as the heading calls it.
    pub name: String,
    /// Class of the times.
    pub class: TimingsClass,
    /// Its columns, or which steps were read, in words.
    pub columns: String,
}

/// The columns that were read, in words.
pub fn described(have: &[String], places: &ColumnIndices, unit: TimeUnit) -> String {
    let name = |place: Option<usize>| place.and_then(|p| have.get(p)).map(|n| format!("`{n}`"));
    let unit = match unit {
        TimeUnit::S => "s",
        TimeUnit::Ms => "ms",
        TimeUnit::Us => "µs",
        TimeUnit::Ns => "ns",
    };
    format!(
        "method {}, epoch {}, batch {}, time {} ({unit})",
        name(places.method).unwrap_or_else(|| "one".into()),
        name(places.epoch).unwrap_or_else(|| "one".into()),
        name(places.batch).unwrap_or_else(|| "by order of rows".into()),
        name(Some(places.time)).unwrap_or_default(),
    )
}

/// Unit of the time column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeUnit {
    /// Seconds.
    #[default]
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

impl TimeUnit {
    /// How many of it make a second.
    pub const fn per_second(self) -> f64 {
        match self {
            Self::S => 1.0,
            Self::Ms => 1e3,
            Self::Us => 1e6,
            Self::Ns => 1e9,
        }
    }
}

/// Names of the columns of a file; `None`: a name from a list of usual ones, where the file has it.
#[derive(Clone, Debug, Default)]
pub struct TimingsColumns {
    /// Column of what is compared.
    pub method: Option<String>,
    /// Column of the pass over the data.
    pub epoch: Option<String>,
    /// Column of the number of the batch in its epoch.
    pub batch: Option<String>,
    /// Column of the time of the batch.
    pub time: Option<String>,
    /// Unit of the time.
    pub unit: TimeUnit,
}

/// Names that are tried in this order where none is given. pandas calls an index without a name the last of `BATCH`.
const METHOD: [&str; 1] = ["method"];
const EPOCH: [&str; 1] = ["epoch"];
const BATCH: [&str; 2] = ["batch", "__index_level_0__"];
const TIME: [&str; 4] = ["batch_times", "batch_time", "time", "seconds"];

/// Indices of the columns in a file. Without a method column all rows are of one method, without an epoch column of one epoch, and
/// without a batch column rows are counted.
#[derive(Clone, Copy, Debug)]
pub struct ColumnIndices {
    pub method: Option<usize>,
    pub epoch: Option<usize>,
    pub batch: Option<usize>,
    pub time: usize,
}

impl TimingsColumns {
    /// Find the columns among those of a file.
    pub fn find(&self, path: &Path, have: &[String]) -> Result<ColumnIndices, TimingsError> {
        let place = |name: &str| have.iter().position(|h| h == name);
        let missing = |column: &str, meaning| TimingsError::NoColumn {
            path: path.to_owned(),
            column: column.to_owned(),
            meaning,
            have: have.to_vec(),
        };
        let find = |named: &Option<String>, known: &[&str], meaning| match named {
            Some(name) => place(name).map(Some).ok_or_else(|| missing(name, meaning)),
            None => Ok(known.iter().find_map(|name| place(name))),
        };
        let (mut epoch, batch) = (find(&self.epoch, &EPOCH, "epoch")?, find(&self.batch, &BATCH, "batch")?);
        if let Some(both) = epoch.filter(|epoch| Some(*epoch) == batch) {
            if self.epoch.is_some() {
                return Err(TimingsError::SameColumn { path: path.to_owned(), column: have[both].clone() });
            }
            // A file that numbers its batches in a column of that name has no epochs.
            epoch = None;
        }
        Ok(ColumnIndices {
            method: find(&self.method, &METHOD, "method")?,
            epoch,
            batch,
            time: find(&self.time, &TIME, "time")?.ok_or_else(|| missing(TIME[0], "time"))?,
        })
    }
}

/// A time in seconds.
pub fn seconds(value: f64, unit: TimeUnit) -> Result<f64, CellProblem> {
    if value.is_nan() {
        Err(CellProblem::Nan)
    } else if value.is_infinite() || value < 0.0 {
        Err(CellProblem::NotATime { value })
    } else {
        // -0 would sort below 0.
        Ok(value.abs() / unit.per_second())
    }
}

/// A batch number of at most 2⁵³.
pub fn batch_in_range(number: u64) -> Result<u64, CellProblem> {
    if number <= 1 << 53 { Ok(number) } else { Err(CellProblem::BatchNumberTooLarge { number }) }
}

/// Why times could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TimingsError {
    /// The file cannot be read, or is not what its name says.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: FileProblem,
    },
    /// One column is named for two purposes.
    #[error("{}: batch and epoch are both column {column}", path.display())]
    SameColumn {
        /// The file.
        path: PathBuf,
        /// Name of the column.
        column: String,
    },
    /// A column is missing.
    #[error("{} has no column {column} for the {meaning}", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// Name of the column.
        column: String,
        /// What the column is for: `time`, `method`, `epoch`, `batch`.
        meaning: &'static str,
        /// Columns of the file.
        have: Vec<String>,
    },
    /// A value is not what its column is for.
    #[error("{}, {location}: column {column}: {problem}", path.display())]
    Cell {
        /// The file.
        path: PathBuf,
        /// Row, counted from 0, or line, counted from 1.
        location: String,
        /// Name of the column.
        column: String,
        /// What is wrong.
        problem: CellProblem,
    },
    /// More methods and epochs than any study has: probably another column was meant.
    #[error("{} has more than {most} pairs of method and epoch", path.display())]
    ManySeries {
        /// The file.
        path: PathBuf,
        /// The limit.
        most: usize,
    },
    /// The file or job has no rows.
    #[error("{} has no rows", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Rows out of order that cannot be put in order in bounded memory.
    #[error("{series}: its rows are out of order, and more than {most} of them are batch {batch}")]
    Repeated {
        /// Method and epoch.
        series: String,
        /// The batch number of these rows.
        batch: u64,
        /// The limit.
        most: usize,
    },
    /// The temporary file of the rows cannot be written or read.
    #[error("cannot keep the rows in a temporary file in {}: {source}", folder.display())]
    Spool {
        /// Folder of temporary files.
        folder: PathBuf,
        /// Message of the system.
        source: std::io::Error,
    },
}

/// Reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// Message of the system.
    #[error(transparent)]
    Io(std::io::Error),
    /// Message of the parquet reader.
    #[error(transparent)]
    Parquet(parquet::errors::ParquetError),
    /// Message of the CSV reader.
    #[error(transparent)]
    Csv(csv::Error),
    /// A line of a CSV file has more or fewer fields than its header.
    #[error("line {line}: {fields} fields where the header has {expected}")]
    FieldCount {
        /// Line, counted from 1.
        line: u64,
        /// Fields of the line.
        fields: u64,
        /// Fields of the header.
        expected: u64,
    },
    /// A line is no UTF-8.
    #[error("line {line}: neither parquet nor text")]
    NotText {
        /// Line, counted from 1.
        line: u64,
    },
}

/// Reason why a value is refused.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum CellProblem {
    /// No whole number of 0 or more; `value` as it is shown.
    #[error("{value} is no batch number")]
    NotABatchNumber {
        /// The value.
        value: String,
    },
    /// Above 2⁵³: a hash or an overflow, and not all such numbers survive pandas.
    #[error("{number} is too large for a batch number (above 2^53)")]
    BatchNumberTooLarge {
        /// The number.
        number: u64,
    },
    /// A text of a CSV file that is no number.
    #[error("'{text}' is no number")]
    NotANumber {
        /// The text.
        text: String,
    },
    /// A text column of a parquet file.
    #[error("text where a number is expected")]
    Text,
    /// NaN.
    #[error("not a number")]
    Nan,
    /// Negative or infinite.
    #[error("{value} is no time")]
    NotATime {
        /// The value.
        value: f64,
    },
    /// A null of a parquet file.
    #[error("no value (null)")]
    Null,
    /// A type of a parquet column that is not read.
    #[error("{kind} is of no use here")]
    UnsupportedType {
        /// The type.
        kind: &'static str,
    },
}

impl CellProblem {
    /// Whether the value should have been a batch number.
    pub const fn is_of_batch(&self) -> bool {
        matches!(self, Self::NotABatchNumber { .. } | Self::BatchNumberTooLarge { .. })
    }
}

impl From<std::io::Error> for TimingsError {
    fn from(source: std::io::Error) -> Self {
        Self::Spool { folder: std::env::temp_dir(), source }
    }
}
