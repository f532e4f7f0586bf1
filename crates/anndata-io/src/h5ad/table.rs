use super::H5adStore;
use crate::AnnDataError;
use crate::annotation::{Column as Found, Values};
use crate::write::{Cells, Column, ColumnKind, Frame};

impl H5adStore {
    /// All of obs: its columns in order, and their values with the names of the rows. Integers are int64; text and unsigned
    /// integers that may be missing are categorical, and so are categories that are no text.
    ///
    /// # Errors
    /// The file cannot be read, or an integer is more than int64 holds.
    pub fn table(&self) -> Result<(Vec<Column>, Frame), AnnDataError> {
        self.obs(|obs| {
            let mut columns = Vec::new();
            let mut frame = Frame { index: obs.index()?, columns: Vec::new() };
            for name in obs.names() {
                let Some((kind, cells)) = cells(obs.column(name)?) else {
                    let reason = format!("obs/{name}: an integer in it is more than 63 bits hold");
                    return Err(AnnDataError::damaged(self.path(), reason));
                };
                columns.push(Column { name: name.clone(), kind });
                frame.columns.push(cells);
            }
            Ok((columns, frame))
        })
    }
}

fn cells(column: Found) -> Option<(ColumnKind, Cells)> {
    let categorical = |labels: crate::Labels, ordered| {
        (ColumnKind::Categorical { categories: labels.categories, ordered }, Cells::Codes(labels.codes))
    };
    Some(match column {
        Found::Plain { values: Values::Signed(values), missing } if !missing.is_empty() => {
            (ColumnKind::NullableInt64, Cells::NullableInt64(optional(values, &missing)))
        }
        Found::Plain { values, missing } if missing.contains(&true) => match values {
            Values::Single(values) => (ColumnKind::Float32, Cells::Float32(with_nan(values, &missing, f32::NAN))),
            Values::Double(values) => (ColumnKind::Float64, Cells::Float64(with_nan(values, &missing, f64::NAN))),
            values => categorical(Found::Plain { values, missing }.into_labels(), false),
        },
        Found::Plain { values, .. } => match values {
            Values::Signed(values) => (ColumnKind::Int64, Cells::Int64(values)),
            Values::Unsigned(values) => {
                let values = values.into_iter().map(|value| i64::try_from(value).ok()).collect::<Option<_>>()?;
                (ColumnKind::Int64, Cells::Int64(values))
            }
            Values::Single(values) => (ColumnKind::Float32, Cells::Float32(values)),
            Values::Double(values) => (ColumnKind::Float64, Cells::Float64(values)),
            Values::Bool(values) => (ColumnKind::Bool, Cells::Bool(values)),
            Values::Text(values) => (ColumnKind::Strings, Cells::Strings(values)),
        },
        Found::Categorical { codes, categories, ordered } => {
            categorical(Found::Categorical { codes, categories, ordered }.into_labels(), ordered)
        }
    })
}

fn optional(values: Vec<i64>, missing: &[bool]) -> Vec<Option<i64>> {
    values.into_iter().zip(missing).map(|(value, missing)| (!missing).then_some(value)).collect()
}

fn with_nan<T>(values: Vec<T>, missing: &[bool], nan: T) -> Vec<T>
where
    T: Copy,
{
    values.into_iter().zip(missing).map(|(value, missing)| if *missing { nan } else { value }).collect()
}
