use expctl_datasets::graph::{Dataset, selected_count};
use expctl_record::{DataRead, FileSize, RecordError, Settings, StoreKind};

/// What this attempt reads with these settings: `selected` of the `records` of a store, in batches of together at most
/// `buffer_bytes`.
///
/// # Errors
/// The store's file cannot be looked at.
pub fn data_read(
    dataset: &Dataset,
    settings: &Settings,
    records: u64,
    selected: u64,
    buffer_bytes: u64,
) -> Result<DataRead, RecordError> {
    let base = dataset.store_file(StoreKind::Json);
    let store = settings.pipeline.store;
    Ok(DataRead {
        store: Some(store),
        records,
        selected,
        asked: selected_count(&settings.select),
        buffer_bytes,
        size: FileSize::from_path(&dataset.store_file(store))?,
        // A data set may have been moved here without it.
        base_size: if base.is_file() { Some(FileSize::from_path(&base)?) } else { None },
        array: None,
    })
}
