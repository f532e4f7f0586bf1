//! `AnnDataWriter` writes a whole .h5ad file from start to end: matrix, obs and var, or a matrix with annotations copied from another file.

use std::ffi::CString;
use std::path::Path;

use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, FileBuilder, Group, H5Type, Location};
use hdf5_metno_sys::h5o::H5Ocopy;
use hdf5_metno_sys::h5p::H5P_DEFAULT;

use crate::annotation::frame::FrameError;
use crate::error::DamageKind;
use crate::h5ad::array_layout::Hdf5Error;
use crate::h5ad::filters::register_hdf5_filters;
use crate::write::dataset_writer::{DatasetWriter, Layout};
use crate::write::frame_writer::{ColumnSpec, Frame, FrameWriter};
use crate::write::{Staged, WriteError};
use crate::{AnnDataError, CsrView};

/// Encoding of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// `csr_matrix`.
    Csr,
    /// `csc_matrix`: [`AnnDataWriter::push`] takes columns instead of rows.
    Csc,
    /// Dense float32 `[rows, columns]`.
    Dense,
}

/// Shape and layout of a new file.
#[derive(Clone, Copy, Debug)]
pub struct AnnDataSpec {
    /// Exact number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Number of stored values: exact with [`Layout::Contiguous`], otherwise an estimate that determines the chunk size.
    pub values: u64,
    /// Encoding of the matrix.
    pub matrix: Matrix,
    /// Layout of its data sets.
    pub layout: Layout,
    /// Number of threads that compress.
    pub threads: usize,
}

/// Writes an AnnData file (on-disk format 0.1.0, that of AnnData 0.8 and later) from start to end.
///
/// The file grows under a temporary name and gets its own with [`AnnDataWriter::finish`]; a writer that is dropped before that
/// removes it.
pub struct AnnDataWriter {
    staged: Staged,
    file: File,
    columns: u64,
    major: u64,
    minor: u64,
    matrix: MatrixWriter,
    obs: Option<FrameWriter>,
}

enum MatrixWriter {
    Sparse { group: Group, data: DatasetWriter<f32>, indices: DatasetWriter<i32>, indptr: Vec<u64> },
    Dense { data: DatasetWriter<f32>, row: Vec<f32>, rows: u64 },
}

impl AnnDataWriter {
    /// Creates a file. The caller adds obs and var with [`AnnDataWriter::begin_obs`] and [`AnnDataWriter::put_var`], or with
    /// [`AnnDataWriter::copy_annotations`].
    ///
    /// # Errors
    /// The file cannot be written, or the spec is contradictory.
    pub fn create(path: &Path, spec: &AnnDataSpec) -> Result<Self, AnnDataError> {
        let staged = Staged::new(path);
        let (rows, columns) = (spec.rows, spec.columns);
        // Not locked: nobody else knows the temporary name, and a process that another thread starts inherits the library's
        // descriptor and with it the lock, so that the finished file could not be read until that process has ended.
        let file =
            FileBuilder::new().with_fapl(|p| p.file_locking(false)).create(staged.path()).map_err(write_error(path))?;
        write_encoding(path, &file, "anndata", "0.1.0")?;
        let (major, minor) = if spec.matrix == Matrix::Csc { (columns, rows) } else { (rows, columns) };
        let matrix = match spec.matrix {
            Matrix::Dense => {
                let shape = (rows, Some(columns as usize));
                let data = DatasetWriter::create(path, &file, "X", shape, spec.layout, spec.threads)?;
                write_encoding(path, data.dataset(), "array", "0.2.0")?;
                MatrixWriter::Dense { data, row: vec![0.0; columns as usize], rows: 0 }
            }
            Matrix::Csr | Matrix::Csc => {
                let group = file.create_group("X").map_err(write_error(path))?;
                let kind = if spec.matrix == Matrix::Csr { "csr_matrix" } else { "csc_matrix" };
                write_encoding(path, &group, kind, "0.1.0")?;
                list_attribute(path, &group, "shape", &[rows as i64, columns as i64])?;
                let len = (spec.values, None);
                let data = DatasetWriter::create(path, &group, "data", len, spec.layout, spec.threads)?;
                let indices = DatasetWriter::create(path, &group, "indices", len, spec.layout, spec.threads)?;
                MatrixWriter::Sparse { group, data, indices, indptr: vec![0] }
            }
        };
        Ok(Self { staged, file, columns, major, minor, matrix, obs: None })
    }

    /// Begins obs, whose rows follow with [`AnnDataWriter::push_obs`].
    pub fn begin_obs(&mut self, rows: u64, columns: &[ColumnSpec]) -> Result<(), AnnDataError> {
        self.obs = Some(FrameWriter::create(self.target(), &self.file, "obs", rows, columns)?);
        Ok(())
    }

    /// Appends rows of obs.
    ///
    /// # Errors
    /// Their columns are not those of [`AnnDataWriter::begin_obs`].
    pub fn push_obs(&mut self, rows: &Frame) -> Result<(), AnnDataError> {
        match &mut self.obs {
            Some(obs) => obs.push(rows),
            None => Err(AnnDataError::write(self.target(), WriteError::NoObs)),
        }
    }

    /// Writes var: the names of the columns of the matrix, and its own columns.
    ///
    /// # Errors
    /// The number of names is not that of the columns of the matrix.
    pub fn put_var(&mut self, columns: &[ColumnSpec], var: &Frame) -> Result<(), AnnDataError> {
        let mut writer = FrameWriter::create(self.target(), &self.file, "var", self.columns, columns)?;
        writer.push(var)?;
        writer.finish()
    }

    /// Copies annotations from another AnnData file with the same rows and columns: obs, var, obsm, obsp, uns, varm and varp.
    /// libhdf5 copies them unchanged.
    ///
    /// # Errors
    /// The other file is older than AnnData 0.8, where these parts refer to each other, or cannot be read.
    pub fn copy_annotations(&mut self, other: &Path) -> Result<(), AnnDataError> {
        self.copy_parts(other, &["obs", "var", "obsm", "obsp", "uns", "varm", "varp"])
    }

    /// Copies only the annotations of columns: var, varm and varp.
    ///
    /// # Errors
    /// As [`AnnDataWriter::copy_annotations`].
    pub fn copy_var(&mut self, other: &Path) -> Result<(), AnnDataError> {
        self.copy_parts(other, &["var", "varm", "varp"])
    }

    fn copy_parts(&mut self, other: &Path, parts: &[&str]) -> Result<(), AnnDataError> {
        register_hdf5_filters()?;
        let source = File::open(other).map_err(|e| AnnDataError::damaged(other, Hdf5Error::from(e)))?;
        for name in parts.iter().copied().filter(|name| source.link_exists(name)) {
            if ["obs", "var"].contains(&name) && !is_frame(&source, name) {
                return Err(AnnDataError::damaged(other, DamageKind::inside(name, FrameError::TooOld)));
            }
            let copied = copy_object(&source, &self.file, name);
            copied.map_err(|e| AnnDataError::damaged(other, DamageKind::inside(name, Hdf5Error::from(e))))?;
        }
        Ok(())
    }

    /// Path of the finished file.
    pub fn target(&self) -> &Path {
        self.staged.target()
    }

    /// Appends rows of the matrix, or columns for [`Matrix::Csc`].
    ///
    /// # Errors
    /// An index is not below the number of columns, or indices do not ascend.
    pub fn push(&mut self, view: CsrView<'_>) -> Result<(), AnnDataError> {
        if !view.ascends_within(self.minor) {
            return Err(AnnDataError::write(self.target(), WriteError::Indices { columns: self.minor }));
        }
        match &mut self.matrix {
            MatrixWriter::Sparse { data, indices, indptr, .. } => {
                let (Some(&first), Some(&last)) = (view.indptr.first(), view.indptr.last()) else { return Ok(()) };
                let from = indptr.last().copied().unwrap_or_default();
                indptr.extend(view.indptr[1..].iter().map(|at| at - first + from));
                let range = first as usize..last as usize;
                data.push(&view.data[range.clone()])?;
                indices.push(&view.indices[range])
            }
            MatrixWriter::Dense { data, row, rows } => {
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

    /// Writes the rest and gives the file its name. Returns the number of stored values.
    ///
    /// # Errors
    /// Rows of the matrix or of obs are missing; the file cannot be written.
    pub fn finish(self) -> Result<u64, AnnDataError> {
        let Self { staged, file, major, minor, matrix, obs, .. } = self;
        let path = staged.target().to_owned();
        if let Some(obs) = obs {
            obs.finish()?;
        }
        let (came, values) = match matrix {
            MatrixWriter::Dense { data, rows, .. } => {
                data.finish()?;
                (rows, rows * minor)
            }
            MatrixWriter::Sparse { group, data, indices, indptr } => {
                let (_, values) = data.finish()?;
                indices.finish()?;
                write_indptr(&path, &group, &indptr)?;
                (indptr.len() as u64 - 1, values)
            }
        };
        if came != major {
            return Err(AnnDataError::write(&path, WriteError::Rows { expected: major, found: came }));
        }
        for part in ["obs", "var"] {
            if !file.link_exists(part) {
                return Err(AnnDataError::write(&path, WriteError::MissingPart { part }));
            }
        }
        for name in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            if !file.link_exists(name) {
                write_dict(&path, &file, name)?;
            }
        }
        file.flush().map_err(write_error(&path))?;
        file.close().map_err(write_error(&path))?;
        let last = staged.path().to_owned();
        staged.publish(&last)?;
        Ok(values)
    }
}

/// Whether a node is a group `dataframe` 0.2.0.
fn is_frame(file: &File, name: &str) -> bool {
    let version = |group: Group| group.attr("encoding-version")?.read_scalar::<VarLenUnicode>();
    file.group(name).and_then(version).is_ok_and(|version| version.as_str() == "0.2.0")
}

/// Whether [`AnnDataWriter::copy_annotations`] can copy from a file: AnnData 0.8 or newer has written it.
///
/// # Errors
/// The file cannot be opened.
pub fn has_current_annotations(path: &Path) -> Result<bool, AnnDataError> {
    let file = File::open(path).map_err(|e| AnnDataError::damaged(path, Hdf5Error::from(e)))?;
    Ok(is_frame(&file, "obs") && is_frame(&file, "var"))
}

/// Copies a node with all nodes below it.
fn copy_object(from: &File, to: &File, name: &str) -> hdf5_metno::Result<()> {
    let name = CString::new(name).map_err(|e| hdf5_metno::Error::from(e.to_string()))?;
    hdf5_metno::sync::sync(|| {
        let (from, to, name) = (from.id(), to.id(), name.as_ptr());
        // SAFETY: both files are open, the name ends with NUL; all of them outlive the call.
        hdf5_metno::h5check(unsafe { H5Ocopy(from, name, to, name, H5P_DEFAULT, H5P_DEFAULT) })
    })?;
    Ok(())
}

/// int32 as in SciPy if that suffices, else int64.
fn write_indptr(path: &Path, group: &Group, indptr: &[u64]) -> Result<(), AnnDataError> {
    let builder = |group: &Group| group.new_dataset_builder().obj_track_times(false);
    let written = if indptr.last().is_some_and(|last| i32::try_from(*last).is_ok()) {
        let indptr: Vec<i32> = indptr.iter().map(|at| *at as i32).collect();
        builder(group).with_data(&indptr[..]).no_chunk().create("indptr")
    } else {
        let indptr: Vec<i64> = indptr.iter().map(|at| *at as i64).collect();
        builder(group).with_data(&indptr[..]).no_chunk().create("indptr")
    };
    written.map(drop).map_err(write_error(path))
}

/// Converts an error of libhdf5.
pub(crate) fn write_error(path: &Path) -> impl Fn(hdf5_metno::Error) -> AnnDataError {
    let path = path.to_owned();
    move |e| AnnDataError::io("write", &path)(std::io::Error::other(e.to_string()))
}

/// A string for libhdf5.
///
/// # Errors
/// It contains NUL, which ends a string in HDF5.
pub(crate) fn unicode(path: &Path, text: &str) -> Result<VarLenUnicode, AnnDataError> {
    text.parse().map_err(|e: hdf5_metno::types::StringError| {
        AnnDataError::write(path, WriteError::Text { text: text.to_owned(), source: e.into() })
    })
}

/// Sets the attributes of AnnData's encoding.
pub(crate) fn write_encoding(path: &Path, at: &Location, kind: &str, version: &str) -> Result<(), AnnDataError> {
    text_attribute(path, at, "encoding-type", kind)?;
    text_attribute(path, at, "encoding-version", version)
}

/// A string attribute.
pub(crate) fn text_attribute(path: &Path, at: &Location, name: &str, value: &str) -> Result<(), AnnDataError> {
    let value = unicode(path, value)?;
    let written = at.new_attr::<VarLenUnicode>().create(name).and_then(|attribute| attribute.write_scalar(&value));
    written.map_err(write_error(path))
}

/// A scalar attribute.
pub(crate) fn scalar_attribute<T: H5Type>(
    path: &Path,
    at: &Location,
    name: &str,
    value: T,
) -> Result<(), AnnDataError> {
    let written = at.new_attr::<T>().create(name).and_then(|attribute| attribute.write_scalar(&value));
    written.map_err(write_error(path))
}

/// An attribute with several values.
pub(crate) fn list_attribute<T: H5Type>(
    path: &Path,
    at: &Location,
    name: &str,
    values: &[T],
) -> Result<(), AnnDataError> {
    let attribute = at.new_attr::<T>().shape(values.len()).create(name);
    let written = attribute.and_then(|attribute| if values.is_empty() { Ok(()) } else { attribute.write_raw(values) });
    written.map_err(write_error(path))
}

/// An empty group with AnnData's encoding `dict`.
fn write_dict(path: &Path, parent: &Group, name: &str) -> Result<(), AnnDataError> {
    let group = parent.create_group(name).map_err(write_error(path))?;
    write_encoding(path, &group, "dict", "0.1.0")
}
