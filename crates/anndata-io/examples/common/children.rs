//! A search by child processes, so that a crash of a library in C is counted and does not end it.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anndata_io::AnnDataError;

use crate::fuzz::{Tally, without_numbers};

/// Cases of a child: starting one takes some milliseconds.
pub const CASES: u64 = 400;
/// No case takes so long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Seeds of an extension: one, or those of a folder, in order.
///
/// # Errors
/// The folder cannot be read.
pub fn seeds(path: &Path, extension: &str) -> std::io::Result<Vec<PathBuf>> {
    let is_seed = |path: &Path| path.extension().is_some_and(|found| found == extension);
    let mut seeds: Vec<PathBuf> = match is_seed(path) {
        true => vec![path.to_owned()],
        false => fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?,
    };
    seeds.retain(|path| is_seed(path));
    seeds.sort();
    Ok(seeds)
}

/// Start one child after another until the time is over: this program with `--child SEED FIRST_CASE PLACE_OF_THE_CASE`. What
/// ended one is kept in `findings`, copied by `keep`.
///
/// # Errors
/// A child cannot be started, a finding not kept.
pub fn search(
    seeds: &[PathBuf],
    extension: &str,
    seconds: u64,
    findings: &Path,
    keep: impl Fn(&Path, &Path) -> std::io::Result<()>,
) -> Result<ExitCode, Box<dyn Error>> {
    fs::create_dir_all(findings)?;
    let scratch = tempfile::tempdir()?;
    let case = scratch.path().join("case").with_extension(extension);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tally = Tally::default();
    let mut number = 0;
    while Instant::now() < end {
        let seed = &seeds[number as usize % seeds.len()];
        if let Some(outcome) = one_child(seed, number * CASES, &case, end, &mut tally)? {
            tally.add(&outcome, "");
            let name = seed.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let kept = findings.join(format!("{}-{name}-{number}.{extension}", outcome.replace([' ', ':'], "-")));
            keep(&case, &kept)?;
            println!("{outcome}: {}", kept.display());
        }
        number += 1;
    }
    println!("{} seeds, {number} children", seeds.len());
    Ok(tally.close())
}

/// Follow one child; what ended it, if that was not the end of its work.
fn one_child(
    seed: &Path,
    start: u64,
    case: &Path,
    end: Instant,
    tally: &mut Tally,
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
                if Tally::is_fine(what) {
                    tally.add(what, error);
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

/// In a child: read a case, and say in a line what came out. `read` says whether rows are those that they must be.
///
/// # Errors
/// Nobody listens.
pub fn say(case: &Path, read: impl FnOnce() -> Result<bool, AnnDataError>) -> std::io::Result<()> {
    let line = match catch_unwind(AssertUnwindSafe(read)) {
        Err(_) => "panic".to_owned(),
        Ok(Err(e)) => format!("error\t{}", without_numbers(&e.to_string(), case)),
        Ok(Ok(false)) => "other numbers".to_owned(),
        Ok(Ok(true)) => "rows".to_owned(),
    };
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    out.flush()?;
    if !line.starts_with("rows") && !line.starts_with("error") {
        // Until the case is kept.
        std::thread::sleep(PATIENCE);
    }
    Ok(())
}
