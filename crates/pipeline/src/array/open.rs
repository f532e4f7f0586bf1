use std::path::{Path, PathBuf};
use std::sync::Arc;

use expctl_record::Array;

use super::h5ad::H5adStore;
use super::{ArrayStore, Collection, MemoryStore};
use crate::PipelineError;

/// The rows of `files` as `settings` say: joined on genes, all of them (a subset is taken when batches are made, so that sums
/// are over all genes), and read into memory by `threads` threads where they are to be. What a file is follows from its
/// extension.
///
/// # Errors
/// A file cannot be opened or is of no known kind; they do not fit together; there is not enough memory.
pub fn open(settings: &Array, files: &[PathBuf], threads: usize) -> Result<Arc<dyn ArrayStore>, PipelineError> {
    let stores = files.iter().map(|file| open_one(file, &settings.layer)).collect::<Result<Vec<_>, _>>()?;
    let collection = Collection::new(stores, settings.join, &[])?;
    if settings.memory {
        return Ok(Arc::new(MemoryStore::read(Box::new(collection), threads)?));
    }
    Ok(Arc::new(collection))
}
