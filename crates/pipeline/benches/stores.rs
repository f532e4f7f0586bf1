//! What a record costs: reading it, decoding it, and the whole loader, from each kind of store.
//!
//! Makes its data set (10,000 samples, scale 1, completed networks) and stores under `$EXPCTL_CACHE/bench` if they are not
//! there; the stores of whole masks from 500 samples, because 10,000 are 26 GB.

#![expect(clippy::unwrap_used, reason = "a benchmark")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use expctl_pipeline::collate::Assembler;
use expctl_pipeline::dataset::{Conversion, Dataset, Recipe, build};
use expctl_pipeline::graph::CellGraph;
use expctl_pipeline::loader::{BatchBuilder, DatasetRecords, Loader, LoaderOptions, Records};
use expctl_pipeline::sampler::{DistributedSampler, Schedule};
use expctl_pipeline::store::{LmdbStore, Sample};
use expctl_record::{Data, Networks, Pipeline, Processor, StoreKind};
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions};

const WHOLE_MASKS: u64 = 500;
const SAMPLES: u64 = 10_000;

fn dataset(samples: u64) -> Dataset {
    let cache = std::env::var_os("EXPCTL_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| std::env::home_dir().unwrap().join(".cache/expctl"));
    let recipe = Recipe::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/006-kuzmin-tmi")).unwrap();
    let data = Data { set: "006-kuzmin-tmi".to_owned(), samples, scale: 1.0, networks: Networks::Completed, seed: 42 };
    let folder = cache.join("bench").join(data.folder_name());
    std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
    build(&recipe, &data, &folder, &mut |_| ControlFlow::Continue(())).unwrap();
    Dataset::open(&folder).unwrap()
}

fn converted(kind: StoreKind) -> Dataset {
    let whole = matches!(kind, StoreKind::FullMasks | StoreKind::PackedMasks);
    let dataset = dataset(if whole { WHOLE_MASKS } else { SAMPLES });
    if kind != StoreKind::Json {
        Conversion::new(&dataset, kind).unwrap().run(2, &mut |_| ControlFlow::Continue(())).unwrap();
    }
    dataset
}

fn store_folder(dataset: &Dataset, kind: StoreKind) -> PathBuf {
    match kind {
        StoreKind::Json => dataset.folder().join("processed/lmdb"),
        kind => dataset.store_folder(kind).join("lmdb"),
    }
}

fn settings(dataset: &Dataset, kind: StoreKind) -> Pipeline {
    let networks = dataset.manifest().networks.iter().map(|network| network.name.clone()).collect();
    let processor = if kind == StoreKind::Ids { Processor::Ids } else { Processor::Lazy };
    Pipeline { store: kind, metabolism: true, ..Pipeline::new(processor, networks) }
}

/// `0..n` in an order without pattern, the same each time.
fn mixed(n: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |i: u64| i.wrapping_mul(7_919) % n)
}

/// A record at a random place, from the page cache: this reader beside liblmdb.
fn read(c: &mut Criterion) {
    for kind in [StoreKind::Json, StoreKind::Ids] {
        let dataset = converted(kind);
        let folder = store_folder(&dataset, kind);
        let mut group = c.benchmark_group(format!("read/{}", kind.name()));
        group.throughput(Throughput::Elements(1));
        let store = LmdbStore::open(&folder).unwrap();
        let (mut reader, mut bytes) = (store.reader().unwrap(), Vec::new());
        let mut order = mixed(store.len());
        group.bench_function("own", |b| {
            b.iter(|| {
                bytes.clear();
                reader.read(order.next().unwrap(), &mut bytes).unwrap()
            });
        });

        let mut options = EnvOpenOptions::new();
        // SAFETY: nobody writes to it.
        let env = unsafe {
            options.flags(EnvFlags::READ_ONLY | EnvFlags::NO_LOCK | EnvFlags::NO_READ_AHEAD).open(&folder).unwrap()
        };
        let txn = env.read_txn().unwrap();
        let opened = env.open_databases_and_commit(txn, |opener, txn| {
            let database = opener.open_database::<Bytes, Bytes>(txn, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
        });
        let CommitOrAbort::Commit(Some(database)) = opened.unwrap() else { unreachable!() };
        let txn = env.read_txn().unwrap();
        group.bench_function("liblmdb", |b| {
            b.iter(|| {
                bytes.clear();
                let key = order.next().unwrap().to_string();
                bytes.extend_from_slice(database.get(&txn, key.as_bytes()).unwrap().unwrap());
            });
        });
        group.finish();
    }
}

/// Bytes to sample, with all networks and the metabolism.
fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    for kind in StoreKind::ALL {
        let dataset = converted(kind);
        let records = DatasetRecords::open(&dataset, &settings(&dataset, kind)).unwrap();
        let n = records.len().min(200);
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        let mut reader = records.reader().unwrap();
        for index in mixed(records.len()).take(n as usize) {
            reader.read(index, &mut bytes).unwrap();
            ends.push(bytes.len());
        }
        let (mut sample, mut at) = (Sample::default(), 0);
        group.bench_function(kind.name(), |b| {
            b.iter(|| {
                at = (at + 1) % n as usize;
                records.decode(at as u64, &bytes, ends[at]..ends[at + 1], &mut sample).unwrap();
            });
        });
    }
    group.finish();
}

/// Samples through the loader: shuffled, batches of 64, two threads, ids alone.
fn loader(c: &mut Criterion) {
    let mut group = c.benchmark_group("loader");
    group.throughput(Throughput::Elements(64)).sample_size(20);
    for kind in [StoreKind::Ids, StoreKind::Json] {
        let dataset = converted(kind);
        let settings = Pipeline { store: kind, ..Pipeline::new(Processor::Ids, Vec::new()) };
        let records = Arc::new(DatasetRecords::open(&dataset, &settings).unwrap());
        let graph = Arc::new(CellGraph { genes: dataset.genes().unwrap(), edge_types: Vec::new(), metabolism: None });
        let len = records.len();
        group.bench_function(kind.name(), |b| {
            b.iter_custom(|steps| {
                let sampler =
                    DistributedSampler { len, world_size: 1, rank: 0, shuffle: true, seed: 1, drop_last: true };
                let schedule = Arc::new(Schedule::new(sampler, 64).unwrap());
                let assembler = Assembler::new(&settings, Arc::clone(&graph)).unwrap();
                let builder = BatchBuilder::new(Arc::<DatasetRecords>::clone(&records), schedule, assembler);
                let options =
                    LoaderOptions { workers: 2, prefetch_factor: 4, first: 0, steps: steps + 16, buffer_bytes: 0 };
                let mut loader = Loader::start(builder, options).unwrap();
                let mut next = || {
                    let loaded = loader.next_batch().unwrap().unwrap();
                    loader.recycle(loaded.batch);
                };
                (0..16).for_each(|_| next());
                let started = Instant::now();
                (0..steps).for_each(|_| next());
                started.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, read, decode, loader);
criterion_main!(benches);
