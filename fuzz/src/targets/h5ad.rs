//! `.h5ad` files: damage near the blocks of the HDF5 library, and rows of `X` and `raw`.

use std::fs;
use std::path::Path;

use anndata_io::{AnnDataError, CsrRows, MatrixFile, RowSelection, Rows};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::Digest;
use crate::Outcome;
use crate::damage::damage_at;

/// What libhdf5 has at the start of its own blocks: damage is done near these half of the time.
const BLOCKS: [&[u8]; 14] = [
    b"\x89HDF", b"TREE", b"SNOD", b"HEAP", b"GCOL", b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"BTHD", b"BTLF", b"FAHD",
    b"FADB", b"EAHD",
];

/// One to eight kinds of damage.
pub fn damage(seed: &Path, case: &Path, rng: &mut Pcg64Mcg) -> Outcome<()> {
    let mut bytes = fs::read(seed)?;
    let blocks: Vec<usize> =
        (0..bytes.len()).filter(|at| BLOCKS.iter().any(|block| bytes[*at..].starts_with(block))).collect();
    for _ in 0..rng.random_range(1..=8) {
        let len = bytes.len();
        let at = match blocks[..] {
            _ if len == 0 => break,
            [] => rng.random_range(0..len),
            _ if rng.random_range(0..2) == 0 => rng.random_range(0..len),
            _ => (blocks[rng.random_range(0..blocks.len())] + rng.random_range(0..300)).min(len - 1),
        };
        damage_at(&mut bytes, at, rng);
    }
    Ok(fs::write(case, bytes)?)
}

/// Rows of `X`, and of `raw` where there is one.
pub fn read(path: &Path) -> Outcome<u64> {
    let rows = rows(path, "X")?;
    // Most seeds have none.
    let _ = self::rows(path, "raw");
    Ok(digest(&rows))
}

/// All rows, at once, piece by piece, and one by one from the end.
fn rows(path: &Path, location: &str) -> Result<Rows, AnnDataError> {
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
        if out.capacity_bytes() > 1 << 28 {
            out.clear();
        }
        start = end;
    }
    reader.unchanged()?;
    Ok(out)
}

/// Of the rows as far as a checksum can tell: to fletcher32, which counts modulo 65535, 0xffff is 0.
fn digest(rows: &Rows) -> u64 {
    let mut digest = Digest::new();
    let floats = |data: &[f32], digest: &mut Digest| {
        for value in data {
            let halves = [value.to_bits() >> 16, value.to_bits() & 0xffff];
            halves.into_iter().for_each(|half| digest.add(u64::from(if half == 0xffff { 0 } else { half })));
        }
    };
    match rows {
        Rows::Dense(rows) => {
            digest.add(rows.columns as u64);
            floats(&rows.data, &mut digest);
        }
        Rows::Sparse(rows) => {
            rows.indptr.iter().for_each(|start| digest.add(*start));
            rows.indices.iter().for_each(|column| digest.add(*column as u64));
            floats(&rows.data, &mut digest);
        }
    }
    digest.value()
}
