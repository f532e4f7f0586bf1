use std::path::PathBuf;
use std::sync::Arc;

use expctl_record::Array;

use super::remote::{self, RemoteOptions};
use super::source::url_of;
use super::{ArrayStore, Collection, MdsStore, MemoryStore, ParquetStore, ZarrStore};
use crate::PipelineError;

/// The rows of `files` as `settings` say: joined on genes, all of them (a subset is taken when batches are made, so that sums
/// are over all genes), and read into memory by `threads` threads where they are to be, which
/// may take `free` bytes (`u64::MAX` where that is not known).
///
/// # Errors
/// A file cannot be opened; the folder of the cache for remote ones is of no use; they do not fit together; a layer is asked for where files have none; there is not enough memory.
pub fn open(
    settings: &Array,
    files: &[PathBuf],
    threads: usize,
    free: u64,
) -> Result<Arc<dyn ArrayStore>, PipelineError> {
    if files.iter().any(|file| url_of(file).is_some()) {
        remote::configure(RemoteOptions::of(settings))?;
    }
    open_as_configured(settings, files, threads, free)
}

/// The same, where [`remote::configure`] has said how remote files are read.
///
/// # Errors
/// As [`open`].
pub fn open_as_configured(
    settings: &Array,
    files: &[PathBuf],
    threads: usize,
    free: u64,
) -> Result<Arc<dyn ArrayStore>, PipelineError> {
    let layer = settings.layer.as_str();
    let collection = match settings.format.extension() {
        other @ ("parquet" | "mds") if !layer.is_empty() => {
            return Err(PipelineError::Invalid(format!("{other} files have no layers: array.layer = \"{layer}\"")));
        }
        "mds" => {
            let stores = MdsStore::open_all(files)?.into_iter();
            Collection::new(stores.map(|store| Box::new(store) as Box<dyn ArrayStore>).collect(), settings.join, &[])?
        }
        "parquet" => {
            let stores = ParquetStore::open_all(files)?.into_iter();
            Collection::new(stores.map(|store| Box::new(store) as Box<dyn ArrayStore>).collect(), settings.join, &[])?
        }
        "zarr" => {
            let stores = ZarrStore::open_all(files, layer)?.into_iter();
            Collection::new(stores.map(|store| Box::new(store) as Box<dyn ArrayStore>).collect(), settings.join, &[])?
        }
        _ => Collection::open_h5ad(files, if layer.is_empty() { "X" } else { layer }, settings.join, &[])?,
    };
    if settings.memory && collection.resident().is_none() {
        return Ok(Arc::new(MemoryStore::read(Box::new(collection), threads, free)?));
    }
    Ok(Arc::new(collection))
}
