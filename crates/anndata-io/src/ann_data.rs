//! Stores of AnnData in any container.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::annotation::column::column_cells;
use crate::annotation::frame::{FrameColumns, FrameError};
use crate::error::DamageKind;
use crate::in_parallel::{in_parallel, opening_threads};
use crate::matrix::matrix_file::{MAX_OBSM_COLUMNS, MatrixError};
use crate::matrix::row_pointers::ROW_POINTER_BYTES;
use crate::matrix::shared_chunks::SharedChunks;
use crate::names::{NameLists, check_unique};
use crate::source::local_file::allow_open_files;
use crate::write::frame_writer::{ColumnSpec, Frame};
use crate::{
    AnnDataError, Annotation, ArrayStore, CSC_BYTES, CsrRows, Form, Labels, MatrixFile, ReadRows, Resident, RowLocation,
};

/// A container of AnnData: an HDF5 file, or a zarr folder.
pub trait Container: Debug + Send + Sync + 'static {
    /// Opens the matrix at `layer`, without its row pointers, and reads the names of its columns, an equal list of `lists` if there is one. The
    /// shape in the metadata is compared with obs and var before memory is allocated for it. A CSC matrix takes the memory that it needs from
    /// `csc_bytes`.
    ///
    /// # Errors
    /// The container cannot be read or is not AnnData; obs or var do not fit the matrix; a column name occurs twice.
    fn open(
        path: &Path,
        layer: &str,
        csc_bytes: &AtomicU64,
        lists: &NameLists,
    ) -> Result<(MatrixFile, Arc<[String]>), AnnDataError>;

    /// Reads from obs.
    ///
    /// # Errors
    /// Obs cannot be read, or changes while it is read.
    fn obs<T>(path: &Path, read: impl FnOnce(&dyn FrameColumns) -> Result<T, AnnDataError>) -> Result<T, AnnDataError>;
}

/// Compares the shape of the matrix at `layer` with `obs` and `var`.
///
/// # Errors
/// One of them has another number of rows.
pub(crate) fn check_shape(
    layer: &str,
    (rows, columns): (u64, u64),
    obs: &dyn FrameColumns,
    var: &dyn FrameColumns,
) -> Result<(), AnnDataError> {
    check_rows(layer, "rows", rows, obs)?;
    check_rows(layer, "columns", columns, var)
}

/// A matrix has `count` rows, or columns, as `frame` has rows.
fn check_rows(layer: &str, of: &'static str, count: u64, frame: &dyn FrameColumns) -> Result<(), AnnDataError> {
    let (location, found) = (frame.location(), frame.rows());
    if found as u64 == count {
        return Ok(());
    }
    let error = FrameError::Shape { frame: location.to_owned(), found, matrix: layer.to_owned(), count, of };
    Err(AnnDataError::damaged(frame.path(), error))
}

/// Names of the columns of an array of obsm, which the file does not have: their places, from 0. `None` for another matrix, whose columns are
/// those of var.
///
/// # Errors
/// The array has another number of rows than obs, or more columns than are supported.
pub(crate) fn obsm_columns(
    layer: &str,
    (rows, columns): (u64, u64),
    obs: &dyn FrameColumns,
) -> Result<Option<Vec<String>>, AnnDataError> {
    if !layer.starts_with("obsm/") {
        return Ok(None);
    }
    check_rows(layer, "rows", rows, obs)?;
    if columns > MAX_OBSM_COLUMNS {
        return Err(AnnDataError::damaged(obs.path(), DamageKind::inside(layer, MatrixError::ObsmColumns { columns })));
    }
    Ok(Some((0..columns).map(|column| column.to_string()).collect()))
}

/// Gene names of a matrix: the index of `var`, or the equal list that is in `lists` already.
///
/// # Errors
/// The index cannot be read, or a name occurs twice.
pub(crate) fn gene_names(var: &dyn FrameColumns, lists: &NameLists) -> Result<Arc<[String]>, AnnDataError> {
    let packed = var.packed_index();
    if let Some(known) = packed.as_ref().and_then(|names| lists.find(names.iter())) {
        return Ok(known);
    }
    let genes = match packed.and_then(|names| names.to_strings()) {
        Some(genes) => genes,
        None => var.index()?,
    };
    check_unique(&genes).map_err(|names| {
        AnnDataError::damaged(var.path(), DamageKind::inside(var.location(), FrameError::RowNames(names)))
    })?;
    Ok(lists.shared(genes.into()))
}

/// A matrix of an AnnData container. Its rows are those of obs, its columns those of var (of `raw/var` for `raw`), or of an array of obsm
/// its own, whose names are 0, 1, ….
#[derive(Debug)]
pub struct AnnDataStore<C> {
    path: PathBuf,
    matrix: MatrixFile,
    genes: Arc<[String]>,
    container: PhantomData<C>,
}

impl<C: Container> AnnDataStore<C> {
    /// Opens the matrix at `layer`: `X`, `raw`, `layers/NAME` or `obsm/NAME`; empty is `X`.
    ///
    /// # Errors
    /// The file cannot be read or is not AnnData; obs or var do not fit the matrix; a gene name occurs twice.
    pub fn open(path: &Path, layer: &str) -> Result<Self, AnnDataError> {
        let store = Self::without_row_pointers(path, layer, &AtomicU64::new(CSC_BYTES), &NameLists::default())?;
        Self::read_row_pointers(std::slice::from_ref(&store), ROW_POINTER_BYTES)?;
        Ok(store)
    }

    /// Opens the same matrix of several files, many of them on several threads. All CSC matrices together take at most [`CSC_BYTES`] of
    /// memory. Row pointers of CSR matrices are read into memory if those of all files take 64 MiB at most, or if the file is remote; else a
    /// reader reads those of its rows. Equal lists of genes are shared.
    ///
    /// # Errors
    /// As [`Self::open`]; the process may not open so many files.
    pub fn open_all(files: &[PathBuf], layer: &str) -> Result<Vec<Self>, AnnDataError> {
        Self::open_all_within(files, layer, CSC_BYTES, ROW_POINTER_BYTES)
    }

    /// As [`Self::open_all`], with other limits.
    pub(crate) fn open_all_within(
        files: &[PathBuf],
        layer: &str,
        csc_bytes: u64,
        row_pointer_bytes: u64,
    ) -> Result<Vec<Self>, AnnDataError> {
        allow_open_files(files.len())?;
        let (csc_bytes, lists) = (AtomicU64::new(csc_bytes), NameLists::default());
        let stores = in_parallel(opening_threads(files.len()), files.len(), "opening files", |file| {
            Self::without_row_pointers(&files[file], layer, &csc_bytes, &lists)
        })?;
        Self::read_row_pointers(&stores, row_pointer_bytes)?;
        Ok(stores)
    }

    /// Reads the row pointers of all stores into memory if they take at most `max_bytes` together, else those of remote stores only, and checks
    /// the ends of the others, of which decompressed chunks may take as many bytes.
    fn read_row_pointers(stores: &[Self], max_bytes: u64) -> Result<(), AnnDataError> {
        let bytes = stores.iter().map(|store| store.matrix.row_pointer_bytes()).fold(0, u64::saturating_add);
        let shared = SharedChunks::new(max_bytes);
        in_parallel(opening_threads(stores.len()), stores.len(), "reading row pointers", |store| {
            stores[store].matrix.read_row_pointers((bytes > max_bytes).then(|| shared.of_array(store)))
        })?;
        Ok(())
    }

    fn without_row_pointers(
        path: &Path,
        layer: &str,
        csc_bytes: &AtomicU64,
        lists: &NameLists,
    ) -> Result<Self, AnnDataError> {
        let layer = if layer.is_empty() { "X" } else { layer };
        let (matrix, genes) = C::open(path, layer, csc_bytes, lists)?;
        Ok(Self { path: path.to_owned(), matrix, genes, container: PhantomData })
    }

    /// Path of the file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads from obs of the opened container.
    pub(crate) fn obs<T>(
        &self,
        read: impl FnOnce(&dyn FrameColumns) -> Result<T, AnnDataError>,
    ) -> Result<T, AnnDataError> {
        let values = C::obs(&self.path, read)?;
        self.matrix.unchanged()?;
        Ok(values)
    }
}

impl<C: Container> AnnDataStore<C> {
    /// Reads all of obs: columns in order, values, and row names. Integers become int64; nullable strings, nullable unsigned
    /// integers and categories that are not strings become categorical.
    ///
    /// # Errors
    /// The file cannot be read, or an integer does not fit into int64.
    pub fn table(&self) -> Result<(Vec<ColumnSpec>, Frame), AnnDataError> {
        self.table_by_column(|_, _| ())
    }

    /// The same, with a call of `read` before the first column and after each: how many are read, the row names among them, and how
    /// many there are.
    ///
    /// # Errors
    /// As [`Self::table`].
    pub fn table_by_column(
        &self,
        mut read: impl FnMut(usize, usize),
    ) -> Result<(Vec<ColumnSpec>, Frame), AnnDataError> {
        self.obs(|obs| {
            let total = obs.names().len() + 1;
            read(0, total);
            let mut columns = Vec::new();
            let mut frame = Frame { index: obs.index()?, columns: Vec::new() };
            read(1, total);
            for name in obs.names() {
                let Some((kind, cells)) = column_cells(obs.column(name)?) else {
                    return Err(obs.wrong(name, FrameError::LargeInteger));
                };
                columns.push(ColumnSpec { name: name.clone(), kind });
                frame.columns.push(cells);
                read(columns.len() + 1, total);
            }
            Ok((columns, frame))
        })
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

    fn locate(&self, rows: &[u64], out: &mut Vec<RowLocation>) -> Result<Option<u64>, AnnDataError> {
        self.matrix.locate(rows, out)
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

    fn columns(&self) -> Result<Vec<String>, AnnDataError> {
        self.obs(|obs| Ok(obs.names().to_vec()))
    }

    fn annotation(&self, column: &str) -> Result<Annotation, AnnDataError> {
        self.obs(|obs| Ok(obs.column(column)?.into_annotation()))
    }

    fn row_names(&self) -> Result<Option<Vec<String>>, AnnDataError> {
        self.obs(|obs| obs.index()).map(Some)
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        self.matrix.reader()
    }
}
