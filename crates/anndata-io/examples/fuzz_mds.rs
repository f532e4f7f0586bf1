//! Reads damaged MDS shards: whatever is in a folder, the answer is its rows or a clear error.
//!
//!     cargo run --release --example fuzz_mds -- FOLDER_OF_SEEDS SECONDS [FOLDER_FOR_FINDINGS]
//!
//! A seed is a folder with `index.json`, for example of `tests/python/write_mds.py`. One file of it is damaged at a time: the
//! index as bytes or as JSON, a shard, or what is in a compressed shard, which is then compressed once more with the index
//! made to fit. Ends with an error if there was a panic, a case that took seconds, or rows of a compressed shard with a hash
//! that differ from those of the seed; takes no more than 1 GiB of address space, without which it aborts.

#![expect(clippy::print_stdout, reason = "a program")]

#[path = "common/fuzz.rs"]
mod fuzz;

use std::error::Error;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anndata_io::AnnDataError;
use anndata_io::{ArrayStore, CsrRows, DenseRows, Form, MdsStore, RowSelection, Rows};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::fuzz::{Tally, damage_at, limit_memory, without_numbers};

/// No case takes so long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// More address space is refused, which ends the program.
const MEMORY: u64 = 1 << 30;
/// Columns of obs that seeds have.
const OBS: [&str; 9] = ["text", "batch", "small", "wide", "score", "half", "digits", "decimal", "kind"];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [seeds, seconds] => search(Path::new(seeds), seconds.parse()?, &std::env::temp_dir().join("fuzz_mds")),
        [seeds, seconds, findings] => search(Path::new(seeds), seconds.parse()?, Path::new(findings)),
        _ => Err("usage: fuzz_mds FOLDER_OF_SEEDS SECONDS [FOLDER_FOR_FINDINGS]".into()),
    }
}

/// A folder of MDS shards.
struct Seed {
    name: String,
    /// All its files.
    files: Vec<(String, Vec<u8>)>,
    rows: Rows,
}

fn search(seeds: &Path, seconds: u64, findings: &Path) -> Result<ExitCode, Box<dyn Error>> {
    limit_memory(MEMORY)?;
    let mut folders: Vec<PathBuf> =
        fs::read_dir(seeds)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    folders.retain(|folder| folder.join("index.json").is_file());
    folders.sort();
    let seeds = folders.iter().map(|folder| seed(folder)).collect::<Result<Vec<_>, _>>()?;
    let scratch = tempfile::tempdir()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tally = Tally::default();
    let mut number = 0_u64;
    std::panic::set_hook(Box::new(|_| ()));
    while Instant::now() < end {
        let seed = &seeds[number as usize % seeds.len()];
        let case = scratch.path().join(&seed.name);
        if !case.exists() {
            fs::create_dir(&case)?;
            seed.files.iter().try_for_each(|(name, bytes)| fs::write(case.join(name), bytes))?;
        }
        let mut rng = Pcg64Mcg::seed_from_u64(number);
        let (damaged, strict) = damage(seed, &mut rng)?;
        damaged.iter().try_for_each(|(name, bytes)| fs::write(case.join(name), bytes))?;
        let started = Instant::now();
        let mut kind = String::new();
        let outcome = match catch_unwind(AssertUnwindSafe(|| read(&case, &mut rng))) {
            Err(_) => "panic",
            Ok(_) if started.elapsed() > PATIENCE => "slow",
            Ok(Err(e)) => {
                kind = without_numbers(&e.to_string(), &case);
                "error"
            }
            Ok(Ok(rows)) if strict && !same(&rows, &seed.rows) => "other numbers",
            Ok(Ok(_)) => "rows",
        };
        tally.add(outcome, &kind);
        if !Tally::is_fine(outcome) {
            let kept = findings.join(format!("{}-{}-{number}", outcome.replace(' ', "-"), seed.name));
            fs::create_dir_all(&kept)?;
            for (name, _) in &seed.files {
                fs::copy(case.join(name), kept.join(name))?;
            }
            println!("{outcome}: {}", kept.display());
        }
        for (name, _) in &damaged {
            let good = seed.files.iter().find(|(of, _)| of == name);
            good.map_or(Ok(()), |(_, bytes)| fs::write(case.join(name), bytes))?;
        }
        number += 1;
    }
    println!("{} seeds, {number} cases", seeds.len());
    Ok(tally.close())
}

fn seed(folder: &Path) -> Result<Seed, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        files.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), fs::read(&path)?));
    }
    files.sort();
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Seed { name, files, rows: rows(&MdsStore::open(folder)?)? })
}

/// All rows.
fn rows(store: &MdsStore) -> Result<Rows, AnnDataError> {
    let mut out = match store.form() {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows::default()),
    };
    let mut reader = store.reader()?;
    reader.fetch(&RowSelection::Range(0..store.len()), &mut out)?;
    reader.decode(&mut out)?;
    reader.unchanged()?;
    Ok(out)
}

/// Rows one by one, columns of obs, and all rows.
fn read(folder: &Path, rng: &mut Pcg64Mcg) -> Result<Rows, AnnDataError> {
    let store = MdsStore::open(folder)?;
    let mut some = match store.form() {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows::default()),
    };
    let picks: Vec<u64> = (0..9).map(|_| rng.random_range(0..store.len().max(1))).collect();
    // An error here is one of all rows, too, but both ways are to be gone.
    let mut reader = store.reader()?;
    let _ = reader.fetch(&RowSelection::Rows(&picks), &mut some).and_then(|_| reader.decode(&mut some));
    let column = OBS[rng.random_range(0..OBS.len())];
    let _ = store.labels(column);
    let _ = store.numbers(column);
    rows(&store)
}

fn same(one: &Rows, other: &Rows) -> bool {
    let bits = |one: &[f32], other: &[f32]| {
        one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.to_bits() == other.to_bits())
    };
    match (one, other) {
        (Rows::Dense(one), Rows::Dense(other)) => one.columns == other.columns && bits(&one.data, &other.data),
        (Rows::Sparse(one), Rows::Sparse(other)) => {
            one.indptr == other.indptr && one.indices == other.indices && bits(&one.data, &other.data)
        }
        _ => false,
    }
}

/// Files of a seed with some damage, and whether the rows must be those of the seed if there are any.
#[expect(clippy::type_complexity, reason = "two answers")]
fn damage(seed: &Seed, rng: &mut Pcg64Mcg) -> Result<(Vec<(String, Vec<u8>)>, bool), Box<dyn Error>> {
    let index = seed.files.iter().find(|(name, _)| name == "index.json").ok_or("a seed without an index")?;
    let about: Value = serde_json::from_slice(&index.1)?;
    let number = rng.random_range(0..about["shards"].as_array().map_or(1, Vec::len).max(1));
    let shard = &about["shards"][number];
    let zip = shard["zip_data"]["basename"].as_str();
    let name = zip.or(shard["raw_data"]["basename"].as_str()).ok_or("a shard without a name")?;
    let file = seed.files.iter().find(|(of, _)| of == name).ok_or("a shard without a file")?;
    Ok(match rng.random_range(0..10) {
        0..2 => (vec![(index.0.clone(), flipped(&index.1, rng, 0))], false),
        2..5 => {
            let mut changed = about.clone();
            for _ in 0..rng.random_range(1..=3) {
                change(&mut changed, rng);
            }
            (vec![(index.0.clone(), changed.to_string().into_bytes())], false)
        }
        5..8 if zip.is_some() && shard["compression"].as_str().is_some_and(|name| name.starts_with("zstd")) => {
            let raw = zstd::decode_all(&file.1[..])?;
            let raw = flipped(&raw, rng, 4 * shard["samples"].as_u64().unwrap_or(0) as usize + 600);
            let packed = zstd::bulk::compress(&raw, 1)?;
            let mut changed = about.clone();
            let shard = &mut changed["shards"][number];
            for (key, len) in [("raw_data", raw.len()), ("zip_data", packed.len())] {
                shard[key]["bytes"] = len.into();
                shard[key]["hashes"] = serde_json::json!({});
            }
            (vec![(index.0.clone(), changed.to_string().into_bytes()), (file.0.clone(), packed)], false)
        }
        _ => {
            let head = 4 * shard["samples"].as_u64().unwrap_or(0) as usize + 600;
            let hashes = shard["zip_data"]["hashes"].as_object();
            let known = hashes.is_some_and(|hashes| hashes.keys().any(|name| name != "md5" && name != "blake2b"));
            (vec![(file.0.clone(), flipped(&file.1, rng, head))], known)
        }
    })
}

/// Change one value somewhere in JSON.
fn change(value: &mut Value, rng: &mut Pcg64Mcg) {
    const NUMBERS: [u64; 12] = [0, 1, 2, 3, 7, 255, 65_536, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 40, u64::MAX];
    const TEXTS: [&str; 16] = [
        "zstd",
        "gz",
        "snappy",
        "br",
        "mds",
        "x",
        "indices",
        "values",
        "ndarray",
        "ndarray:int8",
        "ndarray:float64",
        "ndarray:uint16:3",
        "bytes",
        "str",
        "int",
        "../x",
    ];
    let deeper = rng.random_range(0..12) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let at = rng.random_range(0..map.len());
            if rng.random_range(0..30) == 0 {
                let key = map.keys().nth(at).cloned().unwrap_or_default();
                map.remove(&key);
            } else if let Some(inner) = map.values_mut().nth(at) {
                change(inner, rng);
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = rng.random_range(0..list.len());
            match rng.random_range(0..20) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                _ => change(&mut list[at], rng),
            }
        }
        Value::Number(number) if rng.random_range(0..3) > 0 => {
            let near = number.as_u64().unwrap_or(0).wrapping_add_signed(rng.random_range(-9..=9));
            *value = near.into();
        }
        other => {
            *other = match rng.random_range(0..6) {
                0 => Value::Null,
                1 => (-1).into(),
                2 | 3 => TEXTS[rng.random_range(0..TEXTS.len())].into(),
                _ => NUMBERS[rng.random_range(0..NUMBERS.len())].into(),
            }
        }
    }
}

/// One to three kinds of damage to bytes, a quarter of them in the first `head`.
fn flipped(good: &[u8], rng: &mut Pcg64Mcg, head: usize) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..rng.random_range(1..=3) {
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        let head = head.min(len - 1);
        let zone = if rng.random_range(0..4) == 0 { 0..head.max(1) } else { head..len };
        let at = rng.random_range(zone);
        damage_at(&mut bytes, at, rng);
    }
    bytes
}
