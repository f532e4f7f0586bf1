//! What Python says is in a file (`tests/python/anndata_truth.py`), and rows read to compare with it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anndata_io::{CsrRows, DenseRows, Form, ReadRows, RowSelection, Rows};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
pub struct Truth {
    pub rows: Vec<String>,
    pub columns: BTreeMap<String, Column>,
    pub parts: BTreeMap<String, Part>,
}

#[derive(Deserialize)]
pub struct Column {
    pub categories: Vec<String>,
    pub codes: Vec<i32>,
    pub numbers: Option<Vec<Option<f64>>>,
}

#[derive(Deserialize)]
pub struct Part {
    pub genes: Vec<String>,
    #[serde(deserialize_with = "values")]
    pub values: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
pub struct Joined {
    pub inner: JoinedPart,
    pub outer: JoinedPart,
    pub kind: Codes,
    pub depth: Vec<f64>,
}

#[derive(Deserialize)]
pub struct JoinedPart {
    #[serde(flatten)]
    pub part: Part,
    pub dense: bool,
}

#[derive(Deserialize)]
pub struct Codes {
    pub categories: Vec<String>,
    pub codes: Vec<i32>,
}

impl Truth {
    pub fn read(path: &Path) -> Self {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }
}

impl Joined {
    pub fn read(path: &Path) -> Self {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }
}

/// float32, which JSON has with the digits of float64.
fn values<'de, D: Deserializer<'de>>(values: D) -> Result<Vec<Vec<f32>>, D::Error> {
    let rows = Vec::<Vec<Option<f64>>>::deserialize(values)?;
    let row =
        |row: Vec<Option<f64>>| row.into_iter().map(|value| value.map_or(f32::NAN, |value| value as f32)).collect();
    Ok(rows.into_iter().map(row).collect())
}

pub fn empty(form: Form) -> Rows {
    match form {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows::default()),
    }
}

pub fn read_range(reader: &mut (dyn ReadRows + '_), form: Form, range: Range<u64>) -> Rows {
    // In two parts: what is read goes behind what is there.
    let half = range.start + (range.end - range.start) / 2;
    let mut rows = empty(form);
    for range in [range.start..half, half..range.end] {
        reader.fetch(&RowSelection::Range(range), &mut rows).unwrap();
        reader.decode(&mut rows).unwrap();
    }
    rows
}

pub fn read_rows(reader: &mut (dyn ReadRows + '_), form: Form, wanted: &[u64]) -> Rows {
    let mut rows = empty(form);
    for wanted in wanted.chunks(11) {
        reader.fetch(&RowSelection::Rows(wanted), &mut rows).unwrap();
        reader.decode(&mut rows).unwrap();
    }
    rows
}

/// Rows with a value for each column; what is not stored is 0.
pub fn dense(rows: &Rows, count: usize, columns: usize) -> Vec<Vec<f32>> {
    match rows {
        Rows::Sparse(rows) => (0..rows.len())
            .map(|row| {
                let mut dense = vec![0.0; columns];
                let (indices, data) = rows.view().row(row);
                for (index, value) in indices.iter().zip(data) {
                    dense[*index as usize] = *value;
                }
                dense
            })
            .collect(),
        Rows::Dense(rows) => {
            assert_eq!(rows.data.len(), count * columns);
            (0..count).map(|row| rows.data[row * columns..(row + 1) * columns].to_vec()).collect()
        }
    }
}
