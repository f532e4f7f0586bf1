//! Whole matrix through the library; replaced on merge.
use std::path::Path;

use super::column_values::{Values, read_values};
use super::frame_file::FrameFile;
use crate::PipelineError;
use crate::array::{CsrRows, DenseRows, Form, ReadRows, Rows, Wanted};

#[derive(Debug)]
pub struct MatrixFile {
    rows: Rows,
    count: u64,
    columns: u64,
}

impl MatrixFile {
    pub fn open(path: &Path, location: &str) -> Result<Self, PipelineError> {
        let file = FrameFile::open(path)?;
        let root = file.root();
        let location = match location {
            "raw" if root.link_exists("raw.X") => "raw.X",
            "raw" => "raw/X",
            other => other,
        };
        let wrong = |e: String| PipelineError::damaged(path, format!("{location}: {e}"));
        let lib = |e: hdf5_metno::Error| wrong(e.to_string());
        if let Ok(group) = root.group(location) {
            let read = |name: &str| -> Result<Vec<f64>, PipelineError> {
                let set = group.dataset(name).map_err(lib)?;
                let values = read_values(&set, None, file.most()).map_err(|e| wrong(e.to_string()))?;
                values.into_numbers().ok_or_else(|| wrong("strings".into()))
            };
            let attribute = group.attr("shape").or_else(|_| group.attr("h5sparse_shape")).map_err(lib)?;
            let shape = read_values(&attribute, None, file.most()).map_err(|e| wrong(e.to_string()))?;
            let shape = shape.into_numbers().ok_or_else(|| wrong("shape".into()))?;
            let (data, indices, indptr) = (read("data")?, read("indices")?, read("indptr")?);
            let is_csc = indptr.len() != shape[0] as usize + 1
                || (shape[0] == shape[1] && group.attr("encoding-type").is_ok_and(|_| false));
            let mut rows = CsrRows::default();
            let mut all: Vec<Vec<(i32, f32)>> = vec![Vec::new(); shape[0] as usize];
            for major in 0..indptr.len() - 1 {
                for i in indptr[major] as usize..indptr[major + 1] as usize {
                    if is_csc {
                        all[indices[i] as usize].push((major as i32, data[i] as f32));
                    } else {
                        all[major].push((indices[i] as i32, data[i] as f32));
                    }
                }
            }
            for mut row in all {
                row.sort_by_key(|(col, _)| *col);
                rows.indices.extend(row.iter().map(|(col, _)| *col));
                rows.data.extend(row.iter().map(|(_, value)| *value));
                rows.indptr.push(rows.data.len() as u64);
            }
            return Ok(Self { rows: Rows::Sparse(rows), count: shape[0] as u64, columns: shape[1] as u64 });
        }
        let set = root.dataset(location).map_err(lib)?;
        let shape = set.shape();
        let data = set.read_raw::<f32>().map_err(lib)?;
        let rows = Rows::Dense(DenseRows { columns: shape[1], data });
        Ok(Self { rows, count: shape[0] as u64, columns: shape[1] as u64 })
    }
    pub fn rows(&self) -> u64 {
        self.count
    }
    pub fn columns(&self) -> u64 {
        self.columns
    }
    pub fn nnz(&self) -> u64 {
        match &self.rows {
            Rows::Sparse(rows) => rows.data.len() as u64,
            Rows::Dense(rows) => rows.data.len() as u64,
        }
    }
    pub fn unchanged(&self) -> Result<(), PipelineError> {
        Ok(())
    }
    pub fn form(&self) -> Form {
        if matches!(self.rows, Rows::Sparse(_)) { Form::Sparse } else { Form::Dense }
    }
    pub fn stored_bytes(&self) -> u64 {
        self.rows.capacity_bytes()
    }
    pub fn reader(&self) -> Result<Box<dyn ReadRows + '_>, PipelineError> {
        Ok(Box::new(Simple { file: self, wanted: Vec::new() }))
    }
}

struct Simple<'f> {
    file: &'f MatrixFile,
    wanted: Vec<u64>,
}

impl ReadRows for Simple<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, _: &mut Rows) -> Result<u64, PipelineError> {
        self.wanted = match wanted {
            Wanted::Rows(rows) => rows.to_vec(),
            Wanted::Range(range) => range.clone().collect(),
        };
        Ok(0)
    }
    fn decode(&mut self, out: &mut Rows) -> Result<(), PipelineError> {
        for row in self.wanted.drain(..) {
            match (&self.file.rows, &mut *out) {
                (Rows::Sparse(rows), Rows::Sparse(out)) => {
                    let (indices, data) = rows.view().row(row as usize);
                    out.indices.extend_from_slice(indices);
                    out.data.extend_from_slice(data);
                    out.indptr.push(out.data.len() as u64);
                }
                (Rows::Dense(rows), Rows::Dense(out)) => {
                    let at = row as usize * rows.columns;
                    out.data.extend_from_slice(&rows.data[at..at + rows.columns]);
                }
                _ => return Err(PipelineError::Invalid("another form".into())),
            }
        }
        Ok(())
    }
}

#[allow(unused)]
fn unused(_: Values) {}
