use std::path::PathBuf;

use crate::exit::{Exit, Failure};

/// Why times could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TimingsError {
    /// The file cannot be read, or is not what its name says.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system or the reader said.
        reason: String,
    },
    /// A column is not there.
    #[error("{} has no column {column} for the {meaning}", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The name that was looked for.
        column: String,
        /// What the column is for: `time`, `method`, `epoch`, `batch`; also the name of its option.
        meaning: &'static str,
        /// Columns that are there.
        have: Vec<String>,
    },
    /// A value is not what its column is for.
    #[error("{}, {place}: column {column}: {problem}", path.display())]
    Cell {
        /// The file.
        path: PathBuf,
        /// Row, counted from 0, or line, counted from 1.
        place: String,
        /// Name of the column.
        column: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
    /// More methods and epochs than any study has: some other column was named.
    #[error("{} has more than {most} pairs of method and epoch", path.display())]
    ManySeries {
        /// The file.
        path: PathBuf,
        /// The limit.
        most: usize,
    },
    /// No rows.
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
        /// The number that so many have.
        batch: u64,
        /// The limit.
        most: usize,
    },
    /// The temporary file that holds the rows.
    #[error("cannot keep the rows in a temporary file in {}: {source}", folder.display())]
    Spool {
        /// Where temporary files are.
        folder: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl From<std::io::Error> for TimingsError {
    fn from(source: std::io::Error) -> Self {
        Self::Spool { folder: std::env::temp_dir(), source }
    }
}

impl From<TimingsError> for Failure {
    fn from(error: TimingsError) -> Self {
        let exit = if matches!(error, TimingsError::Spool { .. }) { Exit::Internal } else { Exit::Config };
        let failure = Self::new(exit, &error);
        match &error {
            TimingsError::NoColumn { meaning, have, .. } => {
                let list = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
                failure
                    .hint(format_args!("columns that are there: {list}"))
                    .hint(format_args!("--{meaning} NAME says which one holds the {meaning}"))
            }
            TimingsError::Cell { hint, .. } if !hint.is_empty() => failure.hint(hint),
            TimingsError::ManySeries { .. } => failure.hint("is --epoch or --method the column that was meant?"),
            TimingsError::Repeated { .. } => {
                failure.hint("--epoch NAME says which column tells passes over the data apart")
            }
            TimingsError::Spool { .. } => {
                failure.hint("8 bytes a row are needed (16 out of order); TMPDIR names another folder")
            }
            _ => failure,
        }
    }
}
