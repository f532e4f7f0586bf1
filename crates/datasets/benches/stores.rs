//! What a record costs: reading it (beside liblmdb, in turns), decoding it, and the whole loader, from each kind of store.
//!
//! Makes its data set (10,000 samples, scale 1, completed networks) and stores under `$EXPCTL_CACHE/bench` if they are not
//! there; the stores of whole masks from 500 samples, because 10,000 are 26 GB.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

mod common;

use std::cell::RefCell;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group};
use expctl_datasets::graph::{Conversion, Dataset, DatasetRecords};
use expctl_datasets::graph_batch_options;
use expctl_settings::{Pipeline, Processor, StoreKind};
use graph_loader::{Assembler, CellGraph, DistributedSampler, GraphBatcher, LmdbStore, Records, Sample, Schedule};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use loader_core::{Loader, LoaderOptions};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

const WHOLE_MASKS: u64 = 500;
fn converted(kind: StoreKind) -> Dataset {
    let whole = matches!(kind, StoreKind::FullMasks | StoreKind::PackedMasks);
    let dataset = common::dataset(if whole { WHOLE_MASKS } else { common::SAMPLES });
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

/// liblmdb as the published loader opens it, copying each value out of its mapping as py-lmdb does.
struct Liblmdb {
    env: Env,
    database: Database<'static, Bytes, Bytes>,
}

impl Liblmdb {
    fn open(folder: &Path) -> Self {
        let mut options = EnvOpenOptions::new();
        let flags = EnvFlags::READ_ONLY | EnvFlags::NO_LOCK | EnvFlags::NO_READ_AHEAD;
        // SAFETY: nobody writes to it.
        let env = unsafe { options.flags(flags).open(folder).unwrap() };
        let txn = env.read_txn().unwrap();
        let opened = env.open_databases_and_commit(txn, |opener, txn| {
            let database = opener.open_database::<Bytes, Bytes>(txn, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
        });
        let CommitOrAbort::Commit(Some(database)) = opened.unwrap() else { unreachable!() };
        Self { env, database }
    }

    fn read(&self, indices: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
        let txn = self.env.read_txn().unwrap();
        for index in indices {
            out.clear();
            out.extend_from_slice(self.database.get(&txn, index.to_string().as_bytes()).unwrap().unwrap());
        }
    }

    fn close(self) {
        self.env.prepare_for_closing().wait();
    }
}

/// Records at random places: this reader beside liblmdb, in turns, from the page cache and from the disk.
///
/// "From the disk" has the file's pages dropped from this machine's cache before each run (not those of a disk behind a
/// hypervisor). Pages that are mapped are not dropped, so liblmdb is closed for that and opened again, which is not timed.
fn read(_: &mut Criterion) {
    for kind in [StoreKind::Json, StoreKind::Ids, StoreKind::Compressed, StoreKind::FullMasks] {
        let dataset = converted(kind);
        let folder = store_folder(&dataset, kind);
        let store = LmdbStore::open(&folder).unwrap();
        let file = File::open(folder.join("data.mdb")).unwrap();
        // What was written just now would stay in the cache.
        file.sync_all().unwrap();
        let records = if kind == StoreKind::FullMasks { 20 } else { 1000 };
        let (mut reader, mut bytes, mut other_bytes) = (store.reader().unwrap(), Vec::new(), Vec::new());
        let (mut order, mut other_order) = (mixed(store.len()), mixed(store.len()));
        let size: usize = mixed(store.len())
            .take(records)
            .map(|index| {
                bytes.clear();
                reader.read(index, &mut bytes).unwrap()
            })
            .sum();
        let liblmdb = RefCell::new(Some(Liblmdb::open(&folder)));
        let mut floor = || {
            let open = liblmdb.borrow();
            open.as_ref().unwrap().read(other_order.by_ref().take(records), &mut other_bytes);
        };
        let mut subject = || {
            for index in order.by_ref().take(records) {
                bytes.clear();
                reader.read(index, &mut bytes).unwrap();
            }
        };
        let name = format!("read {records} records, {}", kind.name());
        common::against_floor(&format!("{name}, from the cache"), size, 201, &mut floor, &mut subject);
        let drop_pages = || {
            liblmdb.borrow_mut().take().unwrap().close();
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
            liblmdb.borrow_mut().replace(Liblmdb::open(&folder));
        };
        common::against_floor_after(&format!("{name}, from the disk"), size, 21, drop_pages, &mut floor, &mut subject);
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
                let assembler = Assembler::new(&graph_batch_options(&settings).unwrap(), Arc::clone(&graph)).unwrap();
                let builder = GraphBatcher::new(Arc::<DatasetRecords>::clone(&records), schedule, assembler);
                let options =
                    LoaderOptions { workers: 2, prefetch_factor: 4, steps: steps + 16, ..LoaderOptions::default() };
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
fn main() {
    benches();
    criterion::Criterion::default().configure_from_args().final_summary();
    common::write_record("stores");
}
