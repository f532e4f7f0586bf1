//! Matrices that Python wrote, in any format: all of them are read as Python has them.

use std::fs;
use std::path::Path;

use anndata_io::{AnnDataError, CsrRows, Form, MatrixFile, RowSelection, Rows};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::run_python;

/// A matrix in a file that Python wrote (`tests/python/matrix_cases.py`).
#[derive(serde::Deserialize)]
pub struct MatrixCase {
    pub file: String,
    pub location: String,
    #[serde(default)]
    pub rows: u64,
    #[serde(default)]
    pub columns: u64,
    #[serde(default)]
    pub nnz: u64,
    #[serde(default)]
    pub form: String,
    #[serde(default)]
    pub values: String,
    pub error: Option<String>,
}

/// The files that `script` writes, and what is in them.
pub fn written(script: &str) -> (tempfile::TempDir, Vec<MatrixCase>) {
    let folder = tempfile::tempdir().unwrap();
    run_python(script, &[folder.path()]);
    let cases = serde_json::from_slice(&fs::read(folder.path().join("cases.json")).unwrap()).unwrap();
    (folder, cases)
}

/// How a format opens the matrix at a location of a file.
pub type Open = fn(&Path, &str) -> Result<MatrixFile, AnnDataError>;

/// All rows, of what is then still the same.
pub fn read_all(open: Open, path: &Path, location: &str) -> Result<Rows, AnnDataError> {
    let file = open(path, location)?;
    let mut out = Rows::Sparse(CsrRows::default());
    let mut reader = file.reader()?;
    reader.fetch(&RowSelection::Range(0..file.rows()), &mut out)?;
    reader.decode(&mut out)?;
    reader.unchanged()?;
    Ok(out)
}

/// Read all of `cases` below `folder`; returns how many were as Python has them, and how many were refused as they must be.
pub fn check_all(open: Open, folder: &Path, cases: &[MatrixCase]) -> (usize, usize) {
    let (mut good, mut bad) = (0, 0);
    for case in cases {
        let path = folder.join(&case.file);
        let what = format!("{} {}", case.file, case.location);
        match &case.error {
            Some(error) => {
                let found = read_all(open, &path, &case.location).unwrap_err().to_string();
                assert!(found.contains(error.as_str()), "{what}: {error:?} is not in {found:?}");
                assert!(found.contains(&case.file), "{what}: {found}");
                bad += 1;
            }
            None => {
                check(open, case, folder).unwrap_or_else(|e| panic!("{what}: {e}"));
                good += 1;
            }
        }
    }
    (good, bad)
}

/// Rows with all their columns, bit for bit, and how many values they have stored.
fn dense(rows: &Rows, columns: usize) -> (Vec<u32>, u64) {
    match rows {
        Rows::Dense(rows) => {
            assert!(rows.data.is_empty() || rows.columns == columns);
            (rows.data.iter().map(|value| value.to_bits()).collect(), rows.data.len() as u64)
        }
        Rows::Sparse(rows) => {
            let mut all = vec![0; rows.len() * columns];
            for row in 0..rows.len() {
                let (indices, data) = rows.view().row(row);
                assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "columns ascend");
                for (index, value) in indices.iter().zip(data) {
                    all[row * columns + *index as usize] = value.to_bits();
                }
            }
            assert_eq!(rows.indices.len(), rows.data.len());
            (all, rows.data.len() as u64)
        }
    }
}

fn check(open: Open, case: &MatrixCase, folder: &Path) -> Result<(), AnnDataError> {
    let what = format!("{} {}", case.file, case.location);
    let expected: Vec<u32> = fs::read(folder.join(&case.values))
        .unwrap()
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let file = open(&folder.join(&case.file), &case.location)?;
    let columns = case.columns as usize;
    assert_eq!((file.rows(), file.columns(), file.nnz()), (case.rows, case.columns, case.nnz), "{what}");
    assert_eq!(file.form(), if case.form == "dense" { Form::Dense } else { Form::Sparse }, "{what}");
    let mut reader = file.reader()?;
    let mut out = Rows::Sparse(CsrRows::default());
    reader.fetch(&RowSelection::Range(0..file.rows()), &mut out)?;
    reader.decode(&mut out)?;
    let (values, stored) = dense(&out, columns);
    assert_eq!(values, expected, "{what}");
    assert_eq!(stored, case.nnz, "{what}");
    if case.rows == 0 {
        return Ok(());
    }
    // The same reader: single rows, rows in any order and more than once, short ranges, behind what is there already.
    let mut rng = Pcg64Mcg::seed_from_u64(case.rows);
    for _ in 0..12 {
        out.clear();
        let mut rows = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            if rng.random_range(0..2) == 0 {
                let most = [2, 40][rng.random_range(0..2)];
                let some: Vec<u64> = (0..rng.random_range(0..most)).map(|_| rng.random_range(0..case.rows)).collect();
                reader.fetch(&RowSelection::Rows(&some), &mut out)?;
                rows.extend(some);
            } else {
                let start = rng.random_range(0..=case.rows);
                let range = start..rng.random_range(start..=case.rows);
                reader.fetch(&RowSelection::Range(range.clone()), &mut out)?;
                rows.extend(range);
            }
            reader.decode(&mut out)?;
            reader.unchanged()?;
        }
        let expected: Vec<u32> =
            rows.iter().flat_map(|row| expected[*row as usize * columns..][..columns].to_vec()).collect();
        assert_eq!(dense(&out, columns).0, expected, "{what}");
    }
    // Beyond the end is an error that leaves what was there.
    let before = out.clone();
    for wanted in
        [RowSelection::Rows(&[0, case.rows]), RowSelection::Range(1..case.rows + 1), RowSelection::Range(case.rows..0)]
    {
        let e = reader.fetch(&wanted, &mut out).unwrap_err();
        assert!(e.to_string().contains("asked for"), "{e}");
        assert_eq!(out, before);
    }
    Ok(())
}
