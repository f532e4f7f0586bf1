//! What is damaged is an error that says so.

use std::path::Path;

use anndata_io::AnnDataError;
use anndata_io::{ArrayStore, MdsCompression, MdsStore, RowSelection};
use serde_json::{Value, json};

use super::{empty, written};

/// Everything that there is to read.
fn all(path: &Path) -> Result<(), AnnDataError> {
    let store = MdsStore::open(path)?;
    let (mut reader, mut rows) = (store.reader()?, empty(&store));
    reader.fetch(&RowSelection::Range(0..store.len()), &mut rows)?;
    let before = rows.clone();
    reader.decode(&mut rows).inspect_err(|_| assert_eq!(rows, before))?;
    store.labels("kind")?;
    store.numbers("score")?;
    reader.unchanged()
}

fn index(path: &Path, change: impl FnOnce(&mut Value)) {
    let path = path.join("index.json");
    let mut index: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut index);
    std::fs::write(path, index.to_string()).unwrap();
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

fn refused(compression: MdsCompression, damage: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    written::write(&path, compression, 10_000);
    all(&path).unwrap();
    damage(&path);
    all(&path).unwrap_err().to_string()
}

#[test]
fn damage_is_said() {
    type Damage = fn(&Path);
    let cases: [(MdsCompression, Damage, &str); 16] = [
        (MdsCompression::None, |path| std::fs::remove_file(path.join("index.json")).unwrap(), "index.json"),
        (MdsCompression::None, |path| std::fs::write(path.join("index.json"), "{").unwrap(), "index.json: EOF"),
        (MdsCompression::None, |path| std::fs::remove_file(path.join("shard.00001.mds")).unwrap(), "shard.00001.mds"),
        (
            MdsCompression::None,
            |path| std::fs::write(path.join("shard.00001.mds"), "x").unwrap(),
            "has 1 bytes, the index",
        ),
        (MdsCompression::None, |path| flip(&path.join("shard.00001.mds"), 0), "samples, the index says"),
        (MdsCompression::None, |path| flip(&path.join("shard.00001.mds"), 10), "not where it says"),
        (MdsCompression::None, |path| std::fs::write(path.join("genes.txt"), "a\nb\n").unwrap(), "there are 2"),
        (MdsCompression::None, |path| std::fs::write(path.join("genes.txt"), "a\n\n").unwrap(), "line 2 has no name"),
        (MdsCompression::None, |path| std::fs::write(path.join("genes.txt"), "a\na\n").unwrap(), "more than once"),
        (
            MdsCompression::None,
            |path| {
                std::fs::remove_file(path.join("genes.txt")).unwrap();
                index(path, |index| index["expctl.columns"] = Value::Null);
            },
            "nothing says how many genes there are",
        ),
        (
            MdsCompression::None,
            |path| index(path, |index| index["expctl.categories"]["kind"] = json!(["one"])),
            "number of none of its 1 classes",
        ),
        (
            MdsCompression::None,
            |path| index(path, |index| index["shards"][1]["column_names"][0] = "other".into()),
            "shard 1: it has other columns than the first",
        ),
        (
            MdsCompression::Zstd(3),
            |path| {
                index(path, |index| {
                    let shards = index["shards"].as_array_mut().unwrap();
                    shards.iter_mut().for_each(|shard| shard["compression"] = "br:11".into());
                });
            },
            "compressed with \"br:11\", which is not read here",
        ),
        (MdsCompression::Zstd(3), |path| flip(&path.join("shard.00001.mds.zstd"), 900), "its xxh64 is "),
        (
            MdsCompression::Zstd(3),
            |path| {
                flip(&path.join("shard.00001.mds.zstd"), 900);
                index(path, |index| index["shards"][1]["zip_data"]["hashes"] = json!({}));
            },
            "shard.00001.mds.zstd: ",
        ),
        (
            MdsCompression::Zstd(3),
            |path| {
                index(path, |index| {
                    let bytes = index["shards"][1]["raw_data"]["bytes"].as_u64().unwrap();
                    index["shards"][1]["raw_data"]["bytes"] = (bytes + 1).into();
                });
            },
            "when it is decompressed",
        ),
    ];
    for (compression, damage, reason) in cases {
        let found = refused(compression, damage);
        assert!(found.contains(reason), "{reason:?} is not in {found:?}");
    }
}

/// A gene, or a number of values, that there is not: in a shard without a hash that is looked at.
#[test]
fn samples_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    written::write(&path, MdsCompression::None, 1 << 26);
    let shard = path.join("shard.00000.mds");
    let good = std::fs::read(&shard).unwrap();
    let start = u32::from_le_bytes(good[4..8].try_into().unwrap()) as usize;
    let mut refused = 0;
    for at in start..start + 400 {
        let mut bytes = good.clone();
        bytes[at] ^= 0x80;
        std::fs::write(&shard, &bytes).unwrap();
        if let Err(e) = all(&path) {
            let said = e.to_string();
            assert!(said.contains("shard.00000.mds: sample "), "{said}");
            refused += 1;
        }
    }
    // Lengths, shapes, and the upper bytes of genes; values and text may be anything.
    assert!((60..300).contains(&refused), "{refused}");
}

#[test]
fn what_is_rewritten_while_it_is_read_is_an_error() {
    for compression in [MdsCompression::None, MdsCompression::Zstd(1)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        written::write(&path, compression, 10_000);
        let store = MdsStore::open(&path).unwrap();
        let (mut reader, mut rows) = (store.reader().unwrap(), empty(&store));
        reader.fetch(&RowSelection::Rows(&[0]), &mut rows).unwrap();
        reader.decode(&mut rows).unwrap();
        reader.unchanged().unwrap();
        let name = if compression == MdsCompression::None { "shard.00000.mds" } else { "shard.00000.mds.zstd" };
        let bytes = std::fs::read(path.join(name)).unwrap();
        std::fs::remove_file(path.join(name)).unwrap();
        std::fs::write(path.join(name), bytes).unwrap();
        // Of another shard nothing has changed.
        reader.fetch(&RowSelection::Rows(&[store.len() - 1]), &mut rows).unwrap();
        reader.decode(&mut rows).unwrap();
        reader.unchanged().unwrap();
        reader.fetch(&RowSelection::Rows(&[0]), &mut rows).unwrap();
        reader.decode(&mut rows).unwrap();
        assert!(matches!(reader.unchanged(), Err(AnnDataError::Rewritten { path }) if path.ends_with(name)));
    }
}
