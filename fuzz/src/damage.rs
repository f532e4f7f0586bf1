//! Damage to bytes, by a random number generator: the same number does the same damage.

use std::fs;
use std::path::{Path, PathBuf};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Numbers that are often wrong.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "7",
    "64",
    "100000",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "-1",
    "1e300",
    "0x",
    "null",
];

/// One to four kinds of damage to a file; of text also numbers and words that are others.
pub fn damaged(good: &[u8], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut bytes = good.to_vec();
    let is_text = std::str::from_utf8(good).is_ok();
    for _ in 0..rng.random_range(1..=4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..100) {
            0..45 if is_text => other_number(&mut bytes, at, rng),
            45..60 if is_text => other_word(&mut bytes, rng),
            _ => damage_at(&mut bytes, at, rng),
        }
    }
    bytes
}

/// The next number from `at` becomes another one.
fn other_number(bytes: &mut Vec<u8>, at: usize, rng: &mut Pcg64Mcg) {
    let len = bytes.len();
    let Some(first) = (at..len).find(|i| bytes[*i].is_ascii_digit()) else { return };
    let end = (first..len).find(|i| !bytes[*i].is_ascii_digit()).unwrap_or(len);
    bytes.splice(first..end, NUMBERS[rng.random_range(0..NUMBERS.len())].bytes());
}

/// A word in quotation marks becomes one from elsewhere in the file.
fn other_word(bytes: &mut Vec<u8>, rng: &mut Pcg64Mcg) {
    let marks: Vec<usize> = (0..bytes.len()).filter(|i| bytes[*i] == b'"').collect();
    let words: Vec<(usize, usize)> = marks.chunks_exact(2).map(|pair| (pair[0] + 1, pair[1])).collect();
    if let [_, _, ..] = words[..] {
        let (from, to) = (words[rng.random_range(0..words.len())], words[rng.random_range(0..words.len())]);
        let word = bytes[from.0..from.1].to_vec();
        bytes.splice(to.0..to.1, word);
    }
}

/// One kind of damage at a place in `bytes`, which are not empty: bits, bytes, numbers that are often wrong, zeros, bytes of another
/// place; seldom another length, which most formats refuse at once.
pub fn damage_at(bytes: &mut Vec<u8>, at: usize, rng: &mut Pcg64Mcg) {
    let len = bytes.len();
    let some = rng.random_range(1..=64).min(len - at);
    match rng.random_range(0..100) {
        0..37 => bytes[at] ^= 1 << rng.random_range(0..8),
        37..57 => bytes[at] = rng.random_range(0..=255),
        57..77 => {
            let values =
                [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX, u64::MAX - 1, 1 << 40, len as u64];
            let width = [1, 2, 4, 8][rng.random_range(0..4)].min(len - at);
            let value = values[rng.random_range(0..values.len())].to_le_bytes();
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
        77..87 => bytes[at..at + some].fill(0),
        87..97 => {
            let from = rng.random_range(0..=len - some);
            bytes.copy_within(from..from + some, at);
        }
        97 => bytes.truncate(at),
        98 => bytes.extend(std::iter::repeat_n(0, some * 50)),
        _ => {
            let part = bytes[at..at + some].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

/// Copies a seed, a file or a folder, and damages one to three of its files; seldom one is removed.
///
/// # Errors
/// The system's.
pub fn damaged_copy(seed: &Path, case: &Path, rng: &mut Pcg64Mcg) -> std::io::Result<()> {
    if seed.is_file() {
        return fs::write(case, damaged(&fs::read(seed)?, rng));
    }
    copy(seed, case)?;
    let files = files(seed)?;
    for _ in 0..rng.random_range(1..=3) {
        let file = &files[rng.random_range(0..files.len())];
        fs::write(case.join(file), damaged(&fs::read(seed.join(file))?, rng))?;
    }
    if rng.random_range(0..20) == 0 {
        fs::remove_file(case.join(&files[rng.random_range(0..files.len())]))?;
    }
    Ok(())
}

/// Files below a folder, from there, sorted.
///
/// # Errors
/// The system's.
pub fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(inside) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inside))? {
            let entry = entry?;
            let path = inside.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(path) } else { all.push(path) }
        }
    }
    all.sort();
    Ok(all)
}

/// Copies a file or a folder.
///
/// # Errors
/// The system's.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_file() {
        return fs::copy(from, to).map(drop);
    }
    for file in files(from)? {
        let target = to.join(&file);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(from.join(file), target)?;
    }
    Ok(())
}

/// Removes a file or a folder, if it is there.
///
/// # Errors
/// The system's.
pub fn remove(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}
