// Mini-batches for training: all cells once in random order; cells drawn by weight; cell types in equal parts.
use std::{error::Error, path::Path, sync::Arc};

use anndata_io::{ArrayStore, H5adStore, Labels};
use cell_loader::{CellBatchOptions, CellBatcher, Draw, Loader, LoaderOptions, RowSampler, Sharding};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: cell_batches FILE.h5ad")?;
    let store: Arc<dyn ArrayStore> = Arc::new(H5adStore::open(Path::new(&path), "raw")?);
    let labels = Labels::from_store(store.as_ref(), &["bulk_labels".to_owned()])?;
    let weighted = Draw::Weighted { column: "n_counts".to_owned(), rows: 7000 };
    let balanced = Draw::Balanced { column: "bulk_labels".to_owned(), rows: 7000 };
    for (name, draw) in [("shuffled", Draw::Uniform), ("weighted", weighted), ("balanced", balanced)] {
        let sharding = Sharding { seed: 1, rank: 0, world_size: 1, batch_size: 64, drop_last: false };
        let sampler = Arc::new(RowSampler::new(&draw, store.as_ref(), sharding, None)?);
        let steps = sampler.batches_per_epoch();
        let batcher = CellBatcher::new(store.clone(), sampler, &CellBatchOptions::default(), labels.clone())?;
        let mut loader = Loader::start(batcher, LoaderOptions { workers: 2, steps, ..LoaderOptions::default() })?;
        let mut cells = vec![0; labels[0].categories.len()];
        while let Some(loaded) = loader.next_batch() {
            let batch = loaded?.batch; // batch.values: float32 [64, genes]; batch.labels[0]: the cell type of each row.
            batch.labels[0].iter().for_each(|kind| cells[*kind as usize] += 1);
            loader.recycle(batch);
        }
        println!("{name}: {steps} batches, cells of each type {cells:?}");
    }
    Ok(())
}
