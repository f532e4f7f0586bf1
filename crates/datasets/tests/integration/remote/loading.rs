use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cell_loader::{CellBatchOptions, CellBatcher, CellValues, RowSampler, Sharding};
use expctl_datasets::row_draw;
use expctl_settings::{ArrayFormat, Draw, Sampler};
use loader_core::{Loader, LoaderOptions};

use super::server::Fault;
use super::{impatient, open, world};

/// Batches of three epochs.
fn batches(format: ArrayFormat, files: &[PathBuf], draw: Draw, requests: usize) -> Vec<(Vec<u64>, CellValues)> {
    let store = open(format, files, impatient(requests, None)).unwrap();
    let sharding = Sharding { seed: 3, rank: 0, world_size: 1, batch_size: 32, drop_last: false };
    let settings = Sampler { draw, chunk_rows: 48, chunks: 6, ..Sampler::default() };
    let sampler = Arc::new(RowSampler::new(&row_draw(&settings).unwrap(), &*store, sharding, None).unwrap());
    let steps = 3 * sampler.batches_per_epoch();
    let batcher = CellBatcher::new(store, sampler, &CellBatchOptions::default(), Arc::default()).unwrap();
    let options = LoaderOptions { workers: 2, steps, ..LoaderOptions::default() };
    let mut loader = Loader::start(batcher, options).unwrap();
    let mut all = Vec::new();
    while let Some(loaded) = loader.next_batch() {
        let loaded = loaded.unwrap();
        all.push((loaded.batch.rows.clone(), loaded.batch.values.clone()));
        loader.recycle(loaded.batch);
    }
    all
}

#[test]
fn batches_are_the_same_and_chunks_are_asked_for_ahead() {
    let world = world();
    for format in [ArrayFormat::H5ad, ArrayFormat::H5adGzip, ArrayFormat::ParquetSparse, ArrayFormat::H5adDense] {
        let bucket = world.bucket(&format!("loading-{}", format.name().replace('_', "-")), format);
        *bucket.faults.latency.lock().unwrap() = Duration::from_millis(5);
        *bucket.faults.every.lock().unwrap() = (11, vec![Fault::Status(503), Fault::Reset, Fault::Short]);
        let urls = world.urls(format, |name| bucket.http(name));
        for draw in [Draw::Chunked, Draw::Uniform, Draw::Sequential] {
            let local = batches(format, &world.files(format), draw, 12);
            bucket.faults.most.store(0, Ordering::SeqCst);
            assert!(batches(format, &urls, draw, 12) == local, "{} {draw:?}", format.name());
            let most = bucket.faults.most.load(Ordering::SeqCst);
            // Two threads alone would have 4 under way: indices and values of a part each.
            let ahead = draw == Draw::Chunked && format == ArrayFormat::H5ad;
            assert!(most <= 12 && (!ahead || most > 4), "{} {draw:?}: {most}", format.name());
        }
    }
}
