//! `FrameWriter` writes obs or var of an .h5ad file, some rows at a time. `ColumnSpec` and `ColumnCells` describe columns for the writers of all
//! formats but parquet.

use std::path::{Path, PathBuf};

use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{Dataset, Group, H5Type};

use crate::AnnDataError;
use crate::write::WriteError;
use crate::write::ann_data_writer::{
    list_attribute, scalar_attribute, text_attribute, unicode, write_encoding, write_error,
};

/// Name and type of a column of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Name.
    pub name: String,
    /// Type.
    pub kind: ColumnKind,
}

/// Type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Categorical, with missing values.
    Categorical {
        /// Names of the categories.
        categories: Vec<String>,
        /// Whether the categories are ordered.
        ordered: bool,
    },
    /// Strings.
    Strings,
    /// float64; NaN is a missing value.
    Float64,
    /// float32; NaN is a missing value.
    Float32,
    /// int64.
    Int64,
    /// Nullable int64.
    NullableInt64,
    /// Booleans.
    Bool,
}

/// Values of some rows of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnCells {
    /// Category codes; -1 is a missing value.
    Codes(Vec<i32>),
    /// Strings.
    Strings(Vec<String>),
    /// float64.
    Float64(Vec<f64>),
    /// float32.
    Float32(Vec<f32>),
    /// int64.
    Int64(Vec<i64>),
    /// Nullable int64.
    NullableInt64(Vec<Option<i64>>),
    /// Booleans.
    Bool(Vec<bool>),
}

/// Some rows of a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Row names.
    pub index: Vec<String>,
    /// Values of each column.
    pub columns: Vec<ColumnCells>,
}

impl ColumnKind {
    /// Name of the type in manifests.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Categorical { .. } => "categorical",
            Self::Strings => "string",
            Self::Float64 => "float64",
            Self::Float32 => "float32",
            Self::Int64 => "int64",
            Self::NullableInt64 => "nullable int64",
            Self::Bool => "bool",
        }
    }
}

impl ColumnCells {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Codes(values) => values.len(),
            Self::Strings(values) => values.len(),
            Self::Float64(values) => values.len(),
            Self::Float32(values) => values.len(),
            Self::Int64(values) => values.len(),
            Self::NullableInt64(values) => values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Name of the data set with the row names; AnnData uses it if the index has no name.
const INDEX: &str = "_index";

/// Writes a frame with a known number of rows from start to end: a group `dataframe` 0.2.0.
pub(crate) struct FrameWriter {
    path: PathBuf,
    name: String,
    rows: usize,
    written: usize,
    index: Dataset,
    columns: Vec<(ColumnSpec, ColumnDatasets)>,
}

/// The data sets of a column.
struct ColumnDatasets {
    values: Dataset,
    mask: Option<Dataset>,
}

impl FrameWriter {
    pub fn create(
        path: &Path,
        parent: &Group,
        name: &str,
        rows: u64,
        columns: &[ColumnSpec],
    ) -> Result<Self, AnnDataError> {
        let rows = rows as usize;
        let group = parent.create_group(name).map_err(write_error(path))?;
        write_encoding(path, &group, "dataframe", "0.2.0")?;
        text_attribute(path, &group, "_index", INDEX)?;
        let names = columns.iter().map(|column| unicode(path, &column.name)).collect::<Result<Vec<_>, _>>()?;
        list_attribute(path, &group, "column-order", &names)?;
        let made = FrameDatasets { path, rows };
        let index = made.strings(&group, INDEX, rows)?;
        let parts = columns.iter().map(|column| Ok((column.clone(), made.column(&group, column)?)));
        let columns = parts.collect::<Result<_, AnnDataError>>()?;
        Ok(Self { path: path.to_owned(), name: name.to_owned(), rows, written: 0, index, columns })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// Their columns are not those of the frame.
    pub fn push(&mut self, frame: &Frame) -> Result<(), AnnDataError> {
        let n = frame.index.len();
        let end = self.written + n;
        if end > self.rows || frame.columns.len() != self.columns.len() || frame.columns.iter().any(|c| c.len() != n) {
            return Err(self.shape_error(end, frame.columns.len()));
        }
        let names = frame.index.iter().map(|name| unicode(&self.path, name)).collect::<Result<Vec<_>, _>>()?;
        self.put(&self.index, &names)?;
        for ((column, parts), cells) in self.columns.iter().zip(&frame.columns) {
            self.cells(column, parts, cells)?;
        }
        self.written = end;
        Ok(())
    }

    /// Fails if rows are missing.
    pub fn finish(self) -> Result<(), AnnDataError> {
        if self.written == self.rows { Ok(()) } else { Err(self.shape_error(self.written, self.columns.len())) }
    }

    fn shape_error(&self, found_rows: usize, found_columns: usize) -> AnnDataError {
        let (frame, rows, columns) = (self.name.clone(), self.rows, self.columns.len());
        AnnDataError::write(&self.path, WriteError::FrameShape { frame, rows, columns, found_rows, found_columns })
    }

    fn cells(&self, column: &ColumnSpec, parts: &ColumnDatasets, cells: &ColumnCells) -> Result<(), AnnDataError> {
        match (&column.kind, cells) {
            (ColumnKind::Categorical { categories, .. }, ColumnCells::Codes(codes)) => {
                let known = -1..categories.len() as i32;
                if codes.iter().any(|code| !known.contains(code)) {
                    let (column, classes) = (column.name.clone(), categories.len());
                    return Err(AnnDataError::write(&self.path, WriteError::UnknownClass { column, classes }));
                }
                // libhdf5 converts the codes to the integer type of the data set.
                self.put(&parts.values, codes)
            }
            (ColumnKind::Strings, ColumnCells::Strings(values)) => {
                let values = values.iter().map(|value| unicode(&self.path, value)).collect::<Result<Vec<_>, _>>()?;
                self.put(&parts.values, &values)
            }
            (ColumnKind::Float64, ColumnCells::Float64(values)) => self.put(&parts.values, values),
            (ColumnKind::Float32, ColumnCells::Float32(values)) => self.put(&parts.values, values),
            (ColumnKind::Int64, ColumnCells::Int64(values)) => self.put(&parts.values, values),
            (ColumnKind::Bool, ColumnCells::Bool(values)) => self.put(&parts.values, values),
            (ColumnKind::NullableInt64, ColumnCells::NullableInt64(values)) => {
                let numbers: Vec<i64> = values.iter().map(|value| value.unwrap_or_default()).collect();
                let missing: Vec<bool> = values.iter().map(Option::is_none).collect();
                self.put(&parts.values, &numbers)?;
                parts.mask.as_ref().map_or(Ok(()), |mask| self.put(mask, &missing))
            }
            _ => Err(AnnDataError::write(&self.path, WriteError::ColumnType { column: column.name.clone() })),
        }
    }

    fn put<T: H5Type>(&self, dataset: &Dataset, values: &[T]) -> Result<(), AnnDataError> {
        let rows = self.written..self.written + values.len();
        dataset.write_slice(values, rows).map_err(write_error(&self.path))
    }
}

/// Creates the data sets of columns.
struct FrameDatasets<'a> {
    path: &'a Path,
    rows: usize,
}

impl FrameDatasets<'_> {
    fn column(&self, group: &Group, column: &ColumnSpec) -> Result<ColumnDatasets, AnnDataError> {
        let name = column.name.as_str();
        if name.is_empty() || name == INDEX || name.contains('/') || name == "." {
            return Err(AnnDataError::write(self.path, WriteError::ColumnName { column: name.to_owned() }));
        }
        let only = |values: Dataset| ColumnDatasets { values, mask: None };
        match &column.kind {
            ColumnKind::Strings => self.strings(group, name, self.rows).map(only),
            ColumnKind::Float64 => self.numbers::<f64>(group, name).map(only),
            ColumnKind::Float32 => self.numbers::<f32>(group, name).map(only),
            ColumnKind::Int64 => self.numbers::<i64>(group, name).map(only),
            ColumnKind::Bool => self.numbers::<bool>(group, name).map(only),
            ColumnKind::NullableInt64 => {
                let group = self.group(group, name, "nullable-integer", "0.1.0")?;
                let (values, mask) = (self.numbers::<i64>(&group, "values")?, self.numbers::<bool>(&group, "mask")?);
                Ok(ColumnDatasets { values, mask: Some(mask) })
            }
            ColumnKind::Categorical { categories, ordered } => {
                let group = self.group(group, name, "categorical", "0.2.0")?;
                scalar_attribute(self.path, &group, "ordered", *ordered)?;
                let names = categories.iter().map(|name| unicode(self.path, name)).collect::<Result<Vec<_>, _>>()?;
                let stored = self.strings(&group, "categories", categories.len())?;
                stored.write(&names[..]).map_err(write_error(self.path))?;
                // The smallest integer type for all codes and -1, like in pandas.
                let codes = match categories.len() {
                    0..=0x7f => self.numbers::<i8>(&group, "codes"),
                    0x80..=0x7fff => self.numbers::<i16>(&group, "codes"),
                    _ => self.numbers::<i32>(&group, "codes"),
                };
                codes.map(only)
            }
        }
    }

    fn group(&self, parent: &Group, name: &str, kind: &str, version: &str) -> Result<Group, AnnDataError> {
        let group = parent.create_group(name).map_err(write_error(self.path))?;
        write_encoding(self.path, &group, kind, version)?;
        Ok(group)
    }

    fn numbers<T: H5Type>(&self, group: &Group, name: &str) -> Result<Dataset, AnnDataError> {
        self.dataset::<T>(group, name, self.rows, "array")
    }

    fn strings(&self, group: &Group, name: &str, len: usize) -> Result<Dataset, AnnDataError> {
        self.dataset::<VarLenUnicode>(group, name, len, "string-array")
    }

    fn dataset<T: H5Type>(&self, group: &Group, name: &str, len: usize, kind: &str) -> Result<Dataset, AnnDataError> {
        let made = group.new_dataset::<T>().no_chunk().obj_track_times(false).shape(len).create(name);
        let made = made.map_err(write_error(self.path))?;
        write_encoding(self.path, &made, kind, "0.2.0")?;
        Ok(made)
    }
}
