use std::path::Path;

use super::Column;
use crate::AnnDataError;
use crate::Labels;
use crate::names::not_there;

/// Columns of obs or var, by name: what every kind of file has alike.
pub trait FrameColumns {
    /// What the file calls the frame (`obs`, `raw/var`).
    fn location(&self) -> &str;

    /// The file.
    fn path(&self) -> &Path;

    /// Number of rows.
    fn rows(&self) -> usize;

    /// Name of the index.
    fn index_name(&self) -> &str;

    /// Names of the columns, in order, without the index.
    fn names(&self) -> &[String];

    /// Read a column that is there, of any length. `Err` says why it cannot be read.
    fn read_any(&self, name: &str) -> Result<Column, String>;

    /// The error for what is wrong with a column.
    fn wrong(&self, name: &str, reason: &str) -> AnnDataError {
        AnnDataError::damaged(self.path(), format!("{}/{name}: {reason}", self.location()))
    }

    /// Read a column that is there.
    ///
    /// # Errors
    /// It cannot be read, or has not a value for each row.
    fn read(&self, name: &str) -> Result<Column, AnnDataError> {
        let column = self.read_any(name).map_err(|reason| self.wrong(name, &reason))?;
        if column.len() != self.rows() {
            let reason = format!("it has {} values where there are {} rows", column.len(), self.rows());
            return Err(self.wrong(name, &reason));
        }
        Ok(column)
    }

    /// The index: a name for each row.
    ///
    /// # Errors
    /// It cannot be read, or a row has none.
    fn index(&self) -> Result<Vec<String>, AnnDataError> {
        let column = self.read(self.index_name())?;
        column.into_strings().ok_or_else(|| self.wrong(self.index_name(), "a row has no name"))
    }

    /// A column as classes.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be read.
    fn labels(&self, name: &str) -> Result<Labels, AnnDataError> {
        Ok(self.column(name)?.into_labels())
    }

    /// A column as numbers, NaN where there is no value.
    ///
    /// # Errors
    /// There is none of this name, it cannot be read, or it holds strings.
    fn numbers(&self, name: &str) -> Result<Vec<f64>, AnnDataError> {
        let column = self.column(name)?;
        column.into_numbers().ok_or_else(|| self.wrong(name, "it holds strings where numbers are needed"))
    }

    /// A column, or the index.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be read.
    fn column(&self, name: &str) -> Result<Column, AnnDataError> {
        if !self.names().iter().any(|other| other == name) && name != self.index_name() {
            let names = self.names().iter().map(String::as_str);
            let what = format!("{} has no column {name:?}", self.location());
            return Err(AnnDataError::damaged(self.path(), not_there(&what, "columns", name, names)));
        }
        self.read(name)
    }
}
