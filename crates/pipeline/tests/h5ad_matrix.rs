//! Matrices of .h5ad files that Python wrote, in every layout, are read as Python has them; what cannot be read is refused.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use expctl_pipeline::PipelineError;
use expctl_pipeline::array::MatrixFile;
use expctl_pipeline::array::h5ad::register;
use expctl_pipeline::array::{CsrRows, Form, Rows, Wanted};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

#[derive(serde::Deserialize)]
struct Case {
    file: String,
    location: String,
    #[serde(default)]
    rows: u64,
    #[serde(default)]
    columns: u64,
    #[serde(default)]
    nnz: u64,
    #[serde(default)]
    form: String,
    #[serde(default)]
    values: String,
    error: Option<String>,
}

/// An interpreter with the packages that are pinned for tests.
fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("EXPCTL_TEST_PYTHON") {
        return python.into();
    }
    let output = Command::new(root().join("scripts/python.sh")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().into()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files, and what is in them.
fn written() -> (tempfile::TempDir, Vec<Case>) {
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("tests/python/write_h5ad_matrix.py");
    let output = Command::new(python()).arg(script).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cases = serde_json::from_slice(&fs::read(folder.path().join("cases.json")).unwrap()).unwrap();
    (folder, cases)
}

/// Rows with all their columns, and how many values they have stored.
fn dense(rows: &Rows, columns: usize) -> (Vec<f32>, u64) {
    match rows {
        Rows::Dense(rows) => {
            assert!(rows.data.is_empty() || rows.columns == columns);
            (rows.data.clone(), rows.data.len() as u64)
        }
        Rows::Sparse(rows) => {
            let mut all = vec![0.0; rows.len() * columns];
            for row in 0..rows.len() {
                let (indices, data) = rows.view().row(row);
                assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "columns ascend");
                for (index, value) in indices.iter().zip(data) {
                    all[row * columns + *index as usize] = *value;
                }
            }
            assert_eq!(rows.indices.len(), rows.data.len());
            (all, rows.data.len() as u64)
        }
    }
}

/// Bit for bit.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn what_python_wrote() {
    let (folder, cases) = written();
    let (mut good, mut bad) = (0, 0);
    for case in &cases {
        let path = folder.path().join(&case.file);
        let what = format!("{} {}", case.file, case.location);
        match &case.error {
            Some(error) => {
                let found = read_all(&path, &case.location).unwrap_err().to_string();
                assert!(found.contains(error.as_str()), "{what}: {error:?} is not in {found:?}");
                assert!(found.contains(&case.file), "{what}: {found}");
                bad += 1;
            }
            None => {
                check(case, &path, folder.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
                good += 1;
            }
        }
    }
    assert!(good >= 340 && bad >= 30, "{good} good, {bad} bad");
}

fn read_all(path: &Path, location: &str) -> Result<Rows, PipelineError> {
    let file = MatrixFile::open(path, location)?;
    let mut out = Rows::Sparse(CsrRows::default());
    let mut reader = file.reader()?;
    reader.fetch(&Wanted::Range(0..file.rows()), &mut out)?;
    reader.decode(&mut out)?;
    Ok(out)
}

fn check(case: &Case, path: &Path, folder: &Path) -> Result<(), PipelineError> {
    let expected: Vec<f32> = fs::read(folder.join(&case.values))
        .unwrap()
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let file = MatrixFile::open(path, &case.location)?;
    let columns = case.columns as usize;
    assert_eq!((file.rows(), file.columns(), file.nnz()), (case.rows, case.columns, case.nnz), "{}", case.location);
    assert_eq!(file.form(), if case.form == "dense" { Form::Dense } else { Form::Sparse });
    let mut reader = file.reader()?;
    let mut out = Rows::Sparse(CsrRows::default());
    reader.fetch(&Wanted::Range(0..file.rows()), &mut out)?;
    reader.decode(&mut out)?;
    let (values, stored) = dense(&out, columns);
    assert_eq!(bits(&values), bits(&expected), "{} {}", case.file, case.location);
    assert_eq!(stored, case.nnz);
    if case.rows == 0 {
        return Ok(());
    }
    // The same reader, piece by piece: rows in any order and more than once, short ranges, behind what is there already.
    let mut rng = Pcg64Mcg::seed_from_u64(case.rows);
    for _ in 0..12 {
        out.clear();
        let mut rows = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            if rng.random_range(0..2) == 0 {
                let some: Vec<u64> = (0..rng.random_range(0..40)).map(|_| rng.random_range(0..case.rows)).collect();
                reader.fetch(&Wanted::Rows(&some), &mut out)?;
                rows.extend(some);
            } else {
                let start = rng.random_range(0..=case.rows);
                let range = start..rng.random_range(start..=case.rows);
                reader.fetch(&Wanted::Range(range.clone()), &mut out)?;
                rows.extend(range);
            }
            reader.decode(&mut out)?;
            reader.unchanged()?;
        }
        let expected: Vec<u32> =
            rows.iter().flat_map(|row| bits(&expected[*row as usize * columns..][..columns])).collect();
        assert_eq!(bits(&dense(&out, columns).0), expected, "{} {}", case.file, case.location);
    }
    // Beyond the end is an error that leaves what was there.
    let before = out.clone();
    for wanted in [Wanted::Rows(&[0, case.rows]), Wanted::Range(1..case.rows + 1), Wanted::Range(case.rows..0)] {
        let e = reader.fetch(&wanted, &mut out).unwrap_err();
        assert!(e.to_string().contains("asked for"), "{e}");
        assert_eq!(out, before);
    }
    Ok(())
}

#[test]
fn a_file_that_changes() {
    let (folder, _) = written();
    let read = |path: &Path, change: &dyn Fn()| -> PipelineError {
        let file = MatrixFile::open(path, "X").unwrap();
        let mut reader = file.reader().unwrap();
        let mut out = Rows::Sparse(CsrRows::default());
        reader.fetch(&Wanted::Rows(&[3, 1]), &mut out).unwrap();
        reader.decode(&mut out).unwrap();
        reader.unchanged().unwrap();
        change();
        out.clear();
        let rest = reader.fetch(&Wanted::Rows(&[60, 70]), &mut out).and_then(|_| reader.decode(&mut out));
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
            assert!(matches!(e, PipelineError::Rewritten { .. }), "{e}");
            assert!(e.to_string().contains(name), "{e}");
        }
    }
}

#[test]
fn damaged_chunks_are_errors() {
    let (folder, cases) = written();
    let mut refused = 0;
    for case in cases.iter().filter(|case| case.file.ends_with("-sum.h5ad") && case.error.is_none()) {
        let path = folder.path().join(&case.file);
        let good = fs::read(&path).unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let all = read_all(&path, &case.location).unwrap();
        for _ in 0..40 {
            // The latter half has nothing but chunks and their index.
            let mut bytes = good.clone();
            let at = rng.random_range(bytes.len() / 2..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
            fs::write(&path, &bytes).unwrap();
            match read_all(&path, &case.location) {
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
    let (folder, _) = written();
    let file = MatrixFile::open(&folder.path().join("refused.h5ad"), "negative").unwrap();
    let mut reader = file.reader().unwrap();
    let mut out = Rows::Sparse(CsrRows::default());
    reader.fetch(&Wanted::Rows(&[150, 151]), &mut out).unwrap();
    reader.decode(&mut out).unwrap();
    let before = out.clone();
    reader.fetch(&Wanted::Range(0..100), &mut out).unwrap();
    assert!(reader.decode(&mut out).is_err());
    assert_eq!(out, before);
}

#[test]
fn rows_that_are_decompressed_together() {
    let (folder, _) = written();
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
    let (folder, cases) = written();
    register().unwrap();
    register().unwrap();
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
    let (folder, _) = written();
    let path = folder.path().join("anndata-csc-None.h5ad");
    let e = MatrixFile::open_within(&path, "X", 1000).unwrap_err().to_string();
    assert!(e.contains("CSC") && e.contains("adata.X.tocsr()") && e.contains("1000 are left"), "{e}");
}
