//! The child process that reads damaged seeds, and the search that starts one after another.
//!
//! A child writes a line for each case: `content`, `error` with the message, or what it should not have come to. It waits after a
//! finding, until its case has been copied.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, setrlimit};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::damage::{copy, remove};
use crate::targets::Target;
use crate::{Failure, Outcome};

/// Cases that one child reads, because starting a child takes milliseconds and most cases take less.
const CASES: u64 = 400;
/// Time after which a case counts as a hang. On a busy machine cases take less than a second.
const CASE_LIMIT: Duration = Duration::from_secs(30);
/// What to do where the corpus is not there: it is part of the repository.
const RESTORE_CORPUS: &str =
    concat!("`git -C ", env!("CARGO_MANIFEST_DIR"), " checkout -- corpus` brings back the corpus of the repository");
/// Address space of a child, bytes: what asks for more is refused, and the child ends.
const ADDRESS_SPACE: u64 = 1 << 30;

/// In a child: damages `seed` in [`CASES`] ways from number `start` on, and reads each at `case`.
///
/// # Errors
/// The seed cannot be read, or nobody listens.
pub fn run(target: &Target, seed: &Path, start: u64, case: &Path) -> Outcome<()> {
    setrlimit(Resource::RLIMIT_AS, ADDRESS_SPACE, ADDRESS_SPACE)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    std::panic::set_hook(Box::new(|panic| {
        // To the parent, which shows it with the finding.
        let _ = writeln!(std::io::stderr(), "{panic}");
    }));
    let is_strict = seed.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("-strict"));
    let expected = if is_strict { Some((target.read)(seed)?) } else { None };
    let mut out = std::io::stdout();
    for number in start..start + CASES {
        remove(case)?;
        (target.damage)(seed, case, &mut Pcg64Mcg::seed_from_u64(number))?;
        let line = match catch_unwind(AssertUnwindSafe(|| (target.read)(case))) {
            Err(_) => "panic".to_owned(),
            Ok(Err(e)) => format!("error\t{}", without_numbers(&e.to_string(), case)),
            Ok(Ok(digest)) if expected.is_some_and(|expected| expected != digest) => "other content".to_owned(),
            Ok(Ok(_)) => "content".to_owned(),
        };
        writeln!(out, "{line}")?;
        out.flush()?;
        if !is_fine(line.split('\t').next().unwrap_or_default()) {
            std::thread::sleep(CASE_LIMIT);
        }
    }
    Ok(())
}

/// What came out of a search.
#[derive(Default)]
pub struct Tally {
    /// Number of cases by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Number of cases by error, numbers left out.
    pub errors: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, outcome: &str, error: &str) {
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1;
        if !error.is_empty() {
            *self.errors.entry(error.to_owned()).or_default() += 1;
        }
    }

    /// Whether every case ended with content or an error.
    pub fn is_fine(&self) -> bool {
        self.outcomes.keys().all(|outcome| is_fine(outcome))
    }

    /// Number of cases.
    pub fn cases(&self) -> u64 {
        self.outcomes.values().sum()
    }
}

fn is_fine(outcome: &str) -> bool {
    matches!(outcome, "content" | "error")
}

/// Starts one child after another for `time`. What ended one is copied to `findings`.
///
/// # Errors
/// A child cannot be started, a finding not copied.
pub fn search(target: &Target, seeds: &[PathBuf], time: Duration, findings: &Path) -> Outcome<Tally> {
    let scratch = tempfile::tempdir()?;
    let end = Instant::now() + time;
    let mut tally = Tally::default();
    let mut number = 0;
    while Instant::now() < end {
        let seed = &seeds[number as usize % seeds.len()];
        let mut case = scratch.path().join("case");
        if let Some(extension) = seed.extension() {
            case.set_extension(extension);
        }
        // Of many seeds each gets its turn, also in a short search.
        let turn = (end - Instant::now().min(end)).min(time / seeds.len() as u32);
        if let Some(finding) = one_child(target, seed, number * CASES, &case, Instant::now() + turn, &mut tally)? {
            tally.add(&finding, "");
            fs::create_dir_all(findings)?;
            let name = seed.file_name().unwrap_or_default().to_string_lossy();
            let kept = findings.join(format!("{}-{}-{number}-{name}", target.name, finding.replace([' ', ':'], "-")));
            remove(&kept)?;
            copy(&case, &kept)?;
            eprintln_line(&format!("{finding}: {}", kept.display()));
        }
        number += 1;
    }
    Ok(tally)
}

/// Follows one child until `end`; what ended it, if that was neither the end of its work nor of its time.
fn one_child(
    target: &Target,
    seed: &Path,
    start: u64,
    case: &Path,
    end: Instant,
    tally: &mut Tally,
) -> Outcome<Option<String>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--child", target.name])
        .arg(seed)
        .arg(start.to_string())
        .arg(case)
        .stdin(Stdio::null())
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
    let errors = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap_or_default());
    let mut finding = None;
    loop {
        match lines.recv_timeout(CASE_LIMIT) {
            Ok(line) => {
                let (what, error) = line.split_once('\t').unwrap_or((&line, ""));
                if is_fine(what) {
                    tally.add(what, error);
                } else {
                    finding = Some(what.to_owned());
                    break;
                }
                if Instant::now() > end {
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                finding = Some("hang".to_owned());
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait()?;
                if !status.success() {
                    finding = Some(format!("crash {status}"));
                }
                break;
            }
        }
    }
    child.kill()?;
    child.wait()?;
    let _ = reading.join();
    let errors = errors.join().unwrap_or_default();
    if finding.as_ref().is_some_and(|found| found.starts_with("crash")) && errors.contains("memory allocation") {
        finding = Some("memory".to_owned());
    }
    if finding.is_some() {
        errors.lines().take(8).for_each(eprintln_line);
    }
    Ok(finding)
}

/// A line on stderr.
pub fn eprintln_line(line: &str) {
    // Nobody has to listen.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An error as one of its kind: digits and the path of the case are left out.
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

/// Seeds of a target, sorted.
///
/// # Errors
/// The folder cannot be read, or has none: with its path, and the command that brings back the corpus of the repository.
pub fn seeds(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let fail = |reason: &dyn std::fmt::Display| {
        format!(
            "no seeds of a reader in {}: {reason}\n  {RESTORE_CORPUS}\n  or give a folder that has a folder for each reader with --corpus",
            folder.display()
        )
    };
    let entries = fs::read_dir(folder).map_err(|e| fail(&e))?;
    let mut seeds: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    seeds.sort();
    if seeds.is_empty() { Err(fail(&"it is empty").into()) } else { Ok(seeds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_corpus_the_folder_and_what_brings_it_back_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("h5ad");
        for (path, why) in [(gone.as_path(), "No such file"), (folder.path(), "it is empty")] {
            let said = seeds(path).unwrap_err().to_string();
            assert!(said.contains(&format!("in {}: {why}", path.display())), "{said}");
            assert!(said.contains("checkout -- corpus` brings back") && said.contains("--corpus"), "{said}");
        }
    }
}
