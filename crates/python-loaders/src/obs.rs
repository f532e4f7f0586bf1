//! `ObsColumns` reads columns of obs for all rows, once; batches then pick from memory.

use std::sync::Arc;

use anndata_io::{Annotation, ArrayStore, LabelKind, Labels};
use pyo3::prelude::*;

use crate::batcher::Numbers;
use crate::dlpack::NativeTensor;
use crate::error::{BindingError, anndata_error};

/// Columns of obs of all rows, as batches have them: class numbers, or numbers.
#[pyclass(name = "ObsColumns", module = "expctl._native", frozen)]
pub struct ObsColumns {
    columns: Vec<SelectedColumn>,
    /// The columns of classes, in order.
    pub labels: Arc<Vec<Labels>>,
    /// The columns of numbers, in order.
    pub numbers: Arc<Vec<Numbers>>,
}

struct SelectedColumn {
    name: String,
    /// Its index among the columns of classes, or among those of numbers.
    values: ColumnIndex,
}

#[derive(Clone, Copy)]
enum ColumnIndex {
    Classes(usize),
    Numbers(usize),
}

/// As what a column is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedType {
    /// As the file has it: classes, float32, or int64 for integers without a missing value.
    Auto,
    Class,
    Float32,
    Float64,
    Int64,
}

impl AskedType {
    fn parse(column: &str, dtype: &str) -> Result<Self, BindingError> {
        Ok(match dtype {
            "auto" => Self::Auto,
            "class" => Self::Class,
            "float32" => Self::Float32,
            "float64" => Self::Float64,
            "int64" => Self::Int64,
            _ => return Err(BindingError::UnknownDtype { column: column.to_owned(), dtype: dtype.to_owned() }),
        })
    }
}

impl ObsColumns {
    /// Read columns, which are pairs of a name and a type.
    pub fn read(store: &dyn ArrayStore, columns: &[(String, String)]) -> PyResult<Self> {
        let (mut selected, mut labels, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (name, dtype) in columns {
            let asked = AskedType::parse(name, dtype)?;
            let annotation = match asked {
                AskedType::Auto => store.annotation(name),
                AskedType::Class => store.labels(name).map(Annotation::Classes),
                _ => store.numbers(name).map(|values| Annotation::Numbers { values, integers: false }),
            }
            .map_err(anndata_error)?;
            let values = match annotation {
                Annotation::Classes(classes) => {
                    labels.push(classes);
                    ColumnIndex::Classes(labels.len() - 1)
                }
                Annotation::Numbers { values, integers } => {
                    numbers.push(typed(name, values, asked, integers)?);
                    ColumnIndex::Numbers(numbers.len() - 1)
                }
            };
            selected.push(SelectedColumn { name: name.clone(), values });
        }
        Ok(Self { columns: selected, labels: Arc::new(labels), numbers: Arc::new(numbers) })
    }

    fn column(&self, index: usize) -> Result<&SelectedColumn, BindingError> {
        self.columns.get(index).ok_or(BindingError::NoArray { index, arrays: self.columns.len() })
    }

    /// The classes of a column; `None` for numbers.
    fn classes(&self, index: usize) -> Result<Option<&Labels>, BindingError> {
        Ok(match self.column(index)?.values {
            ColumnIndex::Classes(at) => self.labels.get(at),
            ColumnIndex::Numbers(_) => None,
        })
    }
}

/// Numbers of the type that is asked for.
///
/// # Errors
/// [`BindingError::NotInteger`].
fn typed(column: &str, values: Vec<f64>, asked: AskedType, integers: bool) -> Result<Numbers, BindingError> {
    // Beyond 2⁵³ not every integer is a float64.
    let is_integer = |value: f64| value.trunc() == value && value.abs() <= 9_007_199_254_740_992.0;
    if asked == AskedType::Float64 {
        return Ok(Numbers::Float64(values));
    }
    if asked == AskedType::Float32 || asked == AskedType::Auto && !integers {
        return Ok(Numbers::Float32(values.into_iter().map(|value| value as f32).collect()));
    }
    match values.iter().position(|value| !is_integer(*value)) {
        None => Ok(Numbers::Int64(values.into_iter().map(|value| value as i64).collect())),
        // A missing value, or a large one.
        Some(_) if asked == AskedType::Auto => {
            Ok(Numbers::Float32(values.into_iter().map(|value| value as f32).collect()))
        }
        Some(row) => Err(BindingError::NotInteger { column: column.to_owned(), row, value: values[row] }),
    }
}

#[pymethods]
impl ObsColumns {
    fn __len__(&self) -> usize {
        self.columns.len()
    }

    /// For each column its name, its type (`class`, `float32`, `float64` or `int64`), and its index among the arrays of a batch that
    /// come after the row numbers.
    fn layout(&self) -> Vec<(String, &'static str, usize)> {
        let of = |column: &SelectedColumn| match column.values {
            ColumnIndex::Classes(at) => (column.name.clone(), "class", at),
            ColumnIndex::Numbers(at) => {
                let dtype = match &self.numbers[at] {
                    Numbers::Float32(_) => "float32",
                    Numbers::Float64(_) => "float64",
                    Numbers::Int64(_) => "int64",
                };
                (column.name.clone(), dtype, self.labels.len() + at)
            }
        };
        self.columns.iter().map(of).collect()
    }

    /// Names of the classes of a column, by number; `None` for numbers.
    fn categories(&self, index: usize) -> PyResult<Option<Vec<String>>> {
        Ok(self.classes(index)?.map(|labels| labels.categories.clone()))
    }

    /// What the classes of a column are: `text`, `integers`, `floats` or `bool`; `None` for numbers.
    fn kind(&self, index: usize) -> PyResult<Option<&'static str>> {
        Ok(self.classes(index)?.map(|labels| match labels.kind {
            LabelKind::Bool => "bool",
            other => other.name(),
        }))
    }

    /// A value for each row: int32 class numbers, -1 being missing, or numbers.
    fn tensor(&self, index: usize) -> PyResult<NativeTensor> {
        Ok(match self.column(index)?.values {
            ColumnIndex::Classes(at) => NativeTensor::owned(self.labels[at].codes.clone()),
            ColumnIndex::Numbers(at) => match &self.numbers[at] {
                Numbers::Float32(values) => NativeTensor::owned(values.clone()),
                Numbers::Float64(values) => NativeTensor::owned(values.clone()),
                Numbers::Int64(values) => NativeTensor::owned(values.clone()),
            },
        })
    }
}
