//! Files that AnnData wrote, in several versions, read as AnnData reads them; and joined as it joins them.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::run_python;
use crate::truth::{Joined, Part, Truth, dense, read_range, read_rows};
use anndata_io::{
    AnnDataError, Annotation, ArrayStore, Collection, Form, GeneJoin, H5adStore, LabelKind, MemoryStore, Rows,
    ZarrStore,
};

/// All that Python wrote: `tests/python/write_anndata.py`.
static WRITTEN: LazyLock<tempfile::TempDir> = LazyLock::new(|| run("write_anndata.py"));

/// Runs a script of `tests/python` on an empty folder, and returns that folder.
fn run(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    run_python(script, &[folder.path()]);
    folder
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Files of a folder with an extension, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|other| other == extension));
    files.sort();
    assert!(!files.is_empty(), "{}", folder.display());
    files
}

/// All values are the same, to the bit; but 0 stands for -0 where zeros are `left_out`.
fn check_values(read: &[Vec<f32>], expected: &[Vec<f32>], left_out: bool, name: &str) {
    assert_eq!(read.len(), expected.len(), "{name}");
    for (row, (read, expected)) in read.iter().zip(expected).enumerate() {
        assert_eq!(read.len(), expected.len(), "{name} row {row}");
        for (column, (read, expected)) in read.iter().zip(expected).enumerate() {
            let same = read.to_bits() == expected.to_bits() || (left_out && *read == 0.0 && *expected == 0.0);
            assert!(same, "{name} row {row} column {column}: {read} is not {expected}");
        }
    }
}

/// A store is what Python says of it, read in every way.
fn check_part(store: &dyn ArrayStore, part: &Part, name: &str) {
    assert_eq!(store.genes(), part.genes, "{name}");
    assert_eq!(store.len(), part.values.len() as u64, "{name}");
    let columns = part.genes.len();
    let mut reader = store.reader().unwrap();
    let rows = read_range(reader.as_mut(), store.form(), 0..store.len());
    let left_out = store.form() == Form::Sparse;
    check_values(&dense(&rows, part.values.len(), columns), &part.values, left_out, name);
    if let Rows::Sparse(rows) = &rows {
        for row in 0..rows.len() {
            assert!(rows.view().row(row).0.is_sorted_by(|a, b| a < b), "{name}");
        }
    }
    // In another order, with repeats.
    let wanted: Vec<u64> = (0..store.len()).chain(0..store.len()).map(|i| (i * 7 + 3) % store.len()).collect();
    let rows = read_rows(reader.as_mut(), store.form(), &wanted);
    let expected: Vec<Vec<f32>> = wanted.iter().map(|row| part.values[*row as usize].clone()).collect();
    check_values(&dense(&rows, wanted.len(), columns), &expected, left_out, name);
    reader.unchanged().unwrap();
}

/// What stores of AnnData have beside rows.
trait AnnData: ArrayStore + Sized {
    fn open(path: &Path, layer: &str) -> Result<Self, AnnDataError>;
    fn row_names(&self) -> Vec<String>;
    fn columns(&self) -> Vec<String>;
}

macro_rules! ann_data {
    ($store:ty) => {
        impl AnnData for $store {
            fn open(path: &Path, layer: &str) -> Result<Self, AnnDataError> {
                Self::open(path, layer)
            }
            fn row_names(&self) -> Vec<String> {
                ArrayStore::row_names(self).unwrap().unwrap()
            }
            fn columns(&self) -> Vec<String> {
                ArrayStore::columns(self).unwrap()
            }
        }
    };
}
ann_data!(H5adStore);
ann_data!(ZarrStore);

fn check_file<S: AnnData>(path: &Path, truth: &Truth) {
    let name = path.file_name().unwrap().to_str().unwrap();
    for (layer, part) in &truth.parts {
        let store = <S as AnnData>::open(path, layer).unwrap_or_else(|e| panic!("{name} {layer}: {e}"));
        check_part(&store, part, &format!("{name} {layer}"));
        let memory = MemoryStore::read(Box::new(store), 2, u64::MAX).unwrap();
        check_part(&memory, part, &format!("{name} {layer} in memory"));
    }
    let store = <S as AnnData>::open(path, "").unwrap();
    assert_eq!(AnnData::row_names(&store), truth.rows, "{name}");
    let columns: Vec<&String> = truth.columns.keys().collect();
    let mut read = AnnData::columns(&store);
    read.sort_unstable();
    assert_eq!(read.iter().collect::<Vec<_>>(), columns, "{name}");
    for (column, expected) in &truth.columns {
        let labels = store.labels(column).unwrap_or_else(|e| panic!("{name} {column}: {e}"));
        assert_eq!(labels.categories, expected.categories, "{name} {column}");
        assert_eq!(labels.codes, expected.codes, "{name} {column}");
        match store.annotation(column).unwrap() {
            Annotation::Classes(classes) => assert_eq!(classes, labels, "{name} {column}"),
            Annotation::Numbers { values, integers } => {
                assert_eq!(integers, labels.kind == LabelKind::Integer, "{name} {column}");
                assert!(matches!(labels.kind, LabelKind::Integer | LabelKind::Float), "{name} {column}");
                let numbers = store.numbers(column).unwrap();
                let same = values.iter().zip(&numbers).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same && values.len() == numbers.len(), "{name} {column}");
            }
        }
        match &expected.numbers {
            Some(numbers) => {
                let bits = |numbers: &[f64]| -> Vec<Option<u64>> {
                    numbers.iter().map(|number| (!number.is_nan()).then(|| number.to_bits())).collect()
                };
                let expected: Vec<f64> = numbers.iter().map(|number| number.unwrap_or(f64::NAN)).collect();
                assert_eq!(bits(&store.numbers(column).unwrap()), bits(&expected), "{name} {column}");
            }
            None => {
                let e = store.numbers(column).unwrap_err().to_string();
                assert!(e.contains(name) && e.contains(column) && e.contains("strings"), "{e}");
            }
        }
    }
}

#[test]
fn files_are_what_anndata_says() {
    for path in files(&WRITTEN.path().join("one"), "h5ad") {
        check_file::<H5adStore>(&path, &Truth::read(&path.with_extension("json")));
    }
}

#[test]
fn zarr_folders_are_what_anndata_says() {
    let folders = files(&WRITTEN.path().join("one"), "zarr");
    assert!(folders.len() > 50, "{}", folders.len());
    for path in folders {
        // NAME.v2.zarr, NAME.v3.zarr
        check_file::<ZarrStore>(&path, &Truth::read(&path.with_extension("").with_extension("json")));
    }
}

#[test]
fn the_file_that_ships_is_what_anndata_says() {
    let path = tests().join("../../../experiments/arrayloader/real/pbmc68k_reduced.h5ad");
    check_file::<H5adStore>(&path, &Truth::read(&WRITTEN.path().join("real.json")));
}

#[test]
fn old_files_are_what_anndata_says() {
    let truth = Truth::read(&tests().join("anndata/anndata.json"));
    for path in files(&tests().join("anndata"), "h5ad") {
        check_file::<H5adStore>(&path, &truth);
    }
}

#[test]
fn files_are_joined_as_anndata_joins_them() {
    for path in files(&WRITTEN.path().join("joined"), "json") {
        let truth = Joined::read(&path);
        let parts = files(&path.with_extension(""), "h5ad");
        for (join, expected) in [(GeneJoin::Inner, &truth.inner), (GeneJoin::Outer, &truth.outer)] {
            let name = format!("{} {join:?}", path.display());
            let collection = Collection::open_h5ad(&parts, "", join, &[]).unwrap();
            assert_eq!(collection.form(), if expected.dense { Form::Dense } else { Form::Sparse }, "{name}");
            check_part(&collection, &expected.part, &name);
            assert_eq!(collection.labels("kind").unwrap().categories, truth.kind.categories, "{name}");
            assert_eq!(collection.labels("kind").unwrap().codes, truth.kind.codes, "{name}");
            assert_eq!(collection.numbers("depth").unwrap(), truth.depth, "{name}");
            // Genes by name, in another order: the same columns.
            let order: Vec<usize> = (0..expected.part.genes.len()).rev().step_by(2).collect();
            let genes: Vec<String> = order.iter().map(|gene| expected.part.genes[*gene].clone()).collect();
            if !genes.is_empty() {
                let some = Collection::open_h5ad(&parts, "X", join, &genes).unwrap();
                let values = expected.part.values.iter().map(|row| order.iter().map(|gene| row[*gene]).collect());
                check_part(&some, &Part { genes, values: values.collect() }, &format!("{name} of some genes"));
                let memory = MemoryStore::read(Box::new(collection), 3, u64::MAX).unwrap();
                check_part(&memory, &expected.part, &format!("{name} in memory"));
            }
        }
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let folder = run("write_broken_anndata.py");
    let cases = std::fs::read(folder.path().join("cases.json")).unwrap();
    let cases: Vec<(String, String, Vec<String>)> = serde_json::from_slice(&cases).unwrap();
    assert!(cases.len() > 40);
    H5adStore::open(&folder.path().join("whole.h5ad"), "X").unwrap();
    for (file, read, says) in cases {
        let store = H5adStore::open(&folder.path().join(&file), "");
        let error = match read.split_once(' ') {
            None => store.map(drop),
            Some(("labels", column)) => store.unwrap_or_else(|e| panic!("{e}")).labels(column).map(drop),
            Some((_, column)) => store.unwrap_or_else(|e| panic!("{e}")).numbers(column).map(drop),
        };
        let Err(error) = error else { panic!("{file}: {read} was read") };
        let error = error.to_string();
        for says in says.iter().chain([&file]) {
            assert!(error.contains(says), "{file}: {says:?} is not in {error:?}");
        }
    }
}
