//! LMDB: our page reader against liblmdb through heed, on stores of small records and of records in overflow pages.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use graph_loader::LmdbStore;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use host_metrics::drop_from_page_cache;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::files::{LARGE_RECORDS, SMALL_RECORDS};
use crate::harness::{Case, Check, Clock, Context, Failure, Hash, Outcome, Pass, RunPass};

/// Records of a batch: they lie one after another in its buffer.
const BATCH: usize = 64;

/// A store, and how many random records are read in a pass: warm, cold.
struct Store {
    name: &'static str,
    records: u64,
    warm: u64,
    cold: u64,
}

const SMALL: Store = Store { name: "small.lmdb", records: SMALL_RECORDS.0, warm: 50_000, cold: 2_000 };
const LARGE: Store = Store { name: "large.lmdb", records: LARGE_RECORDS.0, warm: 5_000, cold: 500 };

pub fn cases() -> Vec<Case> {
    let warm = |name, store: &'static Store| {
        Case::new("lmdb", name, "records/s")
            .side("ours", move |context| ours(store, context, false))
            .side("heed", move |context| theirs(store, context, EnvFlags::empty(), false))
    };
    let cold = |name, store: &'static Store| {
        Case::new("lmdb", name, "records/s")
            .once()
            .side("ours", move |context| ours(store, context, true))
            .side("heed", move |context| theirs(store, context, EnvFlags::empty(), true))
            .side("heed, NO_READ_AHEAD", move |context| theirs(store, context, EnvFlags::NO_READ_AHEAD, true))
    };
    let opened = |name, store: &'static Store, is_cold| {
        Case::new("lmdb", name, "stores/s")
            .once()
            .side("ours", move |context| open(store, context, is_cold, |path| Ok(LmdbStore::open(path)?.len())))
            .side("heed", move |context| {
                open(store, context, is_cold, |path| {
                    let (env, database) = environment(path, EnvFlags::empty())?;
                    let txn = env.read_txn()?;
                    Ok(database.len(&txn)?)
                })
            })
    };
    vec![
        warm("records of 400 B, warm", &SMALL),
        warm("records of 30 kB, warm", &LARGE),
        cold("records of 400 B, cold", &SMALL),
        cold("records of 30 kB, cold", &LARGE),
        opened("open 100,000 records, warm", &SMALL, false),
        opened("open 100,000 records, cold", &SMALL, true),
    ]
}

/// The records of a pass, batch by batch.
fn batches(store: &Store, context: &Context, is_cold: bool) -> Vec<Vec<u64>> {
    let (records, count) =
        (context.scaled(store.records), context.scaled(if is_cold { store.cold } else { store.warm }));
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let all: Vec<u64> = (0..count).map(|_| random.random_range(0..records)).collect();
    all.chunks(BATCH).map(<[u64]>::to_vec).collect()
}

/// Writes dirty pages first: they cannot be dropped.
fn make_cold(folder: &Path) -> Outcome<()> {
    let file = folder.join("data.mdb");
    std::fs::File::open(&file)?.sync_all()?;
    drop_from_page_cache([file.as_path()])?;
    Ok(())
}

fn passes(
    batches: Vec<Vec<u64>>,
    mut read: impl FnMut(&[u64], &mut Vec<u8>) -> Outcome<()> + 'static,
) -> Outcome<RunPass> {
    let mut out = Vec::new();
    Ok(Box::new(move |check| {
        let (mut clock, mut hash, mut units) = (Clock::default(), Hash::default(), 0);
        for batch in &batches {
            out.clear();
            clock.time(|| read(batch, &mut out))?;
            units += batch.len() as u64;
            if check {
                hash.bytes(&out);
            }
        }
        Ok(Pass { units, time: clock.0, check: Check::Same(hash.0) })
    }))
}

fn ours(store: &Store, context: &Context, is_cold: bool) -> Outcome<RunPass> {
    // Lives as long as the process.
    let opened: &'static LmdbStore = Box::leak(Box::new(LmdbStore::open(&context.folder.join(store.name))?));
    let mut reader = opened.reader()?;
    if is_cold {
        // After the walk over the tree that opening is.
        make_cold(opened.path())?;
    }
    passes(batches(store, context, is_cold), move |batch, out| {
        for record in batch {
            reader.read(*record, out)?;
        }
        // Once a batch, as the loader does.
        Ok(reader.unchanged()?)
    })
}

/// Opens a store for reading. Without the lock file, which needs a folder that may be written to.
fn environment(folder: &Path, flags: EnvFlags) -> Outcome<(&'static Env, Database<'static, Bytes, Bytes>)> {
    let size = std::fs::metadata(folder.join("data.mdb"))?.len();
    let mut options = EnvOpenOptions::new();
    options.map_size(size.next_multiple_of(1 << 20) as usize);
    // SAFETY: nobody writes to the store, and this process opens it once.
    let env = unsafe { options.flags(EnvFlags::READ_ONLY | EnvFlags::NO_LOCK | flags).open(folder)? };
    // Lives as long as the process.
    let env: &'static Env = Box::leak(Box::new(env));
    let txn = env.read_txn()?;
    let opened = env.open_databases_and_commit(txn, |opener, txn| {
        let database = opener.open_database::<Bytes, Bytes>(txn, None)?.ok_or("no database")?;
        Ok::<_, Failure>(CommitOrAbort::<_, ()>::Commit(database))
    })?;
    match opened {
        CommitOrAbort::Commit(database) => Ok((env, database)),
        CommitOrAbort::Abort(()) => Err("the database was not opened".into()),
    }
}

fn theirs(store: &Store, context: &Context, flags: EnvFlags, is_cold: bool) -> Outcome<RunPass> {
    if is_cold {
        // Before the file is mapped: mapped pages are not dropped.
        make_cold(&context.folder.join(store.name))?;
    }
    let (env, database) = environment(&context.folder.join(store.name), flags)?;
    // One transaction for all: a snapshot of a store that does not change.
    let txn = env.read_txn()?;
    passes(batches(store, context, is_cold), {
        let mut key = Vec::new();
        move |batch, out| {
            for record in batch {
                key.clear();
                write!(key, "{record}")?;
                out.extend_from_slice(database.get(&txn, &key)?.ok_or("a record is missing")?);
            }
            Ok(())
        }
    })
}

fn open(
    store: &Store,
    context: &Context,
    is_cold: bool,
    open: impl Fn(&Path) -> Outcome<u64> + 'static,
) -> Outcome<RunPass> {
    let folder = context.folder.join(store.name);
    if is_cold {
        make_cold(&folder)?;
    }
    Ok(Box::new(move |_| {
        let begin = Instant::now();
        let records = open(&folder)?;
        Ok(Pass { units: 1, time: begin.elapsed(), check: Check::Same(records) })
    }))
}
