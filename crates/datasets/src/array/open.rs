//! `open` opens the files of a trial as one `ArrayStore`, from disks or from servers, and reads all rows into memory if the settings ask for it.

use std::path::PathBuf;
use std::sync::Arc;

use anndata_io::remote::{CacheOptions, RemoteOptions, RetryPolicy};
use anndata_io::{
    AnnDataError, ArrayStore, Collection, GeneJoin, MdsStore, MemoryStore, ParquetStore, ZarrStore, remote,
};
use expctl_ledger::RemoteCounts;
use expctl_settings::{Advice, Array, is_url};

use crate::{DatasetError, SettingError};

/// Open the rows of `files`, joined on genes. All genes are kept: a subset is taken when batches are made, so that sums are over
/// all genes. With [`Array::memory`] the rows are read into memory by `threads` threads; they may take `free` bytes (`u64::MAX` if
/// that is not known).
///
/// # Errors
/// A file cannot be opened; the folder of the cache for remote files cannot be used; the files do not fit together; a layer is
/// asked for where files have none; there is not enough memory.
pub fn open(
    settings: &Array,
    files: &[PathBuf],
    threads: usize,
    free: u64,
) -> Result<Arc<dyn ArrayStore>, DatasetError> {
    if files.iter().any(|file| file.to_str().is_some_and(is_url)) {
        remote::configure(remote_options(settings)).map_err(|problem| match problem {
            AnnDataError::Damaged { .. } => DatasetError::from(problem).and(Advice::OwnCache),
            other => other.into(),
        })?;
    }
    open_as_configured(settings, files, threads, free)
}

/// As [`open`], but remote files are read as [`remote::configure`] was told before.
///
/// # Errors
/// As [`open`].
pub fn open_as_configured(
    settings: &Array,
    files: &[PathBuf],
    threads: usize,
    free: u64,
) -> Result<Arc<dyn ArrayStore>, DatasetError> {
    let layer = settings.layer.as_str();
    let join = match settings.join {
        expctl_settings::GeneJoin::Inner => GeneJoin::Inner,
        expctl_settings::GeneJoin::Outer => GeneJoin::Outer,
    };
    let collection = match settings.format.extension() {
        other @ ("parquet" | "mds") if !layer.is_empty() => {
            let problem = SettingError::NoLayers { format: other, layer: layer.to_owned() };
            return Err(DatasetError::Setting { key: Array::LAYER.name(), problem });
        }
        "mds" => {
            let stores = MdsStore::open_all(files)?.into_iter();
            Collection::new(stores.map(|store| Box::new(store) as Box<dyn ArrayStore>).collect(), join, &[])?
        }
        "parquet" => {
            let stores = ParquetStore::open_all(files)?.into_iter();
            Collection::new(stores.map(|store| Box::new(store) as Box<dyn ArrayStore>).collect(), join, &[])?
        }
        "zarr" => {
            let stores = ZarrStore::open_all(files, layer)?.into_iter();
            Collection::new(stores.map(|store| Box::new(store) as Box<dyn ArrayStore>).collect(), join, &[])?
        }
        _ => Collection::open_h5ad(files, if layer.is_empty() { "X" } else { layer }, join, &[])?,
    };
    if settings.memory && collection.resident().is_none() {
        let store = MemoryStore::read(Box::new(collection), threads, free).map_err(|problem| match problem {
            AnnDataError::OutOfMemory { .. } => DatasetError::from(problem).and(Advice::ReadLess),
            other => other.into(),
        })?;
        return Ok(Arc::new(store));
    }
    Ok(Arc::new(collection))
}

/// Options of remote reads from `[array]`.
pub fn remote_options(settings: &Array) -> RemoteOptions {
    let cache = CacheOptions { folder: cache_folder(&settings.cache_dir), bytes: settings.cache_mib << 20 };
    RemoteOptions {
        requests: settings.requests.max(1) as usize,
        cache: (settings.cache_mib > 0).then_some(cache),
        retry: RetryPolicy::default(),
    }
}

/// Folder of the cache of remote files: the one that is `named`, `EXPCTL_CACHE_DIR`, or a folder of this user among the temporary files,
/// which on most clusters are on a disk of the node.
fn cache_folder(named: &str) -> PathBuf {
    if !named.is_empty() {
        return PathBuf::from(named);
    }
    match std::env::var_os("EXPCTL_CACHE_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => std::env::temp_dir().join(format!("expctl-cache-{}", nix::unistd::geteuid())),
    }
}

/// Requests and bytes of this process for remote files since [`open`]; all 0 before.
pub fn remote_counts() -> RemoteCounts {
    let remote::RemoteCounts { requests, retries, remote_bytes, cache_bytes, hits, misses, not_kept } =
        remote::remote_counts();
    RemoteCounts { requests, retries, remote_bytes, cache_bytes, hits, misses, not_kept }
}
