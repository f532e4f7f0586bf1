//! Reads damaged .h5ad files: whatever is in a file, the answer is its rows or a clear error.
//!
//!     cargo run --release --example fuzz_h5ad -- SEED_FILE_OR_FOLDER SECONDS [FOLDER_FOR_FINDINGS]
//!
//! A child process damages seeds and reads them through the public reader, so that a crash of the HDF5 library, which is C,
//! is counted and does not end the search. Ends with an error if there was a panic, a crash, a child that hung, one that took
//! too much memory, or rows of a file with checksums everywhere (`*-strict.h5ad`) that differ from those of the seed.

#![expect(clippy::print_stdout, reason = "a program")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use expctl_pipeline::PipelineError;
use expctl_pipeline::array::MatrixFile;
use expctl_pipeline::array::{CsrRows, Rows, Wanted};
use nix::libc;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What libhdf5 has at the start of its own blocks: damage is done near these half of the time.
const BLOCKS: [&[u8]; 14] = [
    b"\x89HDF", b"TREE", b"SNOD", b"HEAP", b"GCOL", b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"BTHD", b"BTLF", b"FAHD",
    b"FADB", b"EAHD",
];
/// Cases of a child: starting one takes some milliseconds.
const CASES: u64 = 400;
/// No case takes so long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// A child that asks for more address space is refused, and ends.
const MEMORY: u64 = 1 << 30;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--child", seed, start, scratch] => child(Path::new(seed), start.parse()?, Path::new(scratch)),
        [seeds, seconds] => search(Path::new(seeds), seconds.parse()?, &std::env::temp_dir().join("fuzz_h5ad")),
        [seeds, seconds, findings] => search(Path::new(seeds), seconds.parse()?, Path::new(findings)),
        _ => Err("usage: fuzz_h5ad SEED_FILE_OR_FOLDER SECONDS [FOLDER_FOR_FINDINGS]".into()),
    }
}

/// Start one child after another until the time is over.
fn search(seeds: &Path, seconds: u64, findings: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let mut files: Vec<PathBuf> = match seeds.is_dir() {
        true => fs::read_dir(seeds)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?,
        false => vec![seeds.to_owned()],
    };
    files.retain(|file| file.extension().is_some_and(|extension| extension == "h5ad"));
    files.sort();
    fs::create_dir_all(findings)?;
    let scratch = tempfile::tempdir()?;
    let case = scratch.path().join("case.h5ad");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    let mut number = 0;
    while Instant::now() < end {
        let seed = &files[number as usize % files.len()];
        let outcome = one_child(seed, number * CASES, &case, end, &mut counts, &mut errors)?;
        if let Some(outcome) = outcome {
            *counts.entry(outcome.clone()).or_default() += 1;
            let name = seed.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let kept = findings.join(format!("{}-{name}-{number}.h5ad", outcome.replace([' ', ':'], "-")));
            fs::copy(&case, &kept)?;
            println!("{outcome}: {}", kept.display());
        }
        number += 1;
    }
    println!("{} seeds, {} children", files.len(), number);
    for (what, count) in &counts {
        println!("{count:>9} {what}");
    }
    println!("{} different errors (numbers left out), of these the most frequent:", errors.len());
    let mut errors: Vec<_> = errors.into_iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (error, count) in errors.iter().take(40) {
        println!("{count:>9} {error}");
    }
    let fine = counts.keys().all(|what| ["rows", "error"].contains(&what.as_str()));
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Follow one child; what ended it, if that was not the end of its work.
fn one_child(
    seed: &Path,
    start: u64,
    case: &Path,
    end: Instant,
    counts: &mut BTreeMap<String, u64>,
    errors: &mut BTreeMap<String, u64>,
) -> Result<Option<String>, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--child")
        .arg(seed)
        .arg(start.to_string())
        .arg(case)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (sender, lines) = channel();
    let stdout = child.stdout.take().ok_or("no output")?;
    let reading = std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let stderr = child.stderr.take().ok_or("no output")?;
    let complaint = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
    let mut outcome = None;
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                let (what, error) = line.split_once('\t').unwrap_or((&line, ""));
                if matches!(what, "rows" | "error") {
                    *counts.entry(what.to_owned()).or_default() += 1;
                    if !error.is_empty() {
                        *errors.entry(error.to_owned()).or_default() += 1;
                    }
                } else {
                    // It waits for the file to be kept.
                    outcome = Some(what.to_owned());
                    println!("{line}");
                    child.kill()?;
                    break;
                }
                if Instant::now() > end {
                    child.kill()?;
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                outcome = Some("hang".to_owned());
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait()?;
                if !status.success() {
                    outcome = Some(format!("crash {status}"));
                }
                break;
            }
        }
    }
    child.wait()?;
    let _ = reading.join();
    let complaint = complaint.join().unwrap_or_default();
    if let Some(what) = &mut outcome
        && complaint.contains("memory allocation")
    {
        *what = "memory".to_owned();
    }
    if outcome.is_some() && !complaint.is_empty() {
        println!("{}", complaint.lines().take(8).collect::<Vec<_>>().join("\n"));
    }
    Ok(outcome)
}

/// Damage the seed in many ways, one after another, and read it; a line for each.
fn child(seed: &Path, start: u64, case: &Path) -> Result<ExitCode, Box<dyn Error>> {
    // A crash leaves no large file behind.
    for (what, most) in [(libc::RLIMIT_AS, MEMORY), (libc::RLIMIT_CORE, 0)] {
        // SAFETY: the limits are there for as long as the call takes.
        if unsafe { libc::setrlimit(what, &libc::rlimit { rlim_cur: most, rlim_max: most }) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    let good = fs::read(seed)?;
    let strict = seed.to_string_lossy().ends_with("-strict.h5ad");
    let expected = if strict { Some(read(seed, "X")?) } else { None };
    let blocks: Vec<usize> =
        (0..good.len()).filter(|at| BLOCKS.iter().any(|block| good[*at..].starts_with(block))).collect();
    let mut out = std::io::stdout();
    for number in start..start + CASES {
        let bytes = damaged(&good, &blocks, &mut Pcg64Mcg::seed_from_u64(number));
        fs::write(case, &bytes)?;
        for location in ["X", "raw"] {
            let line = match catch_unwind(AssertUnwindSafe(|| read(case, location))) {
                Err(_) => "panic".to_owned(),
                Ok(Err(e)) => format!("error\t{}", without_numbers(&e.to_string(), case)),
                Ok(Ok(rows)) if expected.as_ref().is_some_and(|expected| !same(expected, &rows)) => {
                    "other numbers".to_owned()
                }
                Ok(Ok(_)) => "rows".to_owned(),
            };
            writeln!(out, "{line}")?;
            out.flush()?;
            if !line.starts_with("rows") && !line.starts_with("error") {
                // Until the file is kept.
                std::thread::sleep(PATIENCE);
            }
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
fn read(path: &Path, location: &str) -> Result<Rows, PipelineError> {
    let file = MatrixFile::open(path, location)?;
    let mut reader = file.reader()?;
    let mut out = Rows::Sparse(CsrRows::default());
    let last: Vec<u64> = (0..file.rows()).rev().take(5).collect();
    reader.fetch(&Wanted::Rows(&last), &mut out)?;
    reader.decode(&mut out)?;
    out.clear();
    // What is not allocated is not in the file either, but a dense matrix may have any number of rows that were never written.
    let mut start = 0;
    while start < file.rows().min(20_000) {
        let end = (start + 1000).min(file.rows());
        reader.fetch(&Wanted::Range(start..end), &mut out)?;
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
            // What has another length is refused at once: seldom.
            97 => bytes.truncate(at),
            98 => bytes.extend(std::iter::repeat_n(0, some * 50)),
            _ => {
                let part = bytes[at..at + some].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

/// An error as one of its kind.
fn without_numbers(error: &str, case: &Path) -> String {
    let text = error.replace(&*case.to_string_lossy(), "FILE");
    let mut kind = String::new();
    for c in text.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }) {
        if !(c == '#' && kind.ends_with('#')) {
            kind.push(if c.is_control() { ' ' } else { c });
        }
    }
    kind
}
