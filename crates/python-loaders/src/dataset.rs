//! `NativeDataset` opens files of one format and joins them; samplers, columns of obs and streams are made from it. Errors of the files become
//! Python exceptions here.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anndata_io::remote::{CacheOptions, RemoteOptions, RetryPolicy};
use anndata_io::{
    AnnDataError, ArrayStore, Collection, Form, GeneJoin, H5adStore, MdsStore, MemoryStore, ParquetStore, ZarrStore,
    remote,
};
use cell_loader::GeneMap;
use pyo3::prelude::*;

use crate::error::{BindingError, anndata_error, cell_error};
use crate::fork::{Running, check, reads_remote};
use crate::interruptible::interruptible;
use crate::obs::ObsColumns;
use crate::warnings;

/// Files, opened and joined.
#[pyclass(name = "Dataset", module = "expctl._native", frozen)]
pub struct NativeDataset {
    pub store: Arc<dyn ArrayStore>,
    /// Genes of batches, in this order; empty is all.
    pub genes: Vec<String>,
}

/// Why files cannot be opened.
enum OpenError {
    AnnData(AnnDataError),
    Binding(BindingError),
}

impl From<AnnDataError> for OpenError {
    fn from(error: AnnDataError) -> Self {
        Self::AnnData(error)
    }
}

impl From<BindingError> for OpenError {
    fn from(error: BindingError) -> Self {
        Self::Binding(error)
    }
}

impl From<OpenError> for PyErr {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::AnnData(error) => anndata_error(error),
            OpenError::Binding(error) => error.into(),
        }
    }
}

/// Stores of a kind as those of any kind.
fn boxed<S: ArrayStore>(stores: Vec<S>) -> Vec<Box<dyn ArrayStore>> {
    stores.into_iter().map(|store| Box::new(store) as Box<dyn ArrayStore>).collect()
}

/// Bytes of memory that are free, as Linux says; no limit where it does not.
fn free_memory() -> u64 {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = known.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

/// Open files of one format and join them.
fn open_store(files: &[PathBuf], format: &str, layer: &str, join: GeneJoin) -> Result<Collection, OpenError> {
    let stores = match format {
        "zarr" => boxed(ZarrStore::open_all(files, layer)?),
        "parquet" => boxed(ParquetStore::open_all(files)?),
        "mds" => boxed(MdsStore::open_all(files)?),
        _ => boxed(H5adStore::open_all(files, layer)?),
    };
    // The columns of an array of obsm have no names by which files could be joined.
    if let (true, Some(first)) = (layer.starts_with("obsm/"), stores.first()) {
        let columns = first.genes().len();
        if let Some(other) = stores.iter().find(|store| store.genes().len() != columns) {
            let (array, file, found) = (layer.to_owned(), other.name(), other.genes().len());
            return Err(BindingError::ObsmColumns { array, file, found, first: first.name(), columns }.into());
        }
    }
    Ok(Collection::new(stores, join, &[])?)
}

#[pymethods]
impl NativeDataset {
    /// Open files. `layer` is `X`, `raw`, `layers/NAME` or `obsm/NAME`. With `memory` all rows are read into memory by `threads` threads. Ctrl-C
    /// ends it.
    #[new]
    #[pyo3(signature = (files, *, format, layer, join, genes, memory, threads, is_remote))]
    #[expect(clippy::too_many_arguments, reason = "named arguments of Python")]
    fn new(
        py: Python<'_>,
        files: Vec<PathBuf>,
        format: &str,
        layer: &str,
        join: &str,
        genes: Vec<String>,
        memory: bool,
        threads: usize,
        is_remote: bool,
    ) -> PyResult<Self> {
        let join = match join {
            "inner" => GeneJoin::Inner,
            "outer" => GeneJoin::Outer,
            _ => return Err(BindingError::UnknownJoin { join: join.to_owned() }.into()),
        };
        if !["h5ad", "zarr", "parquet", "mds"].contains(&format) {
            return Err(BindingError::UnknownFormat { format: format.to_owned() }.into());
        }
        if matches!(format, "parquet" | "mds") && layer != "X" {
            return Err(BindingError::NoLayers { format: format.to_owned(), layer: layer.to_owned() }.into());
        }
        check()?;
        if is_remote {
            reads_remote();
        }
        let (format, layer) = (format.to_owned(), layer.to_owned());
        let open = move |stop: &AtomicBool| -> Result<Arc<dyn ArrayStore>, OpenError> {
            let store = open_store(&files, &format, &layer, join)?;
            if memory && store.resident().is_none() {
                return Ok(Arc::new(MemoryStore::read_unless(Box::new(store), threads, free_memory(), stop)?));
            }
            Ok(Arc::new(store))
        };
        let store = interruptible(py, open)??;
        warnings::emit(py)?;
        GeneMap::new(store.genes(), &genes).map_err(cell_error)?;
        Ok(Self { store, genes })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.store.len()).unwrap_or(usize::MAX)
    }

    /// Names of the genes of a batch, in order.
    #[getter]
    fn var_names(&self) -> Vec<String> {
        if self.genes.is_empty() { self.store.genes().to_vec() } else { self.genes.clone() }
    }

    /// Number of genes of a batch.
    #[getter]
    fn n_vars(&self) -> usize {
        if self.genes.is_empty() { self.store.genes().len() } else { self.genes.len() }
    }

    /// Rows are stored as CSR, or held so in memory.
    #[getter]
    fn sparse(&self) -> bool {
        self.store.form() == Form::Sparse
    }

    /// Total size of the files in bytes.
    #[getter]
    fn stored_bytes(&self) -> u64 {
        self.store.stored_bytes()
    }

    /// All rows are in memory.
    #[getter]
    fn in_memory(&self) -> bool {
        self.store.resident().is_some()
    }

    /// Rows that are stored and decoded together.
    #[getter]
    fn run_rows(&self) -> u64 {
        self.store.run_rows()
    }

    /// Path of the file, and how many more there are.
    #[getter]
    fn name(&self) -> String {
        self.store.name()
    }

    /// Names of the columns of obs.
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let _running = Running::begin()?;
        py.detach(|| self.store.columns()).map_err(anndata_error)
    }

    /// Names of the rows; `None` if the files have none.
    fn row_names(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        let _running = Running::begin()?;
        py.detach(|| self.store.row_names()).map_err(anndata_error)
    }

    /// Read columns of obs: pairs of a name and `auto`, `class`, `float32`, `float64` or `int64`.
    fn select(&self, py: Python<'_>, columns: Vec<(String, String)>) -> PyResult<ObsColumns> {
        let _running = Running::begin()?;
        py.detach(|| ObsColumns::read(self.store.as_ref(), &columns))
    }
}

/// How remote files that are opened from now on are read: requests in flight, and a cache of `cache_mib` MiB in `folder`.
#[pyfunction]
#[pyo3(signature = (*, requests, folder, cache_mib))]
pub fn configure_remote(requests: usize, folder: PathBuf, cache_mib: u64) -> PyResult<()> {
    check()?;
    let cache = (cache_mib > 0).then_some(CacheOptions { folder, bytes: cache_mib << 20 });
    remote::configure(RemoteOptions { requests: requests.max(1), cache, retry: RetryPolicy::default() })
        .map_err(anndata_error)
}
