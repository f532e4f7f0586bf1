//! Writer of AnnData files in HDF5 (.h5ad), and what all writers share.
//!
//! Invariants: a file gets its name only when it is complete; memory is bounded by a few chunks and eight bytes a row, whatever
//! the number of values; other programs read the result like AnnData's own files.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;

use crate::AnnDataError;
use crate::names::NameError;

pub(crate) mod ann_data_writer;
pub(crate) mod dataset_writer;
pub(crate) mod frame_writer;
#[cfg(test)]
mod tests;

pub use crate::write::ann_data_writer::{AnnDataSpec, AnnDataWriter, Matrix, has_current_annotations};
pub use crate::write::dataset_writer::{Compression, Layout};
pub use crate::write::frame_writer::{ColumnCells, ColumnKind, ColumnSpec, Frame};

/// Why something cannot be written to a file.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Column indices of a row do not ascend, or one is no column.
    #[error("indices that do not ascend within 0..{columns} were to be written")]
    Indices {
        /// Number of columns.
        columns: u64,
    },
    /// A dense row has another number of values than there are columns.
    #[error("rows of {found} values, the file has {columns} genes")]
    RowLength {
        /// Values of the row.
        found: usize,
        /// Number of columns.
        columns: usize,
    },
    /// Another number of rows was written than was announced.
    #[error("X was to have {expected} rows, but {found} came")]
    Rows {
        /// Rows that were announced.
        expected: u64,
        /// Rows that were written.
        found: u64,
    },
    /// Another number of entries of a contiguous data set was written than was announced.
    #[error("{expected} entries were announced, but {found} came")]
    Entries {
        /// Entries that were announced.
        expected: usize,
        /// Entries that were to be written.
        found: usize,
    },
    /// A part that every file has was not written.
    #[error("{part} was not written")]
    MissingPart {
        /// The part, such as obs.
        part: &'static str,
    },
    /// Rows of obs came before obs was begun.
    #[error("obs was not begun")]
    NoObs,
    /// The rows of a frame are not those that were announced.
    #[error(
        "{frame} was to have {rows} rows of {columns} columns, but {found_rows} rows of {found_columns} columns came, or columns \
         of different lengths"
    )]
    FrameShape {
        /// obs or var.
        frame: String,
        /// Rows that were announced.
        rows: usize,
        /// Columns that were announced.
        columns: usize,
        /// Rows that came so far.
        found_rows: usize,
        /// Columns of the rows that came last.
        found_columns: usize,
    },
    /// A frame has another number of columns than its values.
    #[error("{columns} columns of obs with the values of {values}")]
    ColumnCount {
        /// Number of columns.
        columns: usize,
        /// Number of columns with values.
        values: usize,
    },
    /// A column has another number of values than there are rows.
    #[error("{found} values of obs column '{column}' for {rows} rows")]
    ColumnLength {
        /// The column.
        column: String,
        /// Number of its values.
        found: usize,
        /// Number of rows.
        rows: usize,
    },
    /// The values of a column are of another type than the column.
    #[error("the values of obs column '{column}' are of another kind")]
    ColumnType {
        /// The column.
        column: String,
    },
    /// A code of a categorical column is that of no category.
    #[error("a code of obs column '{column}' is of none of its {classes} classes")]
    UnknownClass {
        /// The column.
        column: String,
        /// Number of its categories.
        classes: usize,
    },
    /// Two categories of a column have the same name.
    #[error("two classes of obs column '{column}' have one name")]
    RepeatedClass {
        /// The column.
        column: String,
    },
    /// Two columns have the same name.
    #[error("two obs columns have the name '{column}'")]
    RepeatedColumn {
        /// The name.
        column: String,
    },
    /// A column of obs has the name of a column of the matrix.
    #[error("an obs column cannot have the name '{column}': the matrix has it")]
    ReservedColumn {
        /// The name.
        column: String,
    },
    /// HDF5 or AnnData has no column of such a name.
    #[error("{column:?} cannot be the name of a column")]
    ColumnName {
        /// The name.
        column: String,
    },
    /// A column holds the integer that stands for a missing value.
    #[error("obs column '{column}' has {value}, which stands for no value")]
    ReservedInteger {
        /// The column.
        column: String,
        /// The integer.
        value: i64,
    },
    /// A string cannot be stored.
    #[error("{text:?} cannot be written: {source}")]
    Text {
        /// The string.
        text: String,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A string has more bytes than its length can say.
    #[error("a string of 4 GiB cannot be written")]
    LongText,
    /// Names of genes occur twice, or are too many.
    #[error(transparent)]
    Genes(#[from] NameError),
    /// There are no genes.
    #[error("there are no genes")]
    NoGenes,
    /// A gene name contains a line break, so a file with one name per line cannot hold it.
    #[error("the name of a gene is {gene:?}, which is no line of {file}")]
    GeneLine {
        /// The name.
        gene: String,
        /// The file of names.
        file: &'static str,
    },
    /// Row groups or pages of no rows.
    #[error("row groups and pages have 1 row or more")]
    NoGroupRows,
    /// deflate does not have this level.
    #[error("gzip has levels 0 to 9, not {level}")]
    GzipLevel {
        /// The level.
        level: u8,
    },
    /// A row has more bytes than a shard can have.
    #[error("row {row} has more bytes than a shard can have")]
    LongRow {
        /// The row.
        row: usize,
    },
    /// A row cannot be written.
    #[error("row {row}: {problem}")]
    Row {
        /// The row.
        row: usize,
        /// The reason.
        problem: Box<WriteError>,
    },
    /// The library of the format refuses what is to be written.
    #[error(transparent)]
    Library(Box<dyn Error + Send + Sync>),
}

/// Encodes chunks on a thread for each of `encoders`; the results are in the order of the chunks.
pub(crate) fn encode_chunks<E: Send, T: Sync, R: Send>(
    chunks: &[&[T]],
    encoders: &mut [E],
    encode: impl Fn(&mut E, &[T]) -> Result<R, AnnDataError> + Sync,
) -> Result<Vec<R>, AnnDataError> {
    let part = |chunks: &[&[T]], encoder: &mut E| {
        chunks.iter().map(|chunk| encode(encoder, chunk)).collect::<Result<Vec<R>, AnnDataError>>()
    };
    let of_thread = chunks.len().div_ceil(encoders.len()).max(1);
    if encoders.len() == 1 || chunks.len() < 2 {
        return part(chunks, &mut encoders[0]);
    }
    let part = &part;
    thread::scope(|scope| {
        let parts = chunks.chunks(of_thread).zip(encoders);
        let threads: Vec<_> = parts.map(|(chunks, encoder)| scope.spawn(move || part(chunks, encoder))).collect();
        let mut all = Vec::with_capacity(chunks.len());
        for thread in threads {
            all.extend(thread.join().map_err(|panic| AnnDataError::panicked("compressing chunks", &*panic))??);
        }
        Ok(all)
    })
}

/// A file or folder that grows under a temporary name, `NAME.tmp`, and is removed unless it is published.
pub(crate) struct Staged {
    target: PathBuf,
    path: PathBuf,
    published: bool,
}

impl Staged {
    /// Removes what a process that was killed has left.
    pub fn new(target: &Path) -> Self {
        let mut path = target.as_os_str().to_owned();
        path.push(".tmp");
        let staged = Self { target: target.to_owned(), path: path.into(), published: false };
        staged.remove();
        staged
    }

    /// Where the content goes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the complete file.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the content its name. `last` is the file that was written last.
    pub fn publish(mut self, last: &Path) -> Result<(), AnnDataError> {
        let flushed = File::open(last).and_then(|file| file.sync_all());
        flushed.map_err(AnnDataError::io("flush", &self.target))?;
        std::fs::rename(&self.path, &self.target).map_err(AnnDataError::io("rename to", &self.target))?;
        self.published = true;
        Ok(())
    }

    fn remove(&self) {
        let _ = if self.path.is_dir() { std::fs::remove_dir_all(&self.path) } else { std::fs::remove_file(&self.path) };
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            self.remove();
        }
    }
}
