//! What ranks would refuse, found before they start.

use std::path::PathBuf;
use std::sync::Arc;

use anndata_io::{ArrayStore, CsrRows, DenseRows, Form, Labels, RowSelection, Rows};
use cell_loader::{CellBatcher, RowSampler, Sharding};
use expctl_settings::{Array, Sampler, Settings};

use super::open_as_configured;
use crate::{DatasetError, cell_batch_options, row_draw};

/// What ranks would refuse, and the setting that asks for it.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct Refusal {
    /// The key of the setting.
    pub key: &'static str,
    /// Why it cannot be.
    pub problem: Box<DatasetError>,
}

impl Refusal {
    fn of(key: &'static str) -> impl Fn(DatasetError) -> Self {
        move |problem| Self { key, problem: Box::new(problem) }
    }
}

/// Opens `files` (none of them remote), joins them on genes, reads the columns of obs that batches have and rows are drawn by, makes
/// the sampler and the collator, and reads the first row of each file: all that a rank does before its first step, on one thread.
/// Rows are not read into memory, so whether there is enough of it is not seen here.
///
/// # Errors
/// What the rank would end with.
pub fn rehearse(settings: &Settings, files: &[PathBuf]) -> Result<(), Refusal> {
    let (array, sampler) = (&settings.array, &settings.sampler);
    let from_files = Array { memory: false, ..array.clone() };
    let store = open_as_configured(&from_files, files, 1, u64::MAX).map_err(Refusal::of(Array::FILES.name()))?;
    let labels = Labels::from_store(store.as_ref(), &array.labels);
    let labels = labels.map_err(|problem| Refusal::of(Array::LABELS.name())(problem.into()))?;
    // Which rows a rank has is judged by the config's own rules.
    let whole = Sharding { seed: 0, rank: 0, world_size: 1, batch_size: 1, drop_last: false };
    let classes = array.labels.iter().position(|column| *column == sampler.by).and_then(|column| labels.get(column));
    let draw = row_draw(sampler).map_err(Refusal::of(Sampler::BY.name()))?;
    let rows = RowSampler::new(&draw, store.as_ref(), whole, classes).map_err(DatasetError::from);
    let rows = Arc::new(rows.map_err(Refusal::of(Sampler::BY.name()))?);
    CellBatcher::new(Arc::clone(&store), rows, &cell_batch_options(array), labels)
        .map_err(|problem| Refusal::of(Array::GENES.name())(problem.into()))?;
    read_first_rows(store.as_ref()).map_err(Refusal::of(Array::FILES.name()))
}

/// Read the first row of each file.
fn read_first_rows(store: &dyn ArrayStore) -> Result<(), DatasetError> {
    let mut first: Vec<u64> = store.starts();
    // A file without rows begins where the next one does.
    first.dedup();
    first.retain(|row| *row < store.len());
    let mut reader = store.reader()?;
    let mut rows = match store.form() {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows { columns: store.genes().len(), data: Vec::new() }),
    };
    for row in first {
        rows.clear();
        reader.fetch(&RowSelection::Rows(&[row]), &mut rows)?;
        reader.decode(&mut rows)?;
    }
    Ok(())
}
