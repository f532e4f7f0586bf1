use super::keys;

/// How the matrix of a parquet file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ParquetLayout {
    /// One list column `X`, a value for each gene in each row, as NVIDIA Merlin reads it.
    #[default]
    Dense,
    /// Two list columns, `indices` (int32) and `values` (float32), of as many elements.
    Sparse,
}

/// How pages of a parquet file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParquetCompression {
    /// Not at all.
    None,
    /// Snappy, what most writers take by default.
    Snappy,
    /// Zstandard of this level.
    Zstd(i32),
}

/// How a parquet file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// How the matrix is laid out.
    pub layout: ParquetLayout,
    /// Rows of a row group.
    pub row_group_rows: usize,
    /// Rows of a page of the matrix at most: what must be decoded to get one row.
    pub page_rows: usize,
    /// How pages are compressed.
    pub compression: ParquetCompression,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self {
            layout: ParquetLayout::Dense,
            row_group_rows: 1024,
            page_rows: 16,
            compression: ParquetCompression::Snappy,
        }
    }
}

/// What a column of obs holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParquetObsKind {
    /// Classes of these names; written as strings, dictionary encoded.
    Labels(Vec<String>),
    /// float64.
    Numbers,
    /// int64, or none.
    Integers,
    /// Truth values.
    Bools,
}

/// A column of obs to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetObsColumn {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: ParquetObsKind,
}

impl ParquetObsColumn {
    /// An error where the name is one of the matrix.
    pub(super) fn check(&self) -> Result<(), String> {
        if [keys::DENSE, keys::INDICES, keys::VALUES].contains(&self.name.as_str()) {
            return Err(format!("an obs column cannot have the name '{}': the matrix has it", self.name));
        }
        Ok(())
    }
}

/// Values of a column of obs for some rows.
#[derive(Clone, Copy, Debug)]
pub enum ParquetObsValues<'a> {
    /// int32 `[rows]`: number of the class; -1 where there is none.
    Labels(&'a [i32]),
    /// float64 `[rows]`; NaN where there is none.
    Numbers(&'a [f64]),
    /// int64 `[rows]`.
    Integers(&'a [Option<i64>]),
    /// `[rows]`.
    Bools(&'a [bool]),
}
