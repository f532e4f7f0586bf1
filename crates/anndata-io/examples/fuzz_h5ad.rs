//! Reads damaged .h5ad files: whatever is in a file, the answer is its rows or a clear error.
//!
//!     cargo run --release --example fuzz_h5ad -- SEED_FILE_OR_FOLDER SECONDS [FOLDER_FOR_FINDINGS]
//!
//! A child process damages seeds and reads them through the public reader, so that a crash of the HDF5 library, which is C,
//! is counted and does not end the search. Ends with an error if there was a panic, a crash, a child that hung, one that took
//! too much memory, or rows of a file with checksums everywhere (`*-strict.h5ad`) that differ from those of the seed.

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
use anndata_io::MatrixFile;
use anndata_io::{CsrRows, RowSelection, Rows};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::children::{CASES, say, search, seeds};
use crate::fuzz::{damage_at, limit_memory};

/// What libhdf5 has at the start of its own blocks: damage is done near these half of the time.
const BLOCKS: [&[u8]; 14] = [
    b"\x89HDF", b"TREE", b"SNOD", b"HEAP", b"GCOL", b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"BTHD", b"BTLF", b"FAHD",
    b"FADB", b"EAHD",
];
/// A child that asks for more address space is refused, and ends.
const MEMORY: u64 = 1 << 30;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--child", seed, start, scratch] => child(Path::new(seed), start.parse()?, Path::new(scratch)),
        [path, seconds, ref rest @ ..] if rest.len() < 2 => {
            let findings = rest.first().map_or_else(|| std::env::temp_dir().join("fuzz_h5ad"), PathBuf::from);
            let keep = |case: &Path, kept: &Path| fs::copy(case, kept).map(drop);
            search(&seeds(Path::new(path), "h5ad")?, "h5ad", seconds.parse()?, &findings, keep)
        }
        _ => Err("usage: fuzz_h5ad SEED_FILE_OR_FOLDER SECONDS [FOLDER_FOR_FINDINGS]".into()),
    }
}

/// Damage the seed in many ways, one after another, and read it; a line for each.
fn child(seed: &Path, start: u64, case: &Path) -> Result<ExitCode, Box<dyn Error>> {
    limit_memory(MEMORY)?;
    let good = fs::read(seed)?;
    let strict = seed.to_string_lossy().ends_with("-strict.h5ad");
    let expected = if strict { Some(read(seed, "X")?) } else { None };
    let blocks: Vec<usize> =
        (0..good.len()).filter(|at| BLOCKS.iter().any(|block| good[*at..].starts_with(block))).collect();
    for number in start..start + CASES {
        let bytes = damaged(&good, &blocks, &mut Pcg64Mcg::seed_from_u64(number));
        fs::write(case, &bytes)?;
        for location in ["X", "raw"] {
            say(case, || {
                let rows = read(case, location)?;
                Ok(expected.as_ref().is_none_or(|expected| same(expected, &rows)))
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The same rows, as far as a checksum can tell: to fletcher32, which counts modulo 65535, 0xffff is 0.
fn same(one: &Rows, other: &Rows) -> bool {
    let halves = |number: u32| [number >> 16, number & 0xffff].map(|half| if half == 0xffff { 0 } else { half });
    let alike = |one: &[u32], other: &[u32]| {
        one.len() == other.len() && one.iter().zip(other).all(|(one, other)| halves(*one) == halves(*other))
    };
    match (one, other) {
        (Rows::Dense(one), Rows::Dense(other)) => {
            one.columns == other.columns && alike(bytemuck::cast_slice(&one.data), bytemuck::cast_slice(&other.data))
        }
        (Rows::Sparse(one), Rows::Sparse(other)) => {
            one.indptr == other.indptr
                && one.indices == other.indices
                && alike(bytemuck::cast_slice(&one.data), bytemuck::cast_slice(&other.data))
        }
        _ => false,
    }
}

/// All rows, at once, piece by piece, and one by one from the end.
fn read(path: &Path, location: &str) -> Result<Rows, AnnDataError> {
    let file = MatrixFile::open(path, location)?;
    let mut reader = file.reader()?;
    let mut out = Rows::Sparse(CsrRows::default());
    let last: Vec<u64> = (0..file.rows()).rev().take(5).collect();
    reader.fetch(&RowSelection::Rows(&last), &mut out)?;
    reader.decode(&mut out)?;
    out.clear();
    // What is not allocated is not in the file either, but a dense matrix may have any number of rows that were never written.
    let mut start = 0;
    while start < file.rows().min(20_000) {
        let end = (start + 1000).min(file.rows());
        reader.fetch(&RowSelection::Range(start..end), &mut out)?;
        reader.decode(&mut out)?;
        if out.capacity_bytes() > 1 << 30 {
            out.clear();
        }
        start = end;
    }
    reader.unchanged()?;
    Ok(out)
}

/// One to eight kinds of damage.
fn damaged(good: &[u8], blocks: &[usize], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..rng.random_range(1..=8) {
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        let at = match blocks {
            [] => rng.random_range(0..len),
            _ if rng.random_range(0..2) == 0 => rng.random_range(0..len),
            _ => (blocks[rng.random_range(0..blocks.len())] + rng.random_range(0..300)).min(len - 1),
        };
        damage_at(&mut bytes, at, rng);
    }
    bytes
}
