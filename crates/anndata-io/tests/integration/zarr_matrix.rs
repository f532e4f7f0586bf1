//! Matrices in zarr that Python wrote, in every layout, are read as Python has them; what cannot be read is refused; what is
//! damaged is an error.

use std::fs;
use std::path::{Path, PathBuf};

use crate::matrix_cases::{check_all, read_all, written};
use anndata_io::zarr::{open_matrix, size};
use anndata_io::{AnnDataError, CsrRows, RowSelection, Rows};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SCRIPT: &str = "write_zarr_matrix.py";

#[test]
fn what_python_wrote() {
    let (folder, cases) = written(SCRIPT);
    let (good, bad) = check_all(open_matrix, folder.path(), &cases);
    assert!(good >= 300 && bad >= 18, "{good} good, {bad} bad");
    for case in cases.iter().filter(|case| case.error.is_none()) {
        let found = size(&folder.path().join(&case.file), &case.location).unwrap();
        assert_eq!(found, (case.rows, case.columns, case.nnz), "{} {}", case.file, case.location);
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
    let (folder, _) = written(SCRIPT);
    // Every chunk and every index has a checksum.
    let path = folder.path().join("v3-shards-crc32c.zarr");
    let all = read_all(open_matrix, &path, "X").unwrap();
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
            let e = read_all(open_matrix, &path, "X").unwrap_err().to_string();
            assert!(e.contains("v3-shards-crc32c.zarr") && e.contains("X/") && e.contains("crc32c"), "{e}");
        }
        for cut in [0, 3, good.len() / 2, good.len() - 1] {
            fs::write(shard, &good[..cut]).unwrap();
            assert!(read_all(open_matrix, &path, "X").is_err(), "{} bytes", cut);
        }
        fs::write(shard, &good).unwrap();
    }
    assert_eq!(read_all(open_matrix, &path, "X").unwrap(), all);
    // A file of the starts of rows that is missing is zeros, which no matrix with values has.
    fs::remove_file(path.join("X/indptr/c/0")).unwrap();
    assert!(read_all(open_matrix, &path, "X").unwrap_err().to_string().contains("indptr"));
    // An index that leads out of its file: of one without a checksum.
    let path = folder.path().join("v3-shards-no-sum.zarr");
    let shard = path.join("X/data/c/0");
    let mut bytes = fs::read(&shard).unwrap();
    let entry = bytes.len() - 4 * 16;
    let beyond = (bytes.len() as u64).to_le_bytes();
    bytes[entry..entry + 8].copy_from_slice(&beyond);
    fs::write(&shard, &bytes).unwrap();
    let e = read_all(open_matrix, &path, "X").unwrap_err().to_string();
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
        let e = read_all(open_matrix, &path, "X").unwrap_err().to_string();
        assert!(e.contains("X/indices"), "{e}");
    }
}

#[test]
fn a_folder_that_changes() {
    let (folder, _) = written(SCRIPT);
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
            let read = reader.fetch(&RowSelection::Rows(&[1, 2, 3]), &mut out).and_then(|_| reader.decode(&mut out));
            let e = read.and_then(|()| reader.unchanged()).unwrap_err();
            assert!(matches!(e, AnnDataError::Rewritten { .. }), "{e}");
            assert!(e.to_string().contains(name), "{e}");
        }
    }
}
