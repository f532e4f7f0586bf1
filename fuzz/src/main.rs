//! Reads damaged files with every reader of expctl: whatever is in a file, the answer is its content or a clear error. README.md says
//! what is read.

mod child;
mod damage;
mod targets;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::child::{eprintln_line, search, seeds};
use crate::targets::{TARGETS, Target};

/// Any failure ends the program with its text.
type Failure = Box<dyn std::error::Error>;
/// Result of everything here.
type Outcome<T> = Result<T, Failure>;

const USAGE: &str = "usage: fuzz all|READER[,READER] SECONDS [--corpus FOLDER] [--findings FOLDER]";
/// The most frequent errors that are shown of a reader.
const SHOWN_ERRORS: usize = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln_line(&format!("fuzz: {failure}"));
            ExitCode::from(2)
        }
    }
}

fn target(name: &str) -> Outcome<&'static Target> {
    let known = || TARGETS.map(|target| target.name).join(", ");
    Ok(TARGETS.iter().find(|target| target.name == name).ok_or_else(|| format!("no reader {name}; {}", known()))?)
}

/// Whether all was fine.
fn run(arguments: &[&str]) -> Outcome<bool> {
    if let ["--child", name, seed, start, case] = arguments {
        return child::run(target(name)?, Path::new(seed), start.parse()?, Path::new(case)).map(|()| true);
    }
    let [names, seconds, options @ ..] = arguments else { return Err(USAGE.into()) };
    let mut corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut findings = std::env::temp_dir().join("expctl-fuzz");
    for pair in options.chunks(2) {
        match pair {
            ["--corpus", folder] => corpus = PathBuf::from(folder),
            ["--findings", folder] => findings = PathBuf::from(folder),
            _ => return Err(USAGE.into()),
        }
    }
    let chosen: Vec<&Target> = if *names == "all" {
        TARGETS.iter().collect()
    } else {
        names.split(',').map(target).collect::<Outcome<_>>()?
    };
    let time = Duration::from_secs(seconds.parse()?);
    let mut all_fine = true;
    for target in chosen {
        let seeds = seeds(&corpus.join(target.name))?;
        let tally = search(target, &seeds, time, &findings)?;
        let outcomes: Vec<String> = tally.outcomes.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let (name, cases, count) = (target.name, tally.cases(), seeds.len());
        eprintln_line(&format!("{name}: {count} seeds, {cases} cases: {}", outcomes.join(", ")));
        let mut errors: Vec<_> = tally.errors.iter().collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (error, count) in errors.iter().take(SHOWN_ERRORS) {
            eprintln_line(&format!("    {count:>7} × {error}"));
        }
        // A seed that is refused as it is shows a reader that reads nothing.
        for seed in &seeds {
            if let Err(refusal) = (target.read)(seed) {
                eprintln_line(&format!("    the seed {} itself is refused: {refusal}", seed.display()));
                all_fine = false;
            }
        }
        all_fine &= tally.is_fine();
    }
    Ok(all_fine)
}
