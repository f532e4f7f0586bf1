//! Matrices in zarr that Python wrote, in every layout, are read as Python has them; what cannot be read is refused; what is
//! damaged is an error; what is written here is read by Python.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use expctl_pipeline::PipelineError;
use expctl_pipeline::array::dataset::{ConvertOptions, convert_files};
use expctl_pipeline::array::zarr::{open_matrix, size};
use expctl_pipeline::array::{ArrayStore, CsrRows, Form, H5adStore, Rows, Wanted, ZarrStore};
use expctl_record::ArrayFormat;
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Run a script of `tests/python` with the packages that are pinned for tests.
fn python(script: &str, arguments: &[&Path]) {
    let python = match std::env::var_os("EXPCTL_TEST_PYTHON") {
        Some(python) => PathBuf::from(python),
        None => {
            let output = Command::new(root().join("scripts/python.sh")).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().into()
        }
    };
    let output = Command::new(python).arg(root().join("tests/python").join(script)).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The folders, and what is in them.
fn written() -> (tempfile::TempDir, Vec<Case>) {
    let folder = tempfile::tempdir().unwrap();
    python("write_zarr_matrix.py", &[folder.path()]);
    let cases = serde_json::from_slice(&fs::read(folder.path().join("cases.json")).unwrap()).unwrap();
    (folder, cases)
}

/// Rows with all their columns, bit for bit.
fn dense(rows: &Rows, columns: usize) -> Vec<u32> {
    match rows {
        Rows::Dense(rows) => rows.data.iter().map(|value| value.to_bits()).collect(),
        Rows::Sparse(rows) => {
            let mut all = vec![0; rows.len() * columns];
            for row in 0..rows.len() {
                let (indices, data) = rows.view().row(row);
                assert!(indices.windows(2).all(|pair| pair[0] < pair[1]), "columns ascend");
                for (index, value) in indices.iter().zip(data) {
                    all[row * columns + *index as usize] = value.to_bits();
                }
            }
            all
        }
    }
}

fn read_all(path: &Path, location: &str) -> Result<Rows, PipelineError> {
    let file = open_matrix(path, location)?;
    let mut out = Rows::Sparse(CsrRows::default());
    let mut reader = file.reader()?;
    reader.fetch(&Wanted::Range(0..file.rows()), &mut out)?;
    reader.decode(&mut out)?;
    reader.unchanged()?;
    Ok(out)
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
                check(case, &path, folder.path());
                good += 1;
            }
        }
    }
    assert!(good >= 300 && bad >= 18, "{good} good, {bad} bad");
}

fn check(case: &Case, path: &Path, folder: &Path) {
    let expected: Vec<u32> = fs::read(folder.join(&case.values))
        .unwrap()
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let what = format!("{} {}", case.file, case.location);
    let file = open_matrix(path, &case.location).unwrap_or_else(|e| panic!("{what}: {e}"));
    let columns = case.columns as usize;
    assert_eq!((file.rows(), file.columns(), file.nnz()), (case.rows, case.columns, case.nnz), "{what}");
    assert_eq!(size(path, &case.location).unwrap(), (case.rows, case.columns, case.nnz), "{what}");
    assert_eq!(file.form(), if case.form == "dense" { Form::Dense } else { Form::Sparse }, "{what}");
    let mut reader = file.reader().unwrap();
    let mut out = Rows::Sparse(CsrRows::default());
    reader.fetch(&Wanted::Range(0..file.rows()), &mut out).unwrap();
    reader.decode(&mut out).unwrap();
    assert_eq!(dense(&out, columns), expected, "{what}");
    // The same reader: single rows, rows in any order and more than once, short ranges, behind what is there already.
    let mut rng = Pcg64Mcg::seed_from_u64(case.rows);
    for _ in 0..12 {
        out.clear();
        let mut rows = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            if rng.random_range(0..2) == 0 {
                let most = [2, 40][rng.random_range(0..2)];
                let some: Vec<u64> = (0..rng.random_range(0..most)).map(|_| rng.random_range(0..case.rows)).collect();
                reader.fetch(&Wanted::Rows(&some), &mut out).unwrap();
                rows.extend(some);
            } else {
                let start = rng.random_range(0..=case.rows);
                let range = start..rng.random_range(start..=case.rows);
                reader.fetch(&Wanted::Range(range.clone()), &mut out).unwrap();
                rows.extend(range);
            }
            reader.decode(&mut out).unwrap();
            reader.unchanged().unwrap();
        }
        let expected: Vec<u32> =
            rows.iter().flat_map(|row| expected[*row as usize * columns..][..columns].to_vec()).collect();
        assert_eq!(dense(&out, columns), expected, "{what}");
    }
}

/// Files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

#[test]
fn damage_is_seen() {
    let (folder, _) = written();
    // Every chunk and every index has a checksum.
    let path = folder.path().join("v3-shards-crc32c.zarr");
    let all = read_all(&path, "X").unwrap();
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let shards: Vec<PathBuf> = files(&path.join("X")).into_iter().filter(|file| !file.ends_with("zarr.json")).collect();
    assert!(shards.len() > 3);
    for shard in &shards {
        let good = fs::read(shard).unwrap();
        for _ in 0..30 {
            let mut bytes = good.clone();
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
            fs::write(shard, &bytes).unwrap();
            let e = read_all(&path, "X").unwrap_err().to_string();
            assert!(e.contains("v3-shards-crc32c.zarr") && e.contains("X/") && e.contains("crc32c"), "{e}");
        }
        for cut in [0, 3, good.len() / 2, good.len() - 1] {
            fs::write(shard, &good[..cut]).unwrap();
            assert!(read_all(&path, "X").is_err(), "{} bytes", cut);
        }
        fs::write(shard, &good).unwrap();
    }
    assert_eq!(read_all(&path, "X").unwrap(), all);
    // A file of the starts of rows that is missing is zeros, which no matrix with values has.
    fs::remove_file(path.join("X/indptr/c/0")).unwrap();
    assert!(read_all(&path, "X").unwrap_err().to_string().contains("indptr"));
    // An index that leads out of its file: of one without a checksum.
    let path = folder.path().join("v3-shards-no-sum.zarr");
    let shard = path.join("X/data/c/0");
    let mut bytes = fs::read(&shard).unwrap();
    let entry = bytes.len() - 4 * 16;
    let beyond = (bytes.len() as u64).to_le_bytes();
    bytes[entry..entry + 8].copy_from_slice(&beyond);
    fs::write(&shard, &bytes).unwrap();
    let e = read_all(&path, "X").unwrap_err().to_string();
    assert!(e.contains("X/data") && e.contains("c/0") && e.contains("chunk 0"), "{e}");
    // Metadata that is cut short, or says what cannot be.
    let metadata = path.join("X/indices/zarr.json");
    let text = fs::read_to_string(&metadata).unwrap();
    let shape = text.find("\"shape\"").unwrap();
    for wrong in [
        text[..text.len() / 2].to_owned(),
        format!("{}\"shape\": [9223372036854775807], \"x\"{}", &text[..shape], &text[shape + 7..]),
        text.replace("[\n    37\n", "[\n    0\n").replace("37", "0"),
        text.replace("\"zarr_format\": 3", "\"zarr_format\": 4"),
        text.replace("regular", "rectilinear"),
        "[".repeat(100_000),
    ] {
        assert_ne!(wrong, text);
        fs::write(&metadata, wrong).unwrap();
        let e = read_all(&path, "X").unwrap_err().to_string();
        assert!(e.contains("X/indices"), "{e}");
    }
}

#[test]
fn a_folder_that_changes() {
    let (folder, _) = written();
    for name in ["v3-shards-blosc.zarr", "v2-none.zarr"] {
        let path = folder.path().join(name);
        let shard = path.join(if name.starts_with("v3") { "X/data/c/0" } else { "X/data/0" });
        let good = fs::read(&shard).unwrap();
        let changes: [&dyn Fn(); 4] = [
            &|| fs::OpenOptions::new().write(true).open(&shard).unwrap().set_len(9).unwrap(),
            &|| {
                fs::write(path.join("new"), &good).unwrap();
                fs::rename(path.join("new"), &shard).unwrap();
            },
            &|| fs::write(&shard, &good).unwrap(),
            &|| fs::remove_file(&shard).unwrap(),
        ];
        for change in changes {
            fs::write(&shard, &good).unwrap();
            fs::File::options().write(true).open(&shard).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            let file = open_matrix(&path, "X").unwrap();
            let mut reader = file.reader().unwrap();
            let mut out = Rows::Sparse(CsrRows::default());
            change();
            let read = reader.fetch(&Wanted::Rows(&[1, 2, 3]), &mut out).and_then(|_| reader.decode(&mut out));
            let e = read.and_then(|()| reader.unchanged()).unwrap_err();
            assert!(matches!(e, PipelineError::Rewritten { .. }), "{e}");
            assert!(e.to_string().contains(name), "{e}");
        }
    }
}

/// What is written here is what AnnData reads from the file that it was made of.
#[test]
fn python_reads_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    python("write_anndata.py", &[folder.path()]);
    let (one, made) = (folder.path().join("one"), folder.path().join("made"));
    let names = ["csr_columns", "dense_columns_chunked", "csc_columns", "no_rows", "no_values", "raw_and_layers"];
    let sources: Vec<PathBuf> = names.iter().map(|name| one.join(format!("{name}.h5ad"))).collect();
    let options = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
    let to = &mut |_| std::ops::ControlFlow::Continue(());
    let written = convert_files(&sources, ArrayFormat::Zarr, false, &options, &made, to).unwrap();
    python("read_zarr.py", &[&one, &made]);
    for (source, zarr) in sources.iter().zip(&written) {
        let (source, zarr) = (H5adStore::open(source, "").unwrap(), ZarrStore::open(zarr, "").unwrap());
        assert_eq!((source.len(), source.genes()), (zarr.len(), zarr.genes()));
        assert_eq!(source.row_names().unwrap(), zarr.row_names().unwrap());
        assert_eq!(source.columns().unwrap(), zarr.columns().unwrap());
        for column in source.columns().unwrap() {
            assert_eq!(source.labels(&column).unwrap(), zarr.labels(&column).unwrap());
        }
    }
    // Nothing is left beside them, and nothing is replaced.
    assert_eq!(fs::read_dir(&made).unwrap().count(), names.len());
    let e = convert_files(&sources, ArrayFormat::Zarr, false, &options, &made, to).unwrap_err().to_string();
    assert!(e.contains("not replaced"), "{e}");
}
