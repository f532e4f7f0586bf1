//! Files of AnnData in other formats: rows, and obs with its types, are as they were.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use anndata_io::write::{AnnDataSpec, AnnDataWriter, ColumnCells, ColumnKind, ColumnSpec, Frame, Layout, Matrix};
use anndata_io::{
    Annotation, ArrayStore, CsrRows, DenseRows, Form, H5adStore, LabelKind, MdsStore, ParquetStore, RowSelection, Rows,
    ZarrStore,
};
use expctl_datasets::array::{ConvertOptions, convert_files};
use expctl_settings::ArrayFormat;
use rand::{RngExt, SeedableRng};

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

/// Bits of all values of [`rows`].
fn dense(rows: &CsrRows) -> Vec<u32> {
    let mut out = vec![0; rows.len() * GENES];
    for row in 0..rows.len() {
        let (columns, values) = rows.view().row(row);
        assert!(columns.windows(2).all(|pair| pair[0] < pair[1]));
        let values = columns.iter().zip(values);
        values.for_each(|(column, value)| out[row * GENES + *column as usize] = value.to_bits());
    }
    out
}

/// Runs a script of `tests/python` with the packages that are pinned for tests; returns its standard output.
fn run_python(script: &str, arguments: &[&Path]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let interpreter = match std::env::var_os("EXPCTL_TEST_PYTHON") {
        Some(interpreter) => PathBuf::from(interpreter),
        None => output(&mut Command::new(root.join("scripts/python.sh"))).trim().into(),
    };
    output(Command::new(interpreter).arg(root.join("tests/python").join(script)).args(arguments))
}

/// Labels and numbers do not depend on whether a file was converted.
#[test]
fn columns_of_obs_keep_their_types_when_they_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("cells.h5ad");
    let plate = ColumnKind::Categorical { categories: vec!["zebra".to_owned(), "ant".to_owned()], ordered: false };
    let (columns, cells): (Vec<ColumnSpec>, Vec<ColumnCells>) = [
        ("count", ColumnKind::Int64, ColumnCells::Int64(vec![10, 2, -3, (1 << 60) + 1])),
        ("rank", ColumnKind::NullableInt64, ColumnCells::NullableInt64(vec![Some(7), None, Some(-1), Some(7)])),
        ("good", ColumnKind::Bool, ColumnCells::Bool(vec![true, false, true, true])),
        ("share", ColumnKind::Float32, ColumnCells::Float32(vec![0.1, f32::NAN, -2.0, 3.5])),
        ("score", ColumnKind::Float64, ColumnCells::Float64(vec![0.1, f64::NAN, -2.0, 3.5])),
        ("plate", plate, ColumnCells::Codes(vec![1, 0, -1, 1])),
    ]
    .into_iter()
    .map(|(name, kind, cells)| (ColumnSpec { name: name.to_owned(), kind }, cells))
    .unzip();
    let layout = Layout::Contiguous;
    let spec = AnnDataSpec { rows: 4, columns: 2, values: 1, matrix: Matrix::Csr, layout, threads: 1 };
    let mut writer = AnnDataWriter::create(&source, &spec).unwrap();
    writer.begin_obs(4, &columns).unwrap();
    let index = |names: [&str; 4]| names.map(str::to_owned).to_vec();
    writer.push_obs(&Frame { index: index(["a", "b", "c", "d"]), columns: cells }).unwrap();
    writer.put_var(&[], &Frame { index: vec!["g0".to_owned(), "g1".to_owned()], columns: Vec::new() }).unwrap();
    let rows = CsrRows { indptr: vec![0, 0, 1, 1, 1], indices: vec![1], data: vec![2.0] };
    writer.push(rows.view()).unwrap();
    writer.finish().unwrap();

    let made = convert_files(
        std::slice::from_ref(&source),
        ArrayFormat::ParquetSparse,
        false,
        &ConvertOptions::default(),
        &folder.path().join("converted"),
        &mut |_| ControlFlow::Continue(()),
    );
    let before = H5adStore::open(&source, "").unwrap();
    let after = ParquetStore::open(&made.unwrap()[0]).unwrap();
    for ColumnSpec { name, kind } in &columns {
        match kind {
            // float32 would have other names of classes as the float64 that it becomes.
            ColumnKind::Float32 | ColumnKind::Float64 => assert!(after.labels(name).is_err(), "{name}"),
            _ => assert_eq!(after.labels(name).unwrap(), before.labels(name).unwrap(), "{name}"),
        }
        match before.numbers(name) {
            Ok(numbers) => {
                let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>();
                assert_eq!(bits(after.numbers(name).unwrap()), bits(numbers), "{name}");
            }
            Err(_) => assert!(after.numbers(name).is_err(), "{name}"),
        }
    }
    assert_eq!(after.labels("count").unwrap().categories, ["-3", "2", "10", "1152921504606846977"]);
    assert_eq!(after.labels("good").unwrap().categories, ["False", "True"]);
}

/// Rows of an AnnData file in MDS shards: rows and obs are as they were.
#[test]
fn files_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5ad");
    let (columns, frame) = obs();
    let rows = rows();
    let spec = AnnDataSpec {
        rows: ROWS as u64,
        columns: GENES as u64,
        values: rows.data.len() as u64,
        matrix: Matrix::Csr,
        layout: Layout::Contiguous,
        threads: 1,
    };
    let mut writer = AnnDataWriter::create(&path, &spec).unwrap();
    writer.begin_obs(ROWS as u64, &columns).unwrap();
    writer.push_obs(&frame).unwrap();
    writer.put_var(&[], &Frame { index: genes(), columns: Vec::new() }).unwrap();
    writer.push(rows.view()).unwrap();
    writer.finish().unwrap();
    let source = H5adStore::open(&path, "").unwrap();

    let out = folder.path().join("out");
    let mut none = |_| ControlFlow::Continue(());
    for format in [ArrayFormat::Mds, ArrayFormat::MdsZstd] {
        let options = ConvertOptions::default();
        let out = out.join(format.name());
        let made = convert_files(std::slice::from_ref(&path), format, false, &options, &out, &mut none).unwrap();
        assert_eq!(made, [out.join("a.mds")]);
        let again = convert_files(std::slice::from_ref(&path), format, false, &options, &out, &mut none).unwrap_err();
        assert!(again.to_string().contains("is not replaced"), "{again}");
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
        let store = MdsStore::open(&made[0]).unwrap();
        assert_eq!(store.run_rows() > 1, format == ArrayFormat::MdsZstd);
        let mut found = Rows::Sparse(CsrRows::default());
        let mut reader = store.reader().unwrap();
        reader.fetch(&RowSelection::Range(0..ROWS as u64), &mut found).unwrap();
        reader.decode(&mut found).unwrap();
        reader.unchanged().unwrap();
        let Rows::Sparse(found) = found else { panic!("MDS shards of a sparse matrix are dense") };
        assert!(dense(&found) == dense(&rows));
        for column in &columns {
            match (store.labels(&column.name), source.labels(&column.name)) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{}", column.name),
                // AnnData's floats are classes, too.
                (found, expected) => {
                    let refused = expected.map_or(true, |labels| labels.kind == LabelKind::Float);
                    assert!(found.is_err() && refused, "{}", column.name);
                }
            }
            match (store.numbers(&column.name), source.numbers(&column.name)) {
                (Ok(found), Ok(expected)) => {
                    let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
                    assert!(found.len() == ROWS && found.iter().zip(&expected).all(same), "{}", column.name);
                }
                (found, expected) => assert!(found.is_err() && expected.is_err(), "{}: {found:?}", column.name),
            }
        }
        assert_eq!(store.labels("good").unwrap().kind, LabelKind::Bool);
    }
}

/// Tests that `make check` leaves out: Python writes and reads files for them.
mod slow {
    use super::*;

    /// What is written here is what AnnData reads from the file that it was made of.
    #[test]
    fn python_reads_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        run_python("write_anndata.py", &[folder.path()]);
        let (one, made) = (folder.path().join("one"), folder.path().join("made"));
        let names = ["csr_columns", "dense_columns_chunked", "csc_columns", "no_rows", "no_values", "raw_and_layers"];
        let sources: Vec<PathBuf> = names.iter().map(|name| one.join(format!("{name}.h5ad"))).collect();
        let options = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
        let to = &mut |_| std::ops::ControlFlow::Continue(());
        let written = convert_files(&sources, ArrayFormat::Zarr, false, &options, &made, to).unwrap();
        run_python("read_zarr.py", &[&one, &made]);
        for (source, zarr) in sources.iter().zip(&written) {
            let (source, zarr) = (H5adStore::open(source, "").unwrap(), ZarrStore::open(zarr, "").unwrap());
            assert_eq!((source.len(), source.genes()), (zarr.len(), zarr.genes()));
            assert_eq!(source.row_names().unwrap().unwrap(), zarr.row_names().unwrap().unwrap());
            assert_eq!(source.columns().unwrap(), zarr.columns().unwrap());
            for column in source.columns().unwrap() {
                assert_eq!(source.labels(&column).unwrap(), zarr.labels(&column).unwrap());
            }
        }
        // Nothing is left beside them, and nothing is replaced.
        assert_eq!(std::fs::read_dir(&made).unwrap().count(), names.len());
        let e = convert_files(&sources, ArrayFormat::Zarr, false, &options, &made, to).unwrap_err().to_string();
        assert!(e.contains("not replaced"), "{e}");
    }
}

/// Columns of obs by name, as text: exact for integers, and the same for text and categories.
fn obs_of(store: &dyn ArrayStore) -> Vec<(String, Vec<String>)> {
    let mut columns = store.columns().unwrap();
    columns.sort();
    let text = |name: &String| match store.annotation(name).unwrap() {
        Annotation::Numbers { values, integers: false } => values.iter().map(|value| format!("{value:?}")).collect(),
        _ => {
            let labels = store.labels(name).unwrap();
            let class =
                |code: &i32| usize::try_from(*code).map_or("missing", |code| &labels.categories[code]).to_lowercase();
            labels.codes.iter().map(class).collect()
        }
    };
    columns.iter().map(|name| (name.clone(), text(name))).collect()
}

fn matrix_of(store: &dyn ArrayStore) -> Vec<u32> {
    let rows = store.len();
    let mut out = match store.form() {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows::default()),
    };
    let mut reader = store.reader().unwrap();
    reader.fetch(&RowSelection::Range(0..rows), &mut out).unwrap();
    reader.decode(&mut out).unwrap();
    match out {
        Rows::Sparse(rows) => {
            let mut all = vec![0; rows.len() * store.genes().len()];
            for row in 0..rows.len() {
                let (columns, values) = rows.view().row(row);
                let at = row * store.genes().len();
                columns.iter().zip(values).for_each(|(column, value)| all[at + *column as usize] = value.to_bits());
            }
            all
        }
        Rows::Dense(rows) => rows.data.iter().map(|value| value.to_bits()).collect(),
    }
}

#[test]
fn files_of_any_format_become_files_of_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let options = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
    let to = &mut |_| ControlFlow::Continue(());
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("../anndata-io/tests/anndata/anndata_0.6.22.h5ad");
    let base = H5adStore::open(&old, "").unwrap();
    let (rows, obs) = (matrix_of(&base), obs_of(&base));
    assert!(obs.len() > 4);
    let formats = [
        ArrayFormat::H5ad,
        ArrayFormat::Zarr,
        ArrayFormat::Parquet,
        ArrayFormat::ParquetSparse,
        ArrayFormat::Mds,
        ArrayFormat::H5adCsc,
    ];
    for first in formats {
        let made = folder.path().join(first.name());
        let made = convert_files(std::slice::from_ref(&old), first, false, &options, &made, to).unwrap().remove(0);
        for second in formats {
            let out = folder.path().join(format!("{}-{}", first.name(), second.name()));
            let again =
                convert_files(std::slice::from_ref(&made), second, false, &options, &out, to).unwrap().remove(0);
            // Nothing is left beside it.
            assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
            let store: Box<dyn ArrayStore> = match again.extension().unwrap().to_str().unwrap() {
                "parquet" => Box::new(ParquetStore::open(&again).unwrap()),
                "mds" => Box::new(MdsStore::open(&again).unwrap()),
                "zarr" => Box::new(ZarrStore::open(&again, "").unwrap()),
                _ => Box::new(H5adStore::open(&again, "").unwrap()),
            };
            assert_eq!(store.genes(), base.genes(), "{}", out.display());
            assert!(matrix_of(store.as_ref()) == rows, "{}", out.display());
            assert_eq!(obs_of(store.as_ref()), obs, "{}", out.display());
        }
        // All rows, in another order.
        let out = folder.path().join(format!("{}-shuffled", first.name()));
        let shuffled = convert_files(&[made], ArrayFormat::H5ad, true, &options, &out, to).unwrap().remove(0);
        let shuffled = H5adStore::open(&shuffled, "").unwrap();
        let sorted = |matrix: Vec<u32>| {
            let mut rows: Vec<Vec<u32>> = matrix.chunks(base.genes().len()).map(<[u32]>::to_vec).collect();
            rows.sort();
            rows
        };
        assert!(sorted(matrix_of(&shuffled)) == sorted(rows.clone()));
    }
}
