use std::path::{Path, PathBuf};

use hdf5_metno::{File, Group};

use super::attributes::{dict, encoding, list, refused};
use super::frame::{Column, Frame, FrameWriter};
use super::series::{Layout, Series};
use crate::PipelineError;
use crate::array::CsrView;

/// How the matrix of a file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// Row by row, what is not 0.
    Csr,
    /// Column by column, what is not 0: [`AnnDataWriter::push`] is given columns in place of rows.
    Csc,
    /// float32 `[rows, columns]`.
    Dense,
}

/// What a file will hold.
#[derive(Clone, Debug)]
pub struct AnnDataSpec<'a> {
    /// Rows, exactly.
    pub rows: u64,
    /// Names of the columns of the matrix.
    pub genes: &'a [String],
    /// Values that are not 0: exactly with [`Layout::Contiguous`], otherwise a guess that the size of chunks follows from.
    pub values: u64,
    /// How the matrix is laid out.
    pub matrix: Matrix,
    /// How its data sets lie in the file.
    pub layout: Layout,
    /// Columns of var.
    pub var: &'a [Column],
    /// Threads that compress.
    pub threads: usize,
}

/// Writes an AnnData file (on-disk format 0.1.0, as AnnData writes it from 0.8 on) from its beginning to its end.
///
/// The file grows under a temporary name and gets its own with [`AnnDataWriter::finish`]; a writer that is dropped before
/// leaves nothing.
pub struct AnnDataWriter {
    temporary: Temporary,
    file: File,
    major: u64,
    minor: u64,
    matrix: Values,
    obs: Option<FrameWriter>,
}

enum Values {
    Sparse {
        group: Group,
        data: Series<f32>,
        indices: Series<i32>,
        indptr: Vec<u64>,
    },
    Dense {
        data: Series<f32>,
        row: Vec<f32>,
        rows: u64,
    },
}

/// Ends the name of a file that is being written.
const TEMPORARY: &str = ".tmp";

impl AnnDataWriter {
    /// Begin a file. `var` has the values of the columns that the spec announces.
    ///
    /// # Errors
    /// It cannot be written there; the spec says what cannot be.
    pub fn create(path: &Path, spec: &AnnDataSpec<'_>, var: Frame) -> Result<Self, PipelineError> {
        let temporary = Temporary::of(path);
        let at = temporary.path.clone();
        let (rows, columns) = (spec.rows, spec.genes.len() as u64);
        let file = File::create(&at).map_err(refused(path))?;
        encoding(path, &file, "anndata", "0.1.0")?;
        let mut genes = FrameWriter::create(path, &file, "var", columns, spec.var)?;
        genes.push(&var)?;
        genes.finish()?;
        for name in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            dict(path, &file, name)?;
        }
        let (major, minor) = if spec.matrix == Matrix::Csc { (columns, rows) } else { (rows, columns) };
        let matrix = match spec.matrix {
            Matrix::Dense => {
                let shape = (rows, Some(columns as usize));
                let data = Series::create(path, &file, "X", shape, spec.layout, spec.threads)?;
                encoding(path, data.dataset(), "array", "0.2.0")?;
                Values::Dense { data, row: vec![0.0; columns as usize], rows: 0 }
            }
            Matrix::Csr | Matrix::Csc => {
                let group = file.create_group("X").map_err(refused(path))?;
                let kind = if spec.matrix == Matrix::Csr { "csr_matrix" } else { "csc_matrix" };
                encoding(path, &group, kind, "0.1.0")?;
                list(path, &group, "shape", &[rows as i64, columns as i64])?;
                let len = (spec.values, None);
                let data = Series::create(path, &group, "data", len, spec.layout, spec.threads)?;
                let indices = Series::create(path, &group, "indices", len, spec.layout, spec.threads)?;
                Values::Sparse { group, data, indices, indptr: vec![0] }
            }
        };
        Ok(Self { temporary, file, major, minor, matrix, obs: None })
    }

    /// Begin obs, which [`AnnDataWriter::push_obs`] fills.
    pub fn begin_obs(&mut self, rows: u64, columns: &[Column]) -> Result<(), PipelineError> {
        self.obs = Some(FrameWriter::create(self.path(), &self.file, "obs", rows, columns)?);
        Ok(())
    }

    /// Append rows of obs.
    ///
    /// # Errors
    /// They are not what was announced.
    pub fn push_obs(&mut self, rows: &Frame) -> Result<(), PipelineError> {
        match &mut self.obs {
            Some(obs) => obs.push(rows),
            None => Err(PipelineError::Invalid("obs was not begun".to_owned())),
        }
    }

    /// The file, to put other things into it.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.temporary.target
    }

    /// Append rows of the matrix; of a [`Matrix::Csc`] columns.
    ///
    /// # Errors
    /// An index is beyond the end, or indices do not ascend.
    pub fn push(&mut self, view: CsrView<'_>) -> Result<(), PipelineError> {
        self.check(view)?;
        match &mut self.matrix {
            Values::Sparse { data, indices, indptr, .. } => {
                let (Some(&first), Some(&last)) = (view.indptr.first(), view.indptr.last()) else { return Ok(()) };
                let from = indptr.last().copied().unwrap_or_default();
                indptr.extend(view.indptr[1..].iter().map(|at| at - first + from));
                let range = first as usize..last as usize;
                data.push(&view.data[range.clone()])?;
                indices.push(&view.indices[range])
            }
            Values::Dense { data, row, rows } => {
                for index in 0..view.indptr.len().saturating_sub(1) {
                    row.fill(0.0);
                    let (columns, values) = view.row(index);
                    for (column, value) in columns.iter().zip(values) {
                        row[*column as usize] = *value;
                    }
                    data.push(row)?;
                    *rows += 1;
                }
                Ok(())
            }
        }
    }

    fn check(&self, view: CsrView<'_>) -> Result<(), PipelineError> {
        for row in 0..view.indptr.len().saturating_sub(1) {
            let (indices, _) = view.row(row);
            let bound = indices.first().is_none_or(|first| *first >= 0)
                && indices.last().is_none_or(|last| (*last as u64) < self.minor);
            if !bound || !indices.is_sorted_by(|a, b| a < b) {
                let reason = format!("indices that do not ascend within 0 to {} were to be written", self.minor);
                return Err(PipelineError::damaged(self.path(), reason));
            }
        }
        Ok(())
    }

    /// Write what is left and give the file its name. Returns how many values it stores.
    ///
    /// # Errors
    /// Rows are missing, of the matrix or of obs; it cannot be written.
    pub fn finish(self) -> Result<u64, PipelineError> {
        let Self { temporary, file, major, minor, matrix, obs } = self;
        let path = temporary.target.clone();
        if let Some(obs) = obs {
            obs.finish()?;
        }
        let (came, values) = match matrix {
            Values::Dense { data, rows, .. } => {
                data.finish()?;
                (rows, rows * minor)
            }
            Values::Sparse { group, data, indices, indptr } => {
                let (_, values) = data.finish()?;
                indices.finish()?;
                write_indptr(&path, &group, &indptr)?;
                (indptr.len() as u64 - 1, values)
            }
        };
        if came != major {
            return Err(PipelineError::damaged(&path, format!("X was to have {major} rows, but {came} came")));
        }
        file.flush().map_err(refused(&path))?;
        file.close().map_err(refused(&path))?;
        temporary.publish()?;
        Ok(values)
    }
}

/// int32 as scipy has it while that is enough, otherwise int64.
fn write_indptr(path: &Path, group: &Group, indptr: &[u64]) -> Result<(), PipelineError> {
    let builder = |group: &Group| group.new_dataset_builder().obj_track_times(false);
    let written = if indptr.last().is_some_and(|last| i32::try_from(*last).is_ok()) {
        let indptr: Vec<i32> = indptr.iter().map(|at| *at as i32).collect();
        builder(group).with_data(&indptr[..]).no_chunk().create("indptr")
    } else {
        let indptr: Vec<i64> = indptr.iter().map(|at| *at as i64).collect();
        builder(group).with_data(&indptr[..]).no_chunk().create("indptr")
    };
    written.map(drop).map_err(refused(path))
}

/// A file under its temporary name, which is removed unless it is published.
struct Temporary {
    target: PathBuf,
    path: PathBuf,
    published: bool,
}

impl Temporary {
    fn of(target: &Path) -> Self {
        let mut path = target.as_os_str().to_owned();
        path.push(TEMPORARY);
        Self { target: target.to_owned(), path: path.into(), published: false }
    }

    fn publish(mut self) -> Result<(), PipelineError> {
        std::fs::rename(&self.path, &self.target).map_err(PipelineError::io("rename to", &self.target))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
