use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{Frame, var_location};
use super::frame_file::FrameFile;
use crate::PipelineError;
use crate::array::annotation::FrameColumns;
use crate::array::limit::allow_open_files;
use crate::array::matrix::{CSC_BYTES, MatrixFile};
use crate::array::names::{all_different, shared};
use crate::array::{ArrayStore, CsrRows, Form, Labels, ReadRows, Resident};

/// One matrix of one AnnData file: rows are those of obs, columns those of var (of `raw/var` with `raw`).
#[derive(Debug)]
pub struct H5adStore {
    path: PathBuf,
    matrix: MatrixFile,
    genes: Arc<[String]>,
}

impl H5adStore {
    /// Open the matrix at `layer`: `X`, `raw` or `layers/NAME`; empty is `X`.
    ///
    /// # Errors
    /// The file cannot be read or is not AnnData's; obs or var do not fit the matrix; two genes have one name.
    pub fn open(path: &Path, layer: &str) -> Result<Self, PipelineError> {
        Self::open_within(path, layer, CSC_BYTES)
    }

    /// Open the same matrix of several files. Those that are stored by columns take no more than [`CSC_BYTES`] of memory
    /// together; lists of genes that are the same are one in memory.
    ///
    /// # Errors
    /// As [`Self::open`]; this process may not hold as many files open.
    pub fn open_all(files: &[PathBuf], layer: &str) -> Result<Vec<Self>, PipelineError> {
        Self::open_all_within(files, layer, CSC_BYTES)
    }

    /// As [`Self::open_all`], with another bound.
    pub(in crate::array) fn open_all_within(
        files: &[PathBuf],
        layer: &str,
        mut csc_bytes: u64,
    ) -> Result<Vec<Self>, PipelineError> {
        allow_open_files(files.len())?;
        let mut known = Vec::new();
        let open = |path: &PathBuf| {
            let mut store = Self::open_within(path, layer, csc_bytes)?;
            csc_bytes -= store.matrix.turned_bytes();
            store.genes = shared(store.genes, &mut known);
            Ok(store)
        };
        files.iter().map(open).collect()
    }

    fn open_within(path: &Path, layer: &str, csc_bytes: u64) -> Result<Self, PipelineError> {
        let layer = if layer.is_empty() { "X" } else { layer };
        // The shape is only a note in the file: it is compared before memory is taken for so many rows.
        let matrix = MatrixFile::open_checked(path, layer, csc_bytes, |rows, columns| {
            let file = FrameFile::open(path)?;
            let var = var_location(file.root(), layer);
            for (location, found, what, count) in [
                ("obs", Frame::open(&file, "obs")?.rows(), "rows", rows),
                (var, Frame::open(&file, var)?.rows(), "columns", columns),
            ] {
                if found as u64 != count {
                    let reason = format!("{location} has {found} rows where {layer} has {count} {what}");
                    return Err(PipelineError::damaged(path, reason));
                }
            }
            Ok(())
        })?;
        let file = FrameFile::open(path)?;
        let var = var_location(file.root(), layer);
        let genes = Frame::open(&file, var)?.index()?;
        all_different(&genes).map_err(|reason| {
            file.wrong(var, &format!("{reason}; AnnData.var_names_make_unique() makes them different"))
        })?;
        matrix.unchanged()?;
        Ok(Self { path: path.to_owned(), matrix, genes: genes.into() })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Read something of obs, of the file that was opened.
    pub(super) fn obs<T>(&self, read: impl FnOnce(&Frame<'_>) -> Result<T, PipelineError>) -> Result<T, PipelineError> {
        let file = FrameFile::open(&self.path)?;
        let frame = Frame::open(&file, "obs")?;
        let values = read(&frame)?;
        self.matrix.unchanged()?;
        Ok(values)
    }

    /// Names of the columns of obs, in order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn columns(&self) -> Result<Vec<String>, PipelineError> {
        self.obs(|obs| Ok(obs.names().to_vec()))
    }

    /// Names of the rows (the index of obs), in order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn row_names(&self) -> Result<Vec<String>, PipelineError> {
        self.obs(|obs| obs.index())
    }
}

impl ArrayStore for H5adStore {
    fn len(&self) -> u64 {
        self.matrix.rows()
    }

    fn genes(&self) -> &[String] {
        &self.genes
    }

    fn form(&self) -> Form {
        self.matrix.form()
    }

    fn run_rows(&self) -> u64 {
        self.matrix.run_rows()
    }

    fn row_values(&self, rows: &[u64], out: &mut Vec<u64>) -> bool {
        self.matrix.row_values(rows, out)
    }

    fn resident(&self) -> Option<Resident<'_>> {
        self.matrix.turned().map(CsrRows::view).map(Resident::Csr)
    }

    fn stored_bytes(&self) -> u64 {
        self.matrix.stored_bytes()
    }

    fn most_values(&self) -> Option<u64> {
        Some(self.matrix.nnz())
    }

    fn least_values(&self) -> u64 {
        match self.form() {
            Form::Sparse => self.matrix.nnz(),
            Form::Dense => 0,
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn labels(&self, column: &str) -> Result<Labels, PipelineError> {
        self.obs(|obs| obs.labels(column))
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, PipelineError> {
        self.obs(|obs| obs.numbers(column))
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, PipelineError> {
        self.matrix.reader()
    }
}
