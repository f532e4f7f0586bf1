//! Matrices of .h5ad files that Python wrote, in every layout, are read as Python has them; what cannot be read is refused.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::matrix_cases::{check_all, read_all, written};
use anndata_io::register_hdf5_filters;
use anndata_io::write::{AnnDataSpec, AnnDataWriter, Frame, Layout, Matrix};
use anndata_io::{AnnDataError, CsrRows, MatrixFile, RowSelection, Rows};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SCRIPT: &str = "write_h5ad_matrix.py";

fn open(path: &Path, location: &str) -> Result<MatrixFile, AnnDataError> {
    MatrixFile::open(path, location)
}

#[test]
fn what_python_wrote() {
    let (folder, cases) = written(SCRIPT);
    let (good, bad) = check_all(open, folder.path(), &cases);
    assert!(good >= 340 && bad >= 30, "{good} good, {bad} bad");
}

#[test]
fn a_file_that_changes() {
    let (folder, _) = written(SCRIPT);
    let read = |path: &Path, change: &dyn Fn()| -> AnnDataError {
        let file = MatrixFile::open(path, "X").unwrap();
        let mut reader = file.reader().unwrap();
        let mut out = Rows::Sparse(CsrRows::default());
        reader.fetch(&RowSelection::Rows(&[3, 1]), &mut out).unwrap();
        reader.decode(&mut out).unwrap();
        reader.unchanged().unwrap();
        change();
        out.clear();
        let rest = reader.fetch(&RowSelection::Rows(&[60, 70]), &mut out).and_then(|_| reader.decode(&mut out));
        rest.and_then(|()| reader.unchanged()).unwrap_err()
    };
    for name in ["filter-gzip.h5ad", "filter-none.h5ad"] {
        let path = folder.path().join(name);
        let bytes = fs::read(&path).unwrap();
        let changes: [&dyn Fn(); 4] = [
            // Cut short.
            &|| fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap(),
            // Replaced.
            &|| {
                fs::write(path.with_extension("new"), &bytes).unwrap();
                fs::rename(path.with_extension("new"), &path).unwrap();
            },
            // Written to.
            &|| fs::write(&path, &bytes).unwrap(),
            // Removed.
            &|| fs::remove_file(&path).unwrap(),
        ];
        for change in changes {
            fs::write(&path, &bytes).unwrap();
            let e = read(&path, change);
            assert!(matches!(e, AnnDataError::Rewritten { .. }), "{e}");
            assert!(e.to_string().contains(name), "{e}");
        }
    }
}

#[test]
fn damaged_chunks_are_errors() {
    let (folder, cases) = written(SCRIPT);
    let mut refused = 0;
    for case in cases.iter().filter(|case| case.file.ends_with("-sum.h5ad") && case.error.is_none()) {
        let path = folder.path().join(&case.file);
        let good = fs::read(&path).unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let all = read_all(open, &path, &case.location).unwrap();
        for _ in 0..40 {
            // The latter half has nothing but chunks and their index.
            let mut bytes = good.clone();
            let at = rng.random_range(bytes.len() / 2..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
            fs::write(&path, &bytes).unwrap();
            match read_all(open, &path, &case.location) {
                // Nothing of this matrix was hit. To fletcher32, 0xffff is 0, but a bit alone does not make that of it.
                Ok(rows) => assert_eq!(rows, all, "{} {}: byte {at}", case.file, case.location),
                Err(_) => refused += 1,
            }
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_row_that_is_damaged_is_not_there() {
    let (folder, _) = written(SCRIPT);
    let file = MatrixFile::open(&folder.path().join("refused.h5ad"), "negative").unwrap();
    let mut reader = file.reader().unwrap();
    let mut out = Rows::Sparse(CsrRows::default());
    reader.fetch(&RowSelection::Rows(&[150, 151]), &mut out).unwrap();
    reader.decode(&mut out).unwrap();
    let before = out.clone();
    reader.fetch(&RowSelection::Range(0..100), &mut out).unwrap();
    assert!(reader.decode(&mut out).is_err());
    assert_eq!(out, before);
}

#[test]
fn rows_that_are_decompressed_together() {
    let (folder, _) = written(SCRIPT);
    let run = |file: &str, location: &str| MatrixFile::open(&folder.path().join(file), location).unwrap().run_rows();
    assert_eq!(run("filter-none.h5ad", "X"), 1);
    assert_eq!(run("filter-none.h5ad", "layers/wide"), 1);
    assert_eq!(run("filter-gzip.h5ad", "layers/wide"), 7);
    assert_eq!(run("filter-gzip.h5ad", "layers/split"), 10);
    assert_eq!(run("filter-gzip.h5ad", "layers/one"), 83);
    // 37 values of some 11 a row.
    assert_eq!(run("filter-gzip.h5ad", "X"), 3);
}

/// What part of a file the library itself reads (names, labels) is compressed in the same ways.
#[test]
fn the_library_reads_all_filters_too() {
    let (folder, cases) = written(SCRIPT);
    register_hdf5_filters().unwrap();
    register_hdf5_filters().unwrap();
    let mut read = 0;
    for case in cases.iter().filter(|case| case.file.starts_with("filter-") && case.location == "layers/split") {
        let expected = fs::read(folder.path().join(&case.values)).unwrap();
        let file = hdf5_metno::File::open(folder.path().join(&case.file)).unwrap();
        let found: Vec<f32> = file.dataset(&case.location).unwrap().read_raw().unwrap();
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&found), expected, "{}", case.file);
        read += 1;
    }
    assert!(read >= 25, "{read}");
}

#[test]
fn by_columns_within_bounds() {
    let (folder, _) = written(SCRIPT);
    let path = folder.path().join("anndata-csc-None.h5ad");
    let e = MatrixFile::open_within(&path, "X", 1000).unwrap_err().to_string();
    assert!(e.contains("CSC") && e.contains("adata.X.tocsr()") && e.contains("1000 are left"), "{e}");
}

/// A process that another thread starts while a file is written inherits the HDF5 library's descriptor of it.
#[test]
fn a_finished_file_is_read_while_a_process_lives_that_was_started_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cells.h5ad");
    let spec =
        AnnDataSpec { rows: 1, columns: 1, values: 1, matrix: Matrix::Csr, layout: Layout::Contiguous, threads: 1 };
    let mut writer = AnnDataWriter::create(&path, &spec).unwrap();
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let names = |name: &str| Frame { index: vec![name.to_owned()], columns: Vec::new() };
    writer.begin_obs(1, &[]).unwrap();
    writer.push_obs(&names("cell")).unwrap();
    writer.put_var(&[], &names("gene")).unwrap();
    writer.push(CsrRows { indptr: vec![0, 1], indices: vec![0], data: vec![2.0] }.view()).unwrap();
    writer.finish().unwrap();
    let opened = MatrixFile::open(&path, "X").map(|file| file.rows());
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(opened.unwrap(), 1);
}
