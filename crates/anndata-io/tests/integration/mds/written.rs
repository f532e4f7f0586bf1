//! What is written here.

use std::path::Path;

use anndata_io::write::{ColumnCells, ColumnKind, ColumnSpec, Frame};
use anndata_io::{ArrayStore, CsrRows, MdsCompression, MdsOptions, MdsStore, MdsWriter, RowSelection};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::{python, read, rows_of};

const ROWS: usize = 150;
const GENES: usize = 300;

/// Obs of every kind.
fn obs() -> (Vec<ColumnSpec>, Frame) {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(12);
    let categories = ["zebra", "ant", "cow"].map(str::to_owned).to_vec();
    let kinds: Vec<i32> = (0..ROWS).map(|_| rng.random_range(-1..3)).collect();
    let counts = [Some(2), None, Some(10), Some(-3), Some((1 << 60) + 1)];
    let columns = [
        ("kind", ColumnKind::Categorical { categories, ordered: false }, ColumnCells::Codes(kinds.clone())),
        ("barcode", ColumnKind::Strings, ColumnCells::Strings((0..ROWS).map(|row| format!("ä{row}")).collect())),
        ("zero", ColumnKind::Strings, ColumnCells::Strings(vec![String::new(); ROWS])),
        (
            "score",
            ColumnKind::Float64,
            ColumnCells::Float64(
                kinds.iter().map(|kind| if *kind < 0 { f64::NAN } else { f64::from(*kind) + 0.25 }).collect(),
            ),
        ),
        ("single", ColumnKind::Float32, ColumnCells::Float32((0..ROWS).map(|row| row as f32 * 0.5).collect())),
        ("total", ColumnKind::Int64, ColumnCells::Int64((0..ROWS as i64).map(|row| row % 3 + (1 << 40)).collect())),
        ("full", ColumnKind::NullableInt64, ColumnCells::NullableInt64((0..ROWS as i64).map(Some).collect())),
        (
            "count",
            ColumnKind::NullableInt64,
            ColumnCells::NullableInt64((0..ROWS).map(|row| counts[row % 5]).collect()),
        ),
        ("good", ColumnKind::Bool, ColumnCells::Bool((0..ROWS).map(|row| row % 3 == 0).collect())),
    ];
    let (mut specs, mut frame) = (Vec::new(), Frame::default());
    frame.index = (0..ROWS).map(|row| format!("cell{row}")).collect();
    for (name, kind, cells) in columns {
        specs.push(ColumnSpec { name: name.to_owned(), kind });
        frame.columns.push(cells);
    }
    (specs, frame)
}

fn rows() -> CsrRows {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(11);
    let mut rows = CsrRows::default();
    for row in 0..ROWS {
        // A row without values, and one with more than 255.
        let share = match row {
            7 => 0.0,
            9 => 1.0,
            _ => 0.1,
        };
        for gene in 0..GENES as i32 {
            if rng.random_bool(share) {
                rows.indices.push(gene);
                rows.data.push(rng.random_range(1..30) as f32 * 0.5);
            }
        }
        rows.indptr.push(rows.indices.len() as u64);
    }
    rows
}

fn genes() -> Vec<String> {
    (0..GENES).map(|gene| format!("g{gene}")).collect()
}

/// Write rows in pieces; their bits, and obs.
pub fn write(path: &Path, compression: MdsCompression, shard_bytes: u32) -> (Vec<u32>, Frame) {
    let (columns, frame) = obs();
    let options = MdsOptions { compression, shard_bytes };
    let mut writer = MdsWriter::create(path, &genes(), columns, frame.clone(), options).unwrap();
    let rows = rows();
    for start in (0..ROWS).step_by(37) {
        let end = (start + 37).min(ROWS);
        let (from, to) = (rows.indptr[start] as usize, rows.indptr[end] as usize);
        let piece = CsrRows {
            indptr: rows.indptr[start..=end].iter().map(|at| at - from as u64).collect(),
            indices: rows.indices[from..to].to_vec(),
            data: rows.data[from..to].to_vec(),
        };
        writer.write_rows(piece.view()).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), ROWS as u64);
    (super::dense(&anndata_io::Rows::Sparse(rows), GENES), frame)
}

#[test]
fn what_is_written_here_streaming_and_the_store_read_identically() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (compression, shard_bytes)) in [
        (MdsCompression::None, 1 << 26),
        (MdsCompression::None, 10_000),
        (MdsCompression::Zstd(3), 10_000),
        (MdsCompression::Zstd(19), 1),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(format!("rows-{number}"));
        let (matrix, _) = write(&path, compression, shard_bytes);
        let store = MdsStore::open(&path).unwrap();
        assert_eq!((store.len(), store.genes()), (ROWS as u64, &genes()[..]));
        let mut reader = store.reader().unwrap();
        assert!(read(&mut *reader, &store, &RowSelection::Range(0..ROWS as u64)) == matrix);
        let mut shuffled: Vec<u64> = (0..ROWS as u64).collect();
        shuffled.shuffle(&mut rand_pcg::Pcg64::seed_from_u64(1));
        assert!(read(&mut *reader, &store, &RowSelection::Rows(&shuffled)) == rows_of(&matrix, GENES, shuffled));
        assert_eq!(store.starts().len() > 1, shard_bytes < 1 << 20);

        // The package always writes a shard for the samples so far, be there none: a limit of 1 gives other shards.
        if shard_bytes == 1 {
            assert_eq!(store.starts().len(), ROWS);
            continue;
        }
        let Some(there) = python("read_mds.py", &path) else { return };
        let there: Value = serde_json::from_str(&there).unwrap();
        let values: Vec<Vec<f32>> = serde_json::from_value(there["rows"].clone()).unwrap();
        assert!(values.concat().iter().map(|value| value.to_bits()).eq(matrix), "{compression:?}");
        assert_eq!(there["genes"], json!(genes()));
        assert_eq!(there["shards"].as_array().unwrap().len(), store.starts().len());
        let found = &there["obs"];
        let kinds = store.labels("kind").unwrap();
        assert_eq!(found["kind"], json!(kinds.codes));
        assert_eq!(there["categories"], json!({"kind": ["zebra", "ant", "cow"], "good": ["False", "True"]}));
        assert_eq!(found["barcode"], (0..ROWS).map(|row| format!("ä{row}")).collect::<Value>());
        assert_eq!(found["score"], store.numbers("score").unwrap().into_iter().map(Value::from).collect::<Value>());
        assert_eq!(found["single"], json!(store.numbers("single").unwrap()));
        assert_eq!(found["good"], (0..ROWS).map(|row| u8::from(row % 3 == 0)).collect::<Value>());
        assert_eq!(there["missing"], json!({"count": i64::MIN}));
        let counts = [2, i64::MIN, 10, -3, (1 << 60) + 1];
        assert_eq!(found["count"], (0..ROWS).map(|row| counts[row % 5]).collect::<Value>());
        assert_eq!((&there["types"]["total"], &there["types"]["kind"]), (&json!("int64"), &json!("int32")));
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    let create = |genes: &[&str], column: &str, cells: ColumnCells| {
        let genes: Vec<String> = genes.iter().map(|gene| (*gene).to_owned()).collect();
        let columns = vec![ColumnSpec { name: column.to_owned(), kind: ColumnKind::Int64 }];
        let obs = Frame { index: Vec::new(), columns: vec![cells] };
        MdsWriter::create(&path, &genes, columns, obs, MdsOptions::default())
    };
    for (genes, column, cells, reason) in [
        (&["a", "a"][..], "n", ColumnCells::Int64(vec![1]), "more than once: a"),
        (&["a", "b\nc"], "n", ColumnCells::Int64(vec![1]), "no line of genes.txt"),
        (&[], "n", ColumnCells::Int64(vec![1]), "no genes"),
        (&["a"], "values", ColumnCells::Int64(vec![1]), "the matrix has it"),
        (&["a"], "n", ColumnCells::NullableInt64(vec![Some(i64::MIN)]), "stands for no value"),
    ] {
        let refused = create(genes, column, cells).map(drop).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
        assert!(!path.exists());
    }
    let mut writer = create(&["a", "b"], "n", ColumnCells::Int64(vec![1, 2])).unwrap();
    let row = |indices: &[i32]| CsrRows {
        indptr: vec![0, indices.len() as u64],
        indices: indices.to_vec(),
        data: vec![1.0; indices.len()],
    };
    for wrong in [&[2][..], &[-1, 0], &[1, 0], &[0, 0]] {
        let refused = writer.write_rows(row(wrong).view()).unwrap_err().to_string();
        assert!(refused.contains("do not ascend within 0..2"), "{refused}");
    }
}
