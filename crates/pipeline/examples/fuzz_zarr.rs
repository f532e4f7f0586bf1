//! Reads damaged folders in zarr: whatever is in their files, the answer is rows or a clear error.
//!
//!     cargo run --release --example fuzz_zarr -- FOLDER_OF_SEEDS SECONDS [FOLDER_FOR_FINDINGS]
//!
//! Seeds are folders `*.zarr` that hold AnnData. A child process damages files of one (metadata more often than chunks) and reads
//! matrix, names and columns of it, so that a crash of Blosc, which is C, is counted and does not end the search. Ends with an
//! error if there was a panic, a crash, a child that hung, or one that took too much memory.

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
use expctl_pipeline::array::zarr::open_matrix;
use expctl_pipeline::array::{ArrayStore, CsrRows, Rows, Wanted, ZarrStore};
use nix::libc;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

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
        [seeds, seconds] => search(Path::new(seeds), seconds.parse()?, &std::env::temp_dir().join("fuzz_zarr")),
        [seeds, seconds, findings] => search(Path::new(seeds), seconds.parse()?, Path::new(findings)),
        _ => Err("usage: fuzz_zarr FOLDER_OF_SEEDS SECONDS [FOLDER_FOR_FINDINGS]".into()),
    }
}

/// Start one child after another until the time is over.
fn search(seeds: &Path, seconds: u64, findings: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(seeds)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "zarr"));
    files.sort();
    fs::create_dir_all(findings)?;
    let scratch = tempfile::tempdir()?;
    let case = scratch.path().join("case.zarr");
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
            let kept = findings.join(format!("{}-{name}-{number}.zarr", outcome.replace([' ', ':'], "-")));
            copy(&case, &kept)?;
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
    let files = files(seed, Path::new(""))?;
    let there: Vec<&str> = LOCATIONS.into_iter().filter(|location| read(seed, location).is_ok()).collect();
    let mut out = std::io::stdout();
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
            let line = match catch_unwind(AssertUnwindSafe(|| read(case, location))) {
                Err(_) => "panic".to_owned(),
                Ok(Err(e)) => format!("error\t{}", without_numbers(&e.to_string(), case)),
                Ok(Ok(())) => "rows".to_owned(),
            };
            writeln!(out, "{line}")?;
            out.flush()?;
            if !line.starts_with("rows") && !line.starts_with("error") {
                // Until the folder is kept.
                std::thread::sleep(PATIENCE);
            }
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
fn read(path: &Path, location: &str) -> Result<(), PipelineError> {
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
        reader.fetch(&Wanted::Rows(&[row]), &mut out)?;
        reader.decode(&mut out)?;
        out.clear();
    }
    // What is not there is not in the folder either, but a dense matrix may have any number of rows that were never written.
    let mut start = 0;
    while start < file.rows().min(20_000) {
        let end = (start + 1000).min(file.rows());
        reader.fetch(&Wanted::Range(start..end), &mut out)?;
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
        let some = rng.random_range(1..=64).min(len - at);
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
            0..37 => bytes[at] ^= 1 << rng.random_range(0..8),
            37..57 => bytes[at] = rng.random_range(0..=255),
            57..77 => {
                let values =
                    [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX, u64::MAX - 1, 1 << 40, len as u64];
                let width = [1, 2, 4, 8][rng.random_range(0..4)].min(len - at);
                let value = values[rng.random_range(0..values.len())].to_le_bytes();
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            77..84 => bytes[at..at + some].fill(0),
            84..91 => {
                let from = rng.random_range(0..=len - some);
                bytes.copy_within(from..from + some, at);
            }
            91..94 => bytes.truncate(at),
            94..97 => bytes.extend(std::iter::repeat_n(0, some * 50)),
            _ => {
                let part = bytes[at..at + some].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

/// What is between quotation marks.
fn words(text: &[u8]) -> Vec<(usize, usize)> {
    let marks: Vec<usize> = (0..text.len()).filter(|i| text[*i] == b'"').collect();
    marks.chunks_exact(2).map(|pair| (pair[0] + 1, pair[1])).collect()
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
