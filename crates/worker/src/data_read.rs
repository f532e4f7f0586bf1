use std::path::{Path, PathBuf};

use expctl_pipeline::dataset::Dataset;
use expctl_record::{AttemptDir, DataRead, FileSize, RecordError, StoreKind, write_json};

/// Write `data.json`: what this attempt reads, `selected` of the `records` of the store of kind `store`.
///
/// # Errors
/// The store's file cannot be looked at, or the record not written.
pub fn write_data_read(
    attempt: &AttemptDir,
    dataset: &Dataset,
    store: StoreKind,
    records: u64,
    selected: u64,
) -> Result<(), RecordError> {
    let base = store_file(dataset.folder(), StoreKind::Json);
    let data = DataRead {
        store,
        records,
        selected,
        size: FileSize::of(&store_file(dataset.folder(), store))?,
        // A data set may have been moved here without it.
        base_size: if base.is_file() { Some(FileSize::of(&base)?) } else { None },
    };
    write_json(&attempt.data_path(), &data)
}

/// The file that a store's records lie in, in the data set at `folder`.
fn store_file(folder: &Path, store: StoreKind) -> PathBuf {
    let lmdb = match store {
        StoreKind::Json => folder.join("processed/lmdb"),
        other => folder.join("stores").join(other.name()).join("lmdb"),
    };
    lmdb.join("data.mdb")
}
