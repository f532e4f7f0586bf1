//! Reads damaged folders in zarr: whatever is in their files, the answer is rows or a clear error.
//!
//!     cargo run --release --example fuzz_zarr -- FOLDER_OF_SEEDS SECONDS [FOLDER_FOR_FINDINGS]
//!
//! Seeds are folders `*.zarr` that hold AnnData. A child process damages files of one (metadata more often than chunks) and reads
//! matrix, names and columns of it, so that a crash of Blosc, which is C, is counted and does not end the search. Ends with an
//! error if there was a panic, a crash, a child that hung, or one that took too much memory.

#![expect(clippy::print_stdout, reason = "a program")]

#[path = "common/children.rs"]
mod children;
#[path = "common/fuzz.rs"]
mod fuzz;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anndata_io::AnnDataError;
use anndata_io::zarr::open_matrix;
use anndata_io::{ArrayStore, CsrRows, RowSelection, Rows, ZarrStore};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::children::{CASES, say, search, seeds};
use crate::fuzz::{damage_at, limit_memory};

/// A child that asks for more address space is refused, and ends.
const MEMORY: u64 = 1 << 30;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--child", seed, start, scratch] => child(Path::new(seed), start.parse()?, Path::new(scratch)),
        [path, seconds, ref rest @ ..] if rest.len() < 2 => {
            let findings = rest.first().map_or_else(|| std::env::temp_dir().join("fuzz_zarr"), PathBuf::from);
            search(&seeds(Path::new(path), "zarr")?, "zarr", seconds.parse()?, &findings, copy)
        }
        _ => Err("usage: fuzz_zarr FOLDER_OF_SEEDS SECONDS [FOLDER_FOR_FINDINGS]".into()),
    }
}

/// Damage the seed in many ways, one after another, and read it; a line for each.
fn child(seed: &Path, start: u64, case: &Path) -> Result<ExitCode, Box<dyn Error>> {
    limit_memory(MEMORY)?;
    let files = files(seed, Path::new(""))?;
    let there: Vec<&str> = LOCATIONS.into_iter().filter(|location| read(seed, location).is_ok()).collect();
    let _ = fs::remove_dir_all(case);
    copy(seed, case)?;
    for number in start..start + CASES {
        let mut rng = Pcg64Mcg::seed_from_u64(number);
        let mut changed = Vec::new();
        for _ in 0..rng.random_range(1..=3) {
            let file = &files[rng.random_range(0..files.len())];
            let good = fs::read(seed.join(file))?;
            fs::write(case.join(file), damaged(&good, &mut rng))?;
            changed.push(file);
        }
        if rng.random_range(0..20) == 0 {
            fs::remove_file(case.join(changed[0]))?;
        }
        for location in &there {
            say(case, || read(case, location).map(|()| true))?;
        }
        for file in changed {
            fs::copy(seed.join(file), case.join(file))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is read of each that has it: a matrix alone, or its names and columns.
const LOCATIONS: [&str; 7] = ["X", "layers/split", "layers/large", "layers/f8", "layers/fives", "raw", "all"];

/// All rows, piece by piece, and some one by one from the end.
fn read(path: &Path, location: &str) -> Result<(), AnnDataError> {
    if location == "all" {
        let store = ZarrStore::open(path, "")?;
        store.row_names()?;
        for column in store.columns()? {
            store.labels(&column)?;
        }
        return Ok(());
    }
    let file = open_matrix(path, location)?;
    let mut reader = file.reader()?;
    let mut out = Rows::Sparse(CsrRows::default());
    for row in (0..file.rows()).rev().take(5) {
        reader.fetch(&RowSelection::Rows(&[row]), &mut out)?;
        reader.decode(&mut out)?;
        out.clear();
    }
    // What is not there is not in the folder either, but a dense matrix may have any number of rows that were never written.
    let mut start = 0;
    while start < file.rows().min(20_000) {
        let end = (start + 1000).min(file.rows());
        reader.fetch(&RowSelection::Range(start..end), &mut out)?;
        reader.decode(&mut out)?;
        out.clear();
        start = end;
    }
    reader.unchanged()
}

/// Files below a folder, from there.
fn files(folder: &Path, inside: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder.join(inside))? {
        let entry = entry?;
        let path = inside.join(entry.file_name());
        if entry.file_type()?.is_dir() { all.extend(files(folder, &path)?) } else { all.push(path) }
    }
    all.sort();
    Ok(all)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for file in files(from, Path::new(""))? {
        let target = to.join(&file);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(from.join(file), target)?;
    }
    Ok(())
}

/// One to four kinds of damage; of text also numbers and words that are others.
fn damaged(good: &[u8], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        let at = rng.random_range(0..len);
        let is_text = good.first() == Some(&b'{');
        match rng.random_range(0..100) {
            0..45 if is_text => {
                // A number becomes another one.
                let Some(first) = (at..len).find(|i| bytes[*i].is_ascii_digit()) else { continue };
                let end = (first..len).find(|i| !bytes[*i].is_ascii_digit()).unwrap_or(len);
                let values =
                    ["0", "1", "7", "64", "100000", "4294967296", "9223372036854775807", "-1", "1e300", "null"];
                bytes.splice(first..end, values[rng.random_range(0..values.len())].bytes());
            }
            45..60 if is_text => {
                // A word becomes one from elsewhere in the file.
                let words: Vec<(usize, usize)> = words(&bytes);
                if let [_, _, ..] = words[..] {
                    let (from, to) = (words[rng.random_range(0..words.len())], words[rng.random_range(0..words.len())]);
                    let word = bytes[from.0..from.1].to_vec();
                    bytes.splice(to.0..to.1, word);
                }
            }
            _ => damage_at(&mut bytes, at, rng),
        }
    }
    bytes
}

/// What is between quotation marks.
fn words(text: &[u8]) -> Vec<(usize, usize)> {
    let marks: Vec<usize> = (0..text.len()).filter(|i| text[*i] == b'"').collect();
    marks.chunks_exact(2).map(|pair| (pair[0] + 1, pair[1])).collect()
}
