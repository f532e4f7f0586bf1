//! MDS shards that MosaicML's streaming writes are read identically here, and the other way round.

mod damage;
mod written;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anndata_io::{ArrayStore, DenseRows, Form, LabelKind, MdsStore, ReadRows, RowSelection, Rows};
use rand::{RngExt, SeedableRng};
use serde_json::Value;

/// What the set-up says where no PyTorch fits the Python that there is.
const NO_PYTORCH: i32 = 3;

/// What a script says; `None` where the package cannot be had, which is said.
fn python(script: &str, argument: &Path) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let setup = Command::new("bash").arg(root.join("scripts/streaming_python.sh")).stderr(Stdio::inherit()).output();
    let setup = setup.unwrap();
    if setup.status.code() == Some(NO_PYTORCH) {
        // Written past the harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {script} needs PyTorch in Python; no wheel fits this Python");
        return None;
    }
    assert!(setup.status.success(), "scripts/streaming_python.sh failed");
    let interpreter = String::from_utf8(setup.stdout).unwrap();
    let mut run = Command::new(interpreter.trim());
    let run = run.arg(root.join("tests/python").join(script)).arg(argument).stderr(Stdio::inherit()).output().unwrap();
    assert!(run.status.success(), "{script} failed");
    Some(String::from_utf8(run.stdout).unwrap())
}

fn empty(store: &MdsStore) -> Rows {
    match store.form() {
        Form::Sparse => Rows::Sparse(Default::default()),
        Form::Dense => Rows::Dense(Default::default()),
    }
}

fn read(reader: &mut dyn ReadRows, store: &MdsStore, wanted: &RowSelection<'_>) -> Vec<u32> {
    let mut rows = empty(store);
    reader.fetch(wanted, &mut rows).unwrap();
    reader.decode(&mut rows).unwrap();
    reader.unchanged().unwrap();
    dense(&rows, store.genes().len())
}

/// Bits of all values.
fn dense(rows: &Rows, genes: usize) -> Vec<u32> {
    match rows {
        Rows::Dense(DenseRows { columns, data }) => {
            assert!(*columns == genes || data.is_empty());
            data.iter().map(|value| value.to_bits()).collect()
        }
        Rows::Sparse(rows) => {
            let mut out = vec![0; rows.len() * genes];
            for row in 0..rows.len() {
                let (columns, values) = rows.view().row(row);
                assert!(columns.windows(2).all(|pair| pair[0] < pair[1]));
                let values = columns.iter().zip(values);
                values.for_each(|(column, value)| out[row * genes + *column as usize] = value.to_bits());
            }
            out
        }
    }
}

/// Rows of `matrix` by number.
fn rows_of(matrix: &[u32], genes: usize, rows: impl IntoIterator<Item = u64>) -> Vec<u32> {
    rows.into_iter().flat_map(|row| matrix[row as usize * genes..(row as usize + 1) * genes].to_vec()).collect()
}

#[test]
fn what_streaming_writes_is_read_identically() {
    let folder = tempfile::tempdir().unwrap();
    if python("write_mds.py", folder.path()).is_none() {
        return;
    }
    let about: Value = serde_json::from_slice(&std::fs::read(folder.path().join("files.json")).unwrap()).unwrap();
    let (rows, genes) = (about["rows"].as_u64().unwrap(), about["genes"].as_u64().unwrap() as usize);
    let codes: Vec<i32> = serde_json::from_value(about["codes"].clone()).unwrap();
    let text: Vec<String> = serde_json::from_value(about["text"].clone()).unwrap();
    let mut rng = rand_pcg::Pcg64::seed_from_u64(5);
    let files = about["files"].as_array().unwrap();
    assert!(files.len() > 80);
    for file in files {
        let name = file["name"].as_str().unwrap();
        let matrix = std::fs::read(folder.path().join(format!("{}.f32", file["matrix"].as_str().unwrap()))).unwrap();
        let matrix: Vec<u32> = matrix.as_chunks::<4>().0.iter().map(|value| u32::from_le_bytes(*value)).collect();
        let store = MdsStore::open(&folder.path().join(name)).unwrap();
        let form = if file["sparse"] == true { Form::Sparse } else { Form::Dense };
        assert_eq!((store.len(), store.genes().len(), store.form()), (rows, genes, form), "{name}");
        assert_eq!(store.genes()[7], "gene_7", "{name}");
        assert_eq!(MdsStore::rows(&folder.path().join(name)).unwrap(), rows);
        assert!(store.max_values().unwrap() >= matrix.iter().filter(|bits| **bits != 0).count() as u64, "{name}");
        let shards: Vec<u64> = serde_json::from_value(file["shards"].clone()).unwrap();
        let run = if file["packed"] == true { *shards.iter().max().unwrap() } else { 1 };
        let starts: Vec<u64> = shards
            .iter()
            .scan(0, |end, samples| {
                *end += samples;
                Some((*samples > 0).then_some(*end - samples))
            })
            .flatten()
            .collect();
        assert_eq!((store.run_rows(), store.starts()), (run, starts), "{name}");

        let mut reader = store.reader().unwrap();
        assert!(read(&mut *reader, &store, &RowSelection::Range(0..rows)) == matrix, "{name}: all rows");
        for _ in 0..4 {
            let start = rng.random_range(0..rows);
            let range = start..rng.random_range(start..=rows);
            let found = read(&mut *reader, &store, &RowSelection::Range(range.clone()));
            assert!(found == rows_of(&matrix, genes, range.clone()), "{name}: rows {range:?}");
            let count = rng.random_range(0..60);
            let picks: Vec<u64> = (0..count).map(|_| rng.random_range(0..rows)).collect();
            let found = read(&mut *reader, &store, &RowSelection::Rows(&picks));
            assert!(found == rows_of(&matrix, genes, picks.iter().copied()), "{name}: rows {picks:?}");
        }
        let beyond = reader.fetch(&RowSelection::Rows(&[0, rows]), &mut empty(&store)).unwrap_err().to_string();
        assert!(beyond.contains("row 211 was asked for") && beyond.contains(name), "{beyond}");

        let labels = store.labels("text").unwrap();
        assert_eq!((labels.codes, labels.categories), (codes.clone(), text.clone()), "{name}");
        let batch = store.labels("batch").unwrap();
        assert_eq!(batch.categories, ["-3", "-2", "-1", "0", "1", "2", "3"], "{name}");
        assert!((0..rows as i32).zip(&batch.codes).all(|(row, code)| row % 7 == *code), "{name}");
        assert_eq!(batch.kind, LabelKind::Integer);
        assert_eq!(store.labels("small").unwrap().categories, ["-2", "-1", "0", "1", "2"]);
        let wide = ["9223372036854775808", "9223372036854775809", "9223372036854775810"];
        assert_eq!(store.labels("wide").unwrap().categories, wide);
        let digits = ["0", "100000000000000000000", "200000000000000000000", "300000000000000000000"];
        assert_eq!(store.labels("digits").unwrap().categories, digits);
        for (column, expected) in [
            (
                "score",
                (&|row: u64| if row.is_multiple_of(11) { f64::NAN } else { f64::from(codes[row as usize]) * 0.5 })
                    as &dyn Fn(u64) -> f64,
            ),
            ("single", &|row| f64::from(row as f32 / 3.0)),
            ("half", &|row| (row % 4) as f64 / 2.0),
            ("decimal", &|row| row as f64 / 7.0),
            ("digits", &|row| (row % 4) as f64 * 1e20),
        ] {
            let found = store.numbers(column).unwrap();
            let same = |row: u64| (found[row as usize], expected(row));
            let differs = (0..rows).map(same).find(|(a, b)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()));
            assert_eq!((found.len() as u64, differs), (rows, None), "{name}: {column}");
        }
        let missing = store.labels("batches").unwrap_err().to_string();
        assert!(missing.contains(name) && missing.contains("is \"batch\" meant?"), "{missing}");
        assert!(!missing.contains("blob"), "{missing}");
        assert!(store.numbers("text").is_err() && store.labels("score").is_err() && store.labels("decimal").is_err());
    }
}

/// Half of the shards decompressed in place, as StreamingDataset leaves them.
#[test]
fn a_shard_is_read_as_it_is_or_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    let matrix = written::write(&path, anndata_io::MdsCompression::Zstd(1), 2000).0;
    let all = |store: &MdsStore| read(&mut *store.reader().unwrap(), store, &RowSelection::Range(0..store.len()));
    let store = MdsStore::open(&path).unwrap();
    let run = store.run_rows();
    assert!(run > 1 && store.starts().len() > 5);
    assert!(all(&store) == matrix);
    for shard in 0..store.starts().len() {
        let packed = path.join(format!("shard.{shard:05}.mds.zstd"));
        let raw = zstd::decode_all(std::fs::File::open(&packed).unwrap()).unwrap();
        std::fs::write(packed.with_extension(""), raw).unwrap();
        if shard % 2 == 0 {
            std::fs::remove_file(packed).unwrap();
        }
        let store = MdsStore::open(&path).unwrap();
        assert!(all(&store) == matrix);
        assert_eq!(store.run_rows(), if shard + 1 < store.starts().len() { run } else { 1 });
    }
}
