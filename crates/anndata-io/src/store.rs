//! The trait of all stores of rows, and of their readers.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::{AnnDataError, Prefetch, RequestError, Resident, Rows};

/// The form in which a store returns its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// CSR: the stored values of each row.
    Sparse,
    /// A value for every column.
    Dense,
}

impl Form {
    /// Name of the form in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sparse => "sparse",
            Self::Dense => "dense",
        }
    }
}

/// A matrix whose rows are read by number: a file, several files, or memory.
pub trait ArrayStore: Debug + Send + Sync + 'static {
    /// Number of rows.
    fn len(&self) -> u64;

    /// Whether there are no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gene names: the names of the columns, in order.
    fn genes(&self) -> &[String];

    /// Form of the rows that readers return.
    fn form(&self) -> Form;

    /// Rows that are stored and decoded together (a row group, the rows of an HDF5 chunk) and are best read together; 1 if
    /// any row costs the same.
    fn run_rows(&self) -> u64 {
        1
    }

    /// First row of each file, ascending. A chunk of rows that a sampler draws together does not cross these.
    fn starts(&self) -> Vec<u64> {
        vec![0]
    }

    /// Appends to `out` where the values of each of `rows` lie, which are below [`ArrayStore::len`], for [`ReadRows::fetch_to`]. Returns the
    /// number of bytes that were read for that; `None` if readers of the store have no [`ReadRows::fetch_to`].
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    fn locate(&self, rows: &[u64], out: &mut Vec<RowLocation>) -> Result<Option<u64>, AnnDataError> {
        let _ = (rows, out);
        Ok(None)
    }

    /// Total size of the files in bytes.
    fn stored_bytes(&self) -> u64;

    /// Upper bound of the number of stored values in all rows, explicit zeros included; `None` if it is not known without
    /// reading the rows.
    fn max_values(&self) -> Option<u64> {
        None
    }

    /// Lower bound of the number of stored values in all rows, explicit zeros included; 0 if it is not known without reading
    /// the rows.
    fn min_values(&self) -> u64 {
        0
    }

    /// Name of the store in messages: the path of its file.
    fn name(&self) -> String {
        "the array".to_owned()
    }

    /// Reads a column of obs as classes.
    ///
    /// # Errors
    /// Obs has no column of this name (the error lists the columns), or the column cannot be read.
    fn labels(&self, column: &str) -> Result<Labels, AnnDataError>;

    /// Reads a column of obs as numbers, `[rows]`; a missing value is NaN.
    ///
    /// # Errors
    /// Obs has no column of this name, the column does not hold numbers, or it cannot be read.
    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError>;

    /// Names of the columns of obs, without the index; empty if the store does not know them.
    ///
    /// # Errors
    /// The file cannot be read.
    fn columns(&self) -> Result<Vec<String>, AnnDataError> {
        Ok(Vec::new())
    }

    /// Reads a column of obs as what it is: numbers, or classes (categories, text, truth values).
    ///
    /// # Errors
    /// As [`ArrayStore::labels`].
    fn annotation(&self, column: &str) -> Result<Annotation, AnnDataError> {
        self.labels(column).map(Annotation::Classes)
    }

    /// Names of the rows (the index of obs), in order; `None` if the store has none.
    ///
    /// # Errors
    /// The file cannot be read, or a row has no name.
    fn row_names(&self) -> Result<Option<Vec<String>>, AnnDataError> {
        Ok(None)
    }

    /// All rows, if they are in memory: batches are then made from them without a reader.
    fn resident(&self) -> Option<Resident<'_>> {
        None
    }

    /// Makes a reader, for one thread.
    ///
    /// # Errors
    /// A file cannot be opened.
    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError>;
}

/// The rows to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSelection<'a> {
    /// Rows by number, in any order; a row may occur more than once.
    Rows(&'a [u64]),
    /// Consecutive rows.
    Range(Range<u64>),
}

/// Where the values of a row lie in the arrays of its matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLocation {
    /// Index of its first value.
    pub first: u64,
    /// Number of its values.
    pub values: u64,
}

/// Reads rows in two steps, so that a caller can time them as two stages: [`ReadRows::fetch`] reads bytes, [`ReadRows::decode`]
/// turns them into rows. Together they append the selected rows to `out`. A reader may move to another thread between calls.
pub trait ReadRows: Send {
    /// Reads the bytes of the selected rows from the files (stage *read*) and returns their number. Bytes that need no decoding
    /// go straight to `out`.
    ///
    /// # Errors
    /// A row is beyond the end; a file cannot be read, or was replaced since it was opened.
    fn fetch(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError>;

    /// As [`ReadRows::fetch`], but `out` already has its final length, and the values of `rows[i]`, which [`ArrayStore::locate`] has found, are
    /// written from position `places[i]` on. Several readers can thus fill one `out`. [`ReadRows::decode`] follows here, too. After an error,
    /// the values at these positions are unspecified.
    ///
    /// # Errors
    /// As [`ReadRows::fetch`]; a position is beyond the end of `out`; [`ArrayStore::locate`] of the store is `None`.
    fn fetch_to(&mut self, rows: &[RowLocation], places: &[u64], out: &mut Rows) -> Result<u64, AnnDataError> {
        let _ = (rows, places, out);
        Err(RequestError::NoPlaces.into())
    }

    /// Announces ranges of rows that this reader or another reader of the store will fetch, in this order. The bytes of a remote
    /// store are requested now, as far as memory allows, and stay available until the returned [`Prefetch`] is dropped. Must
    /// not be called between a fetch and its decode.
    ///
    /// # Errors
    /// As [`ReadRows::fetch`]: some formats must read to find out where rows lie.
    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Prefetch, AnnDataError> {
        let _ = ranges;
        Ok(Prefetch::default())
    }

    /// Decompresses, converts and orders the rows that were fetched last (stage *decode*). `out` is that of the fetch, and
    /// nobody changed it in between.
    ///
    /// # Errors
    /// The bytes are damaged; `out` then has the rows that it had before the fetch.
    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError>;

    /// Checks that the files are still those that were opened. Called once for each batch, after its reads.
    ///
    /// # Errors
    /// A file was written to, replaced or removed.
    fn unchanged(&self) -> Result<(), AnnDataError> {
        Ok(())
    }

    /// Bytes of memory that the reader keeps between calls.
    fn work_bytes(&self) -> u64 {
        0
    }
}

/// A column of obs as its file has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Annotation {
    /// Categories, text or truth values, as classes.
    Classes(Labels),
    /// Numbers.
    Numbers {
        /// float64 `[rows]`; a missing value is NaN.
        values: Vec<f64>,
        /// The file has integers.
        integers: bool,
    },
}

/// A column of obs as classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Names of the classes: the categories of a categorical column in the file's order, or the distinct values of another
    /// column, ascending. Several files have the classes of the first file, then the new ones of each further file.
    pub categories: Vec<String>,
    /// Type of the values that the classes are named after.
    pub kind: LabelKind,
    /// int32 `[rows]`: class of each row; -1 is a missing value.
    pub codes: Vec<i32>,
}

/// Type of the values that classes are named after. A number has different names as an integer and as a float: 1 and 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelKind {
    /// Text.
    #[default]
    Text,
    /// Integers of any width.
    Integer,
    /// Floats of any width.
    Float,
    /// Truth values.
    Bool,
}

impl LabelKind {
    /// Name of the type in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integers",
            Self::Float => "floats",
            Self::Bool => "truth values",
        }
    }
}

impl Labels {
    /// Reads several columns of obs of a store.
    ///
    /// # Errors
    /// A column is missing, or cannot be read.
    pub fn from_store(store: &dyn ArrayStore, columns: &[String]) -> Result<Arc<Vec<Self>>, AnnDataError> {
        columns.iter().map(|column| store.labels(column)).collect::<Result<Vec<_>, _>>().map(Arc::new)
    }

    /// Number of rows of each class; missing values are not counted.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.categories.len()];
        for code in &self.codes {
            if let Some(count) = usize::try_from(*code).ok().and_then(|code| counts.get_mut(code)) {
                *count += 1;
            }
        }
        counts
    }
}
