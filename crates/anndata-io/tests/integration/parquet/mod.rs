//! Parquet files that pyarrow and pandas write are read identically here, and the other way round.

mod columns;
mod damage;

use std::path::Path;

use anndata_io::{
    ArrayStore, CsrRows, DenseRows, Form, ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind,
    ParquetObsValues, ParquetOptions, ParquetStore, ParquetWriter, ReadRows, RowSelection, Rows, RowsView,
};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::run_python;

fn empty(store: &ParquetStore) -> Rows {
    match store.form() {
        Form::Sparse => Rows::Sparse(Default::default()),
        Form::Dense => Rows::Dense(Default::default()),
    }
}

fn read(reader: &mut dyn ReadRows, store: &ParquetStore, wanted: &RowSelection<'_>) -> Vec<f32> {
    let mut rows = empty(store);
    reader.fetch(wanted, &mut rows).unwrap();
    reader.decode(&mut rows).unwrap();
    reader.unchanged().unwrap();
    dense(&rows, store.genes().len())
}

fn dense(rows: &Rows, genes: usize) -> Vec<f32> {
    match rows {
        Rows::Dense(DenseRows { columns, data }) => {
            assert!(*columns == genes || data.is_empty());
            data.clone()
        }
        Rows::Sparse(rows) => {
            let mut out = vec![0.0; rows.len() * genes];
            for row in 0..rows.len() {
                let (columns, values) = rows.view().row(row);
                columns.iter().zip(values).for_each(|(column, value)| out[row * genes + *column as usize] = *value);
            }
            out
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Rows of `matrix` by number.
fn rows_of(matrix: &[f32], genes: usize, rows: impl IntoIterator<Item = u64>) -> Vec<u32> {
    rows.into_iter().flat_map(|row| bits(&matrix[row as usize * genes..(row as usize + 1) * genes])).collect()
}

/// Files of `write_parquet_edges.py`.
fn edges() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    run_python("write_parquet_edges.py", &[folder.path()]);
    folder
}

/// The values of these files, but for some columns.
fn edge_rows(rows: std::ops::Range<u64>, genes: &[u64]) -> Vec<f32> {
    rows.flat_map(|row| genes.iter().map(move |gene| (row * 4 + gene + 1) as f32)).collect()
}

/// Where a column chunk is in its file.
fn chunk(path: &Path, group: usize, column: usize) -> std::ops::Range<u64> {
    let file = std::fs::File::open(path).unwrap();
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new().parse_and_finish(&file).unwrap();
    let (start, len) = metadata.row_group(group).column(column).byte_range();
    start..start + len
}

#[test]
fn what_pyarrow_writes_is_read_identically() {
    let folder = tempfile::tempdir().unwrap();
    run_python("write_parquet.py", &[folder.path()]);
    let about: Value = serde_json::from_slice(&std::fs::read(folder.path().join("files.json")).unwrap()).unwrap();
    let (rows, genes) = (about["rows"].as_u64().unwrap(), about["genes"].as_u64().unwrap() as usize);
    let codes: Vec<i32> = serde_json::from_value(about["codes"].clone()).unwrap();
    let matrix = |name: &str| -> Vec<f32> {
        let bytes = std::fs::read(folder.path().join(format!("{name}.f32"))).unwrap();
        bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
    };
    let mut rng = rand_pcg::Pcg64::seed_from_u64(5);
    let files = about["files"].as_array().unwrap();
    assert!(files.len() > 200);
    for file in files {
        let name = file["file"].as_str().unwrap();
        let matrix = matrix(file["matrix"].as_str().unwrap());
        let store = ParquetStore::open(&folder.path().join(name)).unwrap();
        let form = if file["sparse"] == true { Form::Sparse } else { Form::Dense };
        assert_eq!((store.len(), store.genes().len(), store.form()), (rows, genes, form), "{name}");
        let first = if name.starts_with("wide") { "g0" } else { "gene_0" };
        assert_eq!(store.genes()[0], first, "{name}");

        let mut reader = store.reader().unwrap();
        let all = read(&mut *reader, &store, &RowSelection::Range(0..rows));
        assert!(bits(&all) == bits(&matrix), "{name}: all rows");
        for _ in 0..4 {
            let start = rng.random_range(0..rows);
            let range = start..rng.random_range(start..=rows);
            let found = read(&mut *reader, &store, &RowSelection::Range(range.clone()));
            assert!(bits(&found) == rows_of(&matrix, genes, range.clone()), "{name}: rows {range:?}");
            let count = rng.random_range(0..60);
            let picks: Vec<u64> = (0..count).map(|_| rng.random_range(0..rows)).collect();
            let found = read(&mut *reader, &store, &RowSelection::Rows(&picks));
            assert!(bits(&found) == rows_of(&matrix, genes, picks.iter().copied()), "{name}: rows {picks:?}");
        }

        let labels = store.labels("text").unwrap();
        assert_eq!(
            (labels.codes, labels.categories),
            (codes.clone(), ["B cell", "NK", "T cell"].map(str::to_owned).to_vec())
        );
        assert_eq!(store.labels("kind").unwrap().codes, codes, "{name}");
        let batch = store.labels("batch").unwrap();
        assert_eq!(batch.categories, ["-3", "-2", "-1", "0", "1", "2", "3"], "{name}");
        assert!((0..rows as i32).zip(&batch.codes).all(|(row, code)| row % 7 == *code), "{name}");
        let scores = store.numbers("score").unwrap();
        let score = |code: i32| if code < 0 { f64::NAN } else { f64::from(code) * 0.5 };
        assert!(
            scores
                .iter()
                .zip(&codes)
                .all(|(found, code)| found.to_bits() == score(*code).to_bits() || (found.is_nan() && *code < 0)),
            "{name}"
        );
        let good = store.labels("good").unwrap();
        assert_eq!(good.categories, ["False", "True"]);
        assert!(good.codes.iter().zip(&codes).all(|(good, code)| *good == i32::from(*code > 0)), "{name}");
        let missing = store.labels("barcodes").unwrap_err().to_string();
        assert!(missing.contains(name) && missing.contains("is \"barcode\" meant?"), "{missing}");
        assert!(store.name().ends_with(name));
        assert!(store.numbers("text").is_err() && store.labels("score").is_err());
    }
}

/// What [`written`] writes.
struct Written {
    matrix: Vec<f32>,
    kind: Vec<i32>,
    score: Vec<f64>,
    count: Vec<Option<i64>>,
    good: Vec<bool>,
}

/// A file of 150 rows × 40 genes, and its values.
fn written(path: &Path, options: &ParquetOptions, sparse_input: bool) -> Written {
    let (rows, genes) = (150, 40);
    let mut rng = rand_pcg::Pcg64::seed_from_u64(11);
    let mut matrix: Vec<f32> = (0..rows * genes)
        .map(|_| if rng.random_bool(0.2) { rng.random_range(1..30) as f32 * 0.5 } else { 0.0 })
        .collect();
    matrix[7] = -0.0;
    matrix[genes..2 * genes].fill(0.0);
    let codes: Vec<i32> = (0..rows).map(|_| rng.random_range(-1..3)).collect();
    let scores: Vec<f64> =
        codes.iter().map(|code| if *code < 0 { f64::NAN } else { f64::from(*code) + 0.25 }).collect();
    // More than float64 holds exactly; in numerical order "10" is behind "2".
    let counts = [Some(2), None, Some(10), Some(-3), Some((1 << 60) + 1)];
    let counts: Vec<Option<i64>> = (0..rows).map(|_| counts[rng.random_range(0..counts.len())]).collect();
    let good: Vec<bool> = (0..rows).map(|_| rng.random()).collect();
    let names: Vec<String> = (0..genes).map(|gene| format!("g{gene}")).collect();
    let classes = ["zebra", "ant", "cow"].map(str::to_owned).to_vec();
    let obs = [
        ParquetObsColumn { name: "kind".to_owned(), kind: ParquetObsKind::Labels(classes) },
        ParquetObsColumn { name: "score".to_owned(), kind: ParquetObsKind::Numbers },
        ParquetObsColumn { name: "count".to_owned(), kind: ParquetObsKind::Integers },
        ParquetObsColumn { name: "good".to_owned(), kind: ParquetObsKind::Bools },
    ];
    let mut writer = ParquetWriter::create(path, &names, &obs, options).unwrap();
    for start in (0..rows).step_by(37) {
        let end = (start + 37).min(rows);
        let data = &matrix[start * genes..end * genes];
        let obs = [
            ParquetObsValues::Labels(&codes[start..end]),
            ParquetObsValues::Numbers(&scores[start..end]),
            ParquetObsValues::Integers(&counts[start..end]),
            ParquetObsValues::Bools(&good[start..end]),
        ];
        let mut rows = CsrRows::default();
        for row in data.chunks(genes) {
            let present = row.iter().enumerate().filter(|(_, value)| value.to_bits() != 0);
            present.for_each(|(column, value)| {
                rows.indices.push(column as i32);
                rows.data.push(*value);
            });
            rows.indptr.push(rows.indices.len() as u64);
        }
        let view = match sparse_input {
            true => RowsView::Sparse(rows.view()),
            false => RowsView::Dense { columns: genes, data },
        };
        writer.write_rows(&view, &obs).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), rows as u64);
    Written { matrix, kind: codes, score: scores, count: counts, good }
}

#[test]
fn what_is_written_here_pyarrow_and_the_store_read_identically() {
    let folder = tempfile::tempdir().unwrap();
    for (number, layout) in [ParquetLayout::Dense, ParquetLayout::Sparse].into_iter().enumerate() {
        for compression in [ParquetCompression::None, ParquetCompression::Snappy, ParquetCompression::Zstd(3)] {
            let path = folder.path().join("rows.parquet");
            let options = ParquetOptions { layout, compression, row_group_rows: 64, page_rows: 5 };
            let Written { matrix, kind: codes, score: scores, count, good } = written(&path, &options, number == 0);

            let store = ParquetStore::open(&path).unwrap();
            assert_eq!((store.len(), store.run_rows()), (150, 64));
            let mut reader = store.reader().unwrap();
            assert!(bits(&read(&mut *reader, &store, &RowSelection::Range(0..150))) == bits(&matrix));
            let mut shuffled: Vec<u64> = (0..150).collect();
            shuffled.shuffle(&mut rand_pcg::Pcg64::seed_from_u64(1));
            let found = read(&mut *reader, &store, &RowSelection::Rows(&shuffled));
            assert!(bits(&found) == rows_of(&matrix, 40, shuffled));
            let labels = store.labels("kind").unwrap();
            assert_eq!(
                (labels.codes, labels.categories),
                (codes.clone(), ["zebra", "ant", "cow"].map(str::to_owned).to_vec())
            );
            let found = store.numbers("score").unwrap();
            assert!(found.iter().zip(&scores).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())));

            // In numerical order; "nothing" is no class.
            let labels = store.labels("count").unwrap();
            assert_eq!(labels.categories, ["-3", "2", "10", "1152921504606846977"]);
            let classes = [Some(-3), Some(2), Some(10), Some((1 << 60) + 1)];
            let class =
                |count: &Option<i64>| classes.iter().position(|class| class == count).map_or(-1, |at| at as i32);
            assert_eq!(labels.codes, count.iter().map(class).collect::<Vec<_>>());
            let found = store.numbers("count").unwrap();
            assert!(found.iter().zip(&count).all(|(a, b)| b.map_or(a.is_nan(), |b| *a == b as f64)));
            let labels = store.labels("good").unwrap();
            assert_eq!(labels.categories, ["False", "True"]);
            assert_eq!(labels.codes, good.iter().map(|good| i32::from(*good)).collect::<Vec<_>>());

            let there: Value = serde_json::from_str(&run_python("read_parquet.py", &[&path])).unwrap();
            let values: Vec<Vec<f32>> = serde_json::from_value(there["rows"].clone()).unwrap();
            assert!(bits(&values.concat()) == bits(&matrix), "{options:?}");
            let kind =
                |code: &i32| usize::try_from(*code).map_or(Value::Null, |code| ["zebra", "ant", "cow"][code].into());
            assert_eq!(there["kind"], codes.iter().map(kind).collect::<Value>());
            // `Value` has no NaN: it is null there, too.
            assert_eq!(there["score"], scores.iter().copied().map(Value::from).collect::<Value>());
            assert_eq!((&there["count"], &there["good"]), (&serde_json::json!(count), &serde_json::json!(good)));
            let types = serde_json::json!({"kind": "string", "score": "double", "count": "int64", "good": "bool"});
            assert_eq!(there["types"], types);
            assert_eq!(there["groups"], serde_json::json!([64, 64, 22]));
            assert_eq!(there["genes"], (0..40).map(|gene| format!("g{gene}")).collect::<Value>());
            assert_eq!(there["categories"], serde_json::json!({"kind": ["zebra", "ant", "cow"]}));
        }
    }
}
