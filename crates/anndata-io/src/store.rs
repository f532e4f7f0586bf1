use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::{Ahead, AnnDataError, Resident, Rows};

/// How a store has its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// CSR.
    Sparse,
    /// A value for every column.
    Dense,
}

/// Rows by number: files, a collection of them, or memory.
pub trait ArrayStore: Debug + Send + Sync + 'static {
    /// Number of rows.
    fn len(&self) -> u64;

    /// No rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of the columns, in order.
    fn genes(&self) -> &[String];

    /// What readers yield.
    fn form(&self) -> Form;

    /// Rows of a run that lie together in the file and are best read together (a row group, an HDF5 chunk's rows); 1 where
    /// any row costs the same.
    fn run_rows(&self) -> u64 {
        1
    }

    /// First row of each file, ascending. Chunks of rows that are drawn together do not reach over these.
    fn starts(&self) -> Vec<u64> {
        vec![0]
    }

    /// Add how many values readers yield of each of these rows to `out`, in the form of the store; `false` where that is not
    /// known before they are read, or [`ReadRows::fetch_to`] is not to be had. The rows are below [`ArrayStore::len`].
    fn row_values(&self, rows: &[u64], out: &mut Vec<u64>) -> bool {
        let _ = (rows, out);
        false
    }

    /// Bytes of the files.
    fn stored_bytes(&self) -> u64;

    /// Values that all rows have together at most, explicit zeros too, where that is known without reading them.
    fn most_values(&self) -> Option<u64> {
        None
    }

    /// Values other than 0 that all rows have together at least (explicit zeros count too), as far as that is known without
    /// reading them.
    fn least_values(&self) -> u64 {
        0
    }

    /// What messages call it: the path of a file.
    fn name(&self) -> String {
        "the array".to_owned()
    }

    /// A column of obs as classes.
    ///
    /// # Errors
    /// There is none of this name (the error lists those that there are), or it cannot be read.
    fn labels(&self, column: &str) -> Result<Labels, AnnDataError>;

    /// A column of obs as numbers, `[rows]`; NaN where there is no value.
    ///
    /// # Errors
    /// There is none of this name, it does not hold numbers, or it cannot be read.
    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError>;

    /// Where all rows are in memory: nothing needs to be read, batches are made from it.
    fn resident(&self) -> Option<Resident<'_>> {
        None
    }

    /// A reader of one thread.
    ///
    /// # Errors
    /// A file cannot be opened.
    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError>;
}

/// Which rows to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// These, in this order; a row may come more than once.
    Rows(&'a [u64]),
    /// All of these.
    Range(Range<u64>),
}

/// Reads rows, in two parts that are timed as stages of their own. After [`ReadRows::fetch`] and then [`ReadRows::decode`],
/// the rows that were wanted are behind those that `out` had before.
pub trait ReadRows {
    /// Get the bytes out of the files (stage *read*); returns how many. What needs no decoding goes to `out` at once.
    ///
    /// # Errors
    /// A row is beyond the end; the file cannot be read, or is not what was opened.
    fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, AnnDataError>;

    /// As [`ReadRows::fetch`] of `rows`, but the values of each go to their place in `out`, which is as long already: those of
    /// `rows[i]` to `places[i]` and behind it, as many as [`ArrayStore::row_values`] says. Several readers can fill one `out`;
    /// [`ReadRows::decode`] follows here too. After an error places have any values.
    ///
    /// # Errors
    /// As [`ReadRows::fetch`]; a place is beyond the end of `out`; the store does not say how many values rows have.
    fn fetch_to(&mut self, rows: &[u64], places: &[u64], out: &mut Rows) -> Result<u64, AnnDataError> {
        let _ = (rows, places, out);
        Err(AnnDataError::Invalid("rows of this store cannot be read to given places".to_owned()))
    }

    /// Say which ranges of rows will be fetched, by this reader or others of the store, in this order. What is read over a
    /// network is asked for then, as far as there is room, and is there or on its way as long as what is returned is kept. Not
    /// for use between a fetch and its decode.
    ///
    /// # Errors
    /// As [`ReadRows::fetch`], where something must be read to find out where rows lie.
    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Ahead, AnnDataError> {
        let _ = ranges;
        Ok(Ahead::default())
    }

    /// Decompress, convert and put in order what was fetched last (stage *decode*). `out` is the one of the fetch, and
    /// nothing was added to it since.
    ///
    /// # Errors
    /// It is damaged; `out` has the rows that it had before the fetch.
    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError>;

    /// An error if what was read so far may be of something else than was opened. Called once for each batch, after its
    /// reads.
    fn unchanged(&self) -> Result<(), AnnDataError> {
        Ok(())
    }

    /// Bytes that it keeps between calls.
    fn work_bytes(&self) -> u64 {
        0
    }
}

/// A column of obs as classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Names of the classes: the categories of the file in its order; of other columns the different values, ascending. Those
    /// of several files are the classes of the first, then the new ones of each file that follows.
    pub categories: Vec<String>,
    /// What the classes are named after.
    pub kind: LabelKind,
    /// int32 `[rows]`: class of each row; -1 where the file has no value.
    pub codes: Vec<i32>,
}

/// Values that classes are named after. The same number has other names as an integer and as a float (1, 1.0).
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
    /// What the values are called.
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
    /// Columns of obs of a store, in this order.
    ///
    /// # Errors
    /// One is missing, or cannot be read.
    pub fn of(store: &dyn ArrayStore, columns: &[String]) -> Result<Arc<Vec<Self>>, AnnDataError> {
        columns.iter().map(|column| store.labels(column)).collect::<Result<Vec<_>, _>>().map(Arc::new)
    }

    /// Rows of each class; rows without one are counted in none.
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
