//! What ranks would refuse, found before they start.

use std::path::PathBuf;
use std::sync::Arc;

use anndata_io::{ArrayStore, CsrRows, DenseRows, Form, Labels, RowSelection, Rows};
use cell_loader::{CellBatcher, Draw, RowSampler, Sharding};
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
/// All refusals are returned, where a rank would end with the first; none if it would begin its first step. Of files that cannot be opened
/// nothing else is known.
pub fn rehearse(settings: &Settings, files: &[PathBuf]) -> Vec<Refusal> {
    let (array, sampler) = (&settings.array, &settings.sampler);
    let from_files = Array { memory: false, ..array.clone() };
    let store = match open_as_configured(&from_files, files, 1, u64::MAX) {
        Ok(store) => store,
        Err(problem) => return vec![Refusal::of(Array::FILES.name())(problem)],
    };
    let mut refusals = Vec::new();
    let mut labels: Vec<Labels> = Vec::new();
    // Index in `labels` of the classes that rows are drawn by.
    let mut classes = None;
    for column in &array.labels {
        match store.labels(column) {
            Ok(found) => {
                if *column == sampler.by {
                    classes = Some(labels.len());
                }
                labels.push(found);
            }
            Err(problem) => refusals.push(Refusal::of(Array::LABELS.name())(problem.into())),
        }
    }
    // Which rows a rank has is judged by the config's own rules.
    let whole = Sharding { seed: 0, rank: 0, world_size: 1, batch_size: 1, drop_last: false };
    let rows = row_draw(sampler).and_then(|draw| {
        let classes = classes.and_then(|index| labels.get(index));
        RowSampler::new(&draw, store.as_ref(), whole, classes).map_err(DatasetError::from)
    });
    let rows = rows.or_else(|problem| {
        refusals.push(Refusal::of(Sampler::BY.name())(problem));
        // The collator does not depend on the order.
        RowSampler::new(&Draw::Uniform, store.as_ref(), whole, None)
    });
    if let Ok(rows) = rows {
        let batcher =
            CellBatcher::new(Arc::clone(&store), Arc::new(rows), &cell_batch_options(array), Arc::new(labels));
        refusals.extend(batcher.err().map(|problem| Refusal::of(Array::GENES.name())(problem.into())));
    }
    refusals.extend(read_first_rows(store.as_ref()).err().map(Refusal::of(Array::FILES.name())));
    refusals
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
