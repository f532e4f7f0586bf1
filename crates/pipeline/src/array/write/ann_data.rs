use std::ffi::CString;
use std::path::{Path, PathBuf};

use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, FileBuilder, Group};
use hdf5_metno_sys::h5o::H5Ocopy;
use hdf5_metno_sys::h5p::H5P_DEFAULT;

use super::attributes::{dict, encoding, list, refused};
use super::frame::{Column, Frame, FrameWriter};
use super::series::{Layout, Series};
use crate::PipelineError;
use crate::array::CsrView;
use crate::array::h5ad::register;

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
#[derive(Clone, Copy, Debug)]
pub struct AnnDataSpec {
    /// Rows, exactly.
    pub rows: u64,
    /// Columns of the matrix.
    pub columns: u64,
    /// Values that are not 0: exactly with [`Layout::Contiguous`], otherwise a guess that the size of chunks follows from.
    pub values: u64,
    /// How the matrix is laid out.
    pub matrix: Matrix,
    /// How its data sets lie in the file.
    pub layout: Layout,
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
    columns: u64,
    major: u64,
    minor: u64,
    matrix: Values,
    obs: Option<FrameWriter>,
}

enum Values {
    Sparse { group: Group, data: Series<f32>, indices: Series<i32>, indptr: Vec<u64> },
    Dense { data: Series<f32>, row: Vec<f32>, rows: u64 },
}

/// Ends the name of a file that is being written.
const TEMPORARY: &str = ".tmp";

impl AnnDataWriter {
    /// Begin a file. obs and var are to follow, by [`AnnDataWriter::begin_obs`] and [`AnnDataWriter::put_var`] or
    /// [`AnnDataWriter::copy_annotations`].
    ///
    /// # Errors
    /// It cannot be written there; the spec says what cannot be.
    pub fn create(path: &Path, spec: &AnnDataSpec) -> Result<Self, PipelineError> {
        let temporary = Temporary::of(path);
        let at = temporary.path.clone();
        let (rows, columns) = (spec.rows, spec.columns);
        // Not locked: nobody else knows the temporary name, and a process that another thread starts inherits the library's
        // descriptor and with it the lock, so that the finished file could not be read until that process has ended.
        let file = FileBuilder::new().with_fapl(|p| p.file_locking(false)).create(&at).map_err(refused(path))?;
        encoding(path, &file, "anndata", "0.1.0")?;
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
        Ok(Self { temporary, file, columns, major, minor, matrix, obs: None })
    }

    /// Begin obs, which [`AnnDataWriter::push_obs`] fills.
    pub fn begin_obs(&mut self, rows: u64, columns: &[Column]) -> Result<(), PipelineError> {
        self.obs = Some(FrameWriter::create(self.target(), &self.file, "obs", rows, columns)?);
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

    /// Write var: the names of the columns of the matrix, and what is known of each.
    ///
    /// # Errors
    /// There are not as many as the matrix has columns.
    pub fn put_var(&mut self, columns: &[Column], var: &Frame) -> Result<(), PipelineError> {
        let mut writer = FrameWriter::create(self.target(), &self.file, "var", self.columns, columns)?;
        writer.push(var)?;
        writer.finish()
    }

    /// Copy what belongs to rows and columns from another AnnData file with the same ones in the same order: obs and var, and
    /// what is in obsm, obsp, uns, varm and varp. The library copies it as it is.
    ///
    /// # Errors
    /// The other file is of a format before AnnData 0.8, where these parts depend on each other, or cannot be read.
    pub fn copy_annotations(&mut self, other: &Path) -> Result<(), PipelineError> {
        self.copy_parts(other, &["obs", "var", "obsm", "obsp", "uns", "varm", "varp"])
    }

    /// Copy what belongs to columns alone: var, varm and varp.
    ///
    /// # Errors
    /// As [`AnnDataWriter::copy_annotations`].
    pub fn copy_var(&mut self, other: &Path) -> Result<(), PipelineError> {
        self.copy_parts(other, &["var", "varm", "varp"])
    }

    fn copy_parts(&mut self, other: &Path, parts: &[&str]) -> Result<(), PipelineError> {
        register()?;
        let source = File::open(other).map_err(|e| PipelineError::damaged(other, e))?;
        for name in parts.iter().copied().filter(|name| source.link_exists(name)) {
            if ["obs", "var"].contains(&name) && !is_frame(&source, name) {
                let reason =
                    format!("{name} is not as AnnData 0.8 and later write it; read and write it with one of these");
                return Err(PipelineError::damaged(other, reason));
            }
            copy(&source, &self.file, name).map_err(|e| PipelineError::damaged(other, format!("{name}: {e}")))?;
        }
        Ok(())
    }

    /// Where it will be.
    pub fn target(&self) -> &Path {
        &self.temporary.target
    }

    /// Append rows of the matrix; of a [`Matrix::Csc`] columns.
    ///
    /// # Errors
    /// An index is beyond the end, or indices do not ascend.
    pub fn push(&mut self, view: CsrView<'_>) -> Result<(), PipelineError> {
        if !view.ascends_within(self.minor) {
            let reason = format!("indices that do not ascend within 0 to {} were to be written", self.minor);
            return Err(PipelineError::damaged(self.target(), reason));
        }
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

    /// Write what is left and give the file its name. Returns how many values it stores.
    ///
    /// # Errors
    /// Rows are missing, of the matrix or of obs; it cannot be written.
    pub fn finish(self) -> Result<u64, PipelineError> {
        let Self { temporary, file, major, minor, matrix, obs, .. } = self;
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
        for name in ["obs", "var"] {
            if !file.link_exists(name) {
                return Err(PipelineError::damaged(&path, format!("{name} was not written")));
            }
        }
        for name in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            if !file.link_exists(name) {
                dict(&path, &file, name)?;
            }
        }
        file.flush().map_err(refused(&path))?;
        file.close().map_err(refused(&path))?;
        temporary.publish()?;
        Ok(values)
    }
}

/// Whether a part of a file is a group `dataframe` 0.2.0.
fn is_frame(file: &File, name: &str) -> bool {
    let version = |group: Group| group.attr("encoding-version")?.read_scalar::<VarLenUnicode>();
    file.group(name).and_then(version).is_ok_and(|version| version.as_str() == "0.2.0")
}

/// Copy an object with all below it.
fn copy(from: &File, to: &File, name: &str) -> hdf5_metno::Result<()> {
    let name = CString::new(name).map_err(|e| hdf5_metno::Error::from(e.to_string()))?;
    hdf5_metno::sync::sync(|| {
        let (from, to, name) = (from.id(), to.id(), name.as_ptr());
        // SAFETY: both files are open, the name ends in NUL; all outlive the call.
        hdf5_metno::h5check(unsafe { H5Ocopy(from, name, to, name, H5P_DEFAULT, H5P_DEFAULT) })
    })?;
    Ok(())
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
        let flushed = std::fs::File::open(&self.path).and_then(|file| file.sync_all());
        flushed.map_err(PipelineError::io("flush", &self.target))?;
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
