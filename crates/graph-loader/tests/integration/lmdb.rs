//! The reader of LMDB files: liblmdb writes, liblmdb reads beside it, and damage is found.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::FileExt;
use std::path::Path;

use graph_loader::{GraphError, LmdbStore};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use proptest::prelude::*;
use tempfile::TempDir;

fn environment(folder: &Path) -> (Env, Database<'static, Bytes, Bytes>) {
    let mut options = EnvOpenOptions::new();
    options.map_size(1 << 30).max_dbs(2);
    // SAFETY: nobody else has this file open, and no machine that fails is to find it whole.
    let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(folder) }.unwrap();
    let txn = env.write_txn().unwrap();
    let created = env.create_databases_and_commit(txn, |opener, txn| {
        let database = opener.create_database::<Bytes, Bytes>(txn, None)?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
    });
    let CommitOrAbort::Commit(database) = created.unwrap() else { unreachable!() };
    (env, database)
}

/// Write records in the order given, in transactions of 100.
fn write(folder: &Path, records: &[(&[u8], &[u8])]) {
    let (env, database) = environment(folder);
    for records in records.chunks(100) {
        let mut txn = env.write_txn().unwrap();
        for (key, value) in records {
            database.put(&mut txn, key, value).unwrap();
        }
        txn.commit().unwrap();
    }
    env.prepare_for_closing().wait();
}

/// A store with these values under 0, 1, 2, …, written in a mixed order.
fn store(values: &[Vec<u8>]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..values.len()).map(|i| i.to_string()).collect();
    let mut records: Vec<(&[u8], &[u8])> =
        keys.iter().zip(values).map(|(key, value)| (key.as_bytes(), value.as_slice())).collect();
    records.sort_by_key(|(key, _)| key.iter().rev().copied().collect::<Vec<u8>>());
    write(folder.path(), &records);
    folder
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + seed * 17 + i / 251) as u8).collect()
}

/// Open and read everything.
fn read_all(folder: &Path) -> Result<Vec<Vec<u8>>, GraphError> {
    let store = LmdbStore::open(folder)?;
    let mut reader = store.reader()?;
    (0..store.len())
        .map(|index| {
            let mut out = b"kept".to_vec();
            let n = reader.read(index, &mut out)?;
            assert!(out.starts_with(b"kept") && out.len() == n + 4);
            Ok(out.split_off(4))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_store_reads_as_liblmdb_reads_it(
        lengths in prop_oneof![
            prop::collection::vec(prop_oneof![0..64usize, 1900..2200usize, 3900..4300usize, 0..20_000usize], 0..60),
            prop::collection::vec(0..300usize, 0..2000),
        ],
        overwritten in prop::collection::vec((any::<prop::sample::Index>(), 0..20_000usize), 0..20),
    ) {
        let mut values: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, n)| bytes(*n, i)).collect();
        let folder = store(&values);
        if !values.is_empty() {
            // A used file: freed pages are used again, values move.
            let (env, database) = environment(folder.path());
            for (at, length) in overwritten {
                let i = at.index(values.len());
                values[i] = bytes(length, i + 1);
                let mut txn = env.write_txn().unwrap();
                database.delete(&mut txn, i.to_string().as_bytes()).unwrap();
                txn.commit().unwrap();
                let mut txn = env.write_txn().unwrap();
                database.put(&mut txn, i.to_string().as_bytes(), &values[i]).unwrap();
                txn.commit().unwrap();
            }
            env.prepare_for_closing().wait();
        }
        prop_assert_eq!(&read_all(folder.path()).unwrap(), &values);
        // And liblmdb says the same.
        let (env, database) = environment(folder.path());
        let txn = env.read_txn().unwrap();
        for (i, value) in values.iter().enumerate() {
            prop_assert_eq!(database.get(&txn, i.to_string().as_bytes()).unwrap(), Some(value.as_slice()));
        }
        prop_assert_eq!(database.len(&txn).unwrap(), values.len() as u64);
    }
}

/// A real file of a few hundred pages with three levels, inline values and values in pages of their own.
fn example() -> (TempDir, Vec<u8>) {
    let lengths = (0..400).map(|i| if i % 7 == 0 { 3000 + i * 20 } else { 900 + i });
    let values: Vec<Vec<u8>> = lengths.enumerate().map(|(i, n)| bytes(n, i)).collect();
    let folder = store(&values);
    let file = std::fs::read(folder.path().join("data.mdb")).unwrap();
    (folder, file)
}

#[test]
fn damage_gives_an_error_or_bytes_and_nothing_else() {
    let (folder, good) = example();
    let path = folder.path().join("data.mdb");
    let mut random = 12345u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) % n as u64) as usize
    };
    let (mut refused, mut total) = (0, 0);
    let mut bad = good.clone();
    for case in 0..2000 {
        bad.clear();
        bad.extend_from_slice(&good);
        // Headers of pages matter most, then the node pointers behind them, then anything.
        for _ in 0..=below(4) {
            let page = below(good.len() / 4096) * 4096;
            let at = match case % 4 {
                0 => page + below(16),
                1 => page + below(64),
                2 => below(160) + 4096 * below(2),
                _ => below(good.len()),
            };
            bad[at] = if below(2) == 0 { bad[at] ^ (1 << below(8)) } else { below(256) as u8 };
        }
        if case % 10 == 0 {
            bad.truncate(below(good.len()));
        }
        std::fs::write(&path, &bad).unwrap();
        total += 1;
        match read_all(folder.path()) {
            Err(_) => refused += 1,
            // No two values overlap, so what is read is never more than there is.
            Ok(values) => assert!(values.iter().map(Vec::len).sum::<usize>() <= good.len()),
        }
    }
    assert!(refused > total / 4, "{refused} of {total} were refused");
    std::fs::write(&path, &good).unwrap();
    assert_eq!(read_all(folder.path()).unwrap().len(), 400);
}

#[test]
fn other_files_and_other_keys_are_refused_by_name() {
    let refused = |records: &[(&[u8], &[u8])]| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), records);
        LmdbStore::open(folder.path()).err().unwrap().to_string()
    };
    assert!(refused(&[(b"0", b"x"), (b"2", b"y")]).ends_with("there is key 2, but no key 1"));
    assert!(refused(&[(b"1", b"x")]).ends_with("there is key 1, but no key 0"));
    for key in [&b"length"[..], b"01", b"-1", b"1.0", b"99999999999999999999999", b"\xff"] {
        let error = refused(&[(b"0", b"x"), (key, b"y")]);
        assert!(error.ends_with(&format!("key `{}` is no decimal number", key.escape_ascii())), "{error}");
    }

    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(LmdbStore::open(folder.path()), Err(GraphError::NoStore { .. })));
    let path = folder.path().join("data.mdb");
    for (content, word) in [(vec![], "meta page 0"), (vec![7; 9000], "no LMDB file")] {
        std::fs::write(&path, content).unwrap();
        let error = LmdbStore::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains(word) && error.contains(folder.path().to_str().unwrap()), "{error}");
    }
    let (folder, good) = example();
    // In both meta pages: the version; the flags of the main tree (sorted duplicates).
    for (at, byte, word) in [(20, 2, "LMDB format 2"), (16 + 24 + 48 + 4, 4, "flags 0x4")] {
        let mut bad = good.clone();
        (bad[at], bad[at + 4096]) = (byte, byte);
        std::fs::write(folder.path().join("data.mdb"), bad).unwrap();
        let error = LmdbStore::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }

    let folder = tempfile::tempdir().unwrap();
    let (env, _) = environment(folder.path());
    let txn = env.write_txn().unwrap();
    env.create_databases_and_commit(txn, |opener, txn| {
        opener.create_database::<Bytes, Bytes>(txn, Some("named"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(()))
    })
    .unwrap();
    env.prepare_for_closing().wait();
    let error = LmdbStore::open(folder.path()).err().unwrap().to_string();
    assert!(error.contains("key `named`"), "{error}");
}

#[test]
fn a_store_that_changes_while_it_is_read_is_an_error() {
    let until_error = |change: &dyn Fn(&Path)| {
        let (folder, _) = example();
        let store = LmdbStore::open(folder.path()).unwrap();
        let mut reader = store.reader().unwrap();
        let mut out = Vec::new();
        reader.read(399, &mut out).unwrap();
        change(&folder.path().join("data.mdb"));
        let error = (0..200).find_map(|index| {
            out.clear();
            reader.read(index, &mut out).err()
        });
        let error = error.or_else(|| reader.unchanged().err());
        assert!(store.reader().is_err());
        error.unwrap().to_string()
    };
    let cut = |path: &Path| std::fs::File::options().write(true).open(path).unwrap().set_len(3 * 4096).unwrap();
    let replaced = |path: &Path| {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).unwrap();
        std::fs::rename(&copy, path).unwrap();
    };
    let overwritten = |path: &Path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(b"x", 50 * 4096 + 100).unwrap();
    };
    let committed = |path: &Path| write(path.parent().unwrap(), &[(b"5", b"other")]);
    let removed = |path: &Path| std::fs::remove_file(path).unwrap();
    let changes: [&dyn Fn(&Path); 5] = [&cut, &replaced, &overwritten, &committed, &removed];
    for change in changes {
        let error = until_error(change);
        assert!(error.starts_with("store ") && error.ends_with(" was rewritten while it was read"), "{error}");
    }
}

#[test]
fn a_store_that_cannot_be_looked_at_is_not_called_rewritten() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, _) = example();
    let path = parent.path().join("store");
    std::fs::rename(folder.path(), &path).unwrap();
    let store = LmdbStore::open(&path).unwrap();
    let reader = store.reader().unwrap();
    reader.unchanged().unwrap();
    // A link to itself stands for a file system that fails.
    std::fs::rename(&path, parent.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let error = reader.unchanged().unwrap_err();
    assert!(matches!(&error, GraphError::Io { path: of, .. } if *of == path.join("data.mdb")), "{error}");
}
