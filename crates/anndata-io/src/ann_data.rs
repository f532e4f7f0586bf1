//! AnnData as a store of rows, whatever container it is in.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::annotation::FrameColumns;
use crate::names::{check_unique, deduplicate};
use crate::source::local_file::allow_open_files;
use crate::{AnnDataError, ArrayStore, CSC_BYTES, CsrRows, Form, Labels, MatrixFile, ReadRows, Resident};

/// Where the parts of an AnnData are: a file in HDF5, or a folder in zarr.
pub trait Container: Debug + Send + Sync + 'static {
    /// Open the matrix at `layer` and read the names of its columns. The shape is only a note: it is compared with obs and var
    /// before memory is taken for so many rows. At most `csc_bytes` of memory for a matrix that is stored by columns.
    ///
    /// # Errors
    /// It cannot be read or is not AnnData's; obs or var do not fit the matrix; two columns have one name.
    fn open(path: &Path, layer: &str, csc_bytes: u64) -> Result<(MatrixFile, Vec<String>), AnnDataError>;

    /// Read something of obs.
    ///
    /// # Errors
    /// It cannot be read, or changes while it is.
    fn obs<T>(path: &Path, read: impl FnOnce(&dyn FrameColumns) -> Result<T, AnnDataError>) -> Result<T, AnnDataError>;
}

/// Hold the shape of the matrix at `layer` against `obs` and `var`.
///
/// # Errors
/// One of them has another number of rows.
pub(crate) fn check_shape(
    layer: &str,
    (rows, columns): (u64, u64),
    obs: &dyn FrameColumns,
    var: &dyn FrameColumns,
) -> Result<(), AnnDataError> {
    for (frame, what, count) in [(obs, "rows", rows), (var, "columns", columns)] {
        let (location, found) = (frame.location(), frame.rows());
        if found as u64 != count {
            let reason = format!("{location} has {found} rows where {layer} has {count} {what}");
            return Err(AnnDataError::damaged(frame.path(), reason));
        }
    }
    Ok(())
}

/// The names of the columns of a matrix: the index of `var`.
///
/// # Errors
/// It cannot be read, or has one name twice.
pub(crate) fn gene_names(var: &dyn FrameColumns) -> Result<Vec<String>, AnnDataError> {
    let genes = var.index()?;
    check_unique(&genes).map_err(|reason| {
        let reason = format!("{}: {reason}; AnnData.var_names_make_unique() makes them different", var.location());
        AnnDataError::damaged(var.path(), reason)
    })?;
    Ok(genes)
}

/// One matrix of one AnnData: rows are those of obs, columns those of var (of `raw/var` with `raw`).
#[derive(Debug)]
pub struct AnnDataStore<C> {
    path: PathBuf,
    matrix: MatrixFile,
    genes: Arc<[String]>,
    container: PhantomData<C>,
}

impl<C: Container> AnnDataStore<C> {
    /// Open the matrix at `layer`: `X`, `raw` or `layers/NAME`; empty is `X`.
    ///
    /// # Errors
    /// The file cannot be read or is not AnnData's; obs or var do not fit the matrix; two genes have one name.
    pub fn open(path: &Path, layer: &str) -> Result<Self, AnnDataError> {
        Self::open_within(path, layer, CSC_BYTES)
    }

    /// Open the same matrix of several files. Those that are stored by columns take no more than [`CSC_BYTES`] of memory
    /// together; lists of genes that are the same are one in memory.
    ///
    /// # Errors
    /// As [`Self::open`]; this process may not hold as many files open.
    pub fn open_all(files: &[PathBuf], layer: &str) -> Result<Vec<Self>, AnnDataError> {
        Self::open_all_within(files, layer, CSC_BYTES)
    }

    /// As [`Self::open_all`], with another bound.
    pub(crate) fn open_all_within(
        files: &[PathBuf],
        layer: &str,
        mut csc_bytes: u64,
    ) -> Result<Vec<Self>, AnnDataError> {
        allow_open_files(files.len())?;
        let mut known = Vec::new();
        let open = |path: &PathBuf| {
            let mut store = Self::open_within(path, layer, csc_bytes)?;
            csc_bytes -= store.matrix.transposed_bytes();
            store.genes = deduplicate(store.genes, &mut known);
            Ok(store)
        };
        files.iter().map(open).collect()
    }

    fn open_within(path: &Path, layer: &str, csc_bytes: u64) -> Result<Self, AnnDataError> {
        let layer = if layer.is_empty() { "X" } else { layer };
        let (matrix, genes) = C::open(path, layer, csc_bytes)?;
        Ok(Self { path: path.to_owned(), matrix, genes: genes.into(), container: PhantomData })
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Read something of obs, of what was opened.
    pub(crate) fn obs<T>(
        &self,
        read: impl FnOnce(&dyn FrameColumns) -> Result<T, AnnDataError>,
    ) -> Result<T, AnnDataError> {
        let values = C::obs(&self.path, read)?;
        self.matrix.unchanged()?;
        Ok(values)
    }

    /// Names of the columns of obs, in order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn columns(&self) -> Result<Vec<String>, AnnDataError> {
        self.obs(|obs| Ok(obs.names().to_vec()))
    }

    /// Names of the rows (the index of obs), in order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn row_names(&self) -> Result<Vec<String>, AnnDataError> {
        self.obs(|obs| obs.index())
    }
}

impl<C: Container> ArrayStore for AnnDataStore<C> {
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
        self.matrix.transposed().map(CsrRows::view).map(Resident::Csr)
    }

    fn stored_bytes(&self) -> u64 {
        self.matrix.stored_bytes()
    }

    fn max_values(&self) -> Option<u64> {
        Some(self.matrix.nnz())
    }

    fn min_values(&self) -> u64 {
        match self.form() {
            Form::Sparse => self.matrix.nnz(),
            Form::Dense => 0,
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        self.obs(|obs| obs.labels(column))
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        self.obs(|obs| obs.numbers(column))
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        self.matrix.reader()
    }
}
