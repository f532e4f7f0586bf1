//! What the searches for bad input have alike: bounds, and how often what came out.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use nix::libc;

/// Refuse this process more address space than `bytes`, and core files of crashes.
///
/// # Errors
/// The system's.
pub fn limit_memory(bytes: u64) -> std::io::Result<()> {
    for (what, most) in [(libc::RLIMIT_AS, bytes), (libc::RLIMIT_CORE, 0)] {
        // SAFETY: the limits are there for as long as the call takes.
        if unsafe { libc::setrlimit(what, &libc::rlimit { rlim_cur: most, rlim_max: most }) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// An error as one of its kind: digits and the path of the case are left out.
pub fn without_numbers(error: &str, case: &Path) -> String {
    let text = error.replace(&*case.to_string_lossy(), "FILE");
    let mut kind = String::new();
    for c in text.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }) {
        if !(c == '#' && kind.ends_with('#')) {
            kind.push(if c.is_control() { ' ' } else { c });
        }
    }
    kind
}

/// How often what came out.
#[derive(Default)]
pub struct Tally {
    outcomes: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
}

impl Tally {
    /// Whether an outcome is what is to be found here: rows, or a clear error.
    pub fn is_fine(outcome: &str) -> bool {
        matches!(outcome, "rows" | "error")
    }

    /// One more; of an error also its kind.
    pub fn add(&mut self, outcome: &str, error: &str) {
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1;
        if !error.is_empty() {
            *self.errors.entry(error.to_owned()).or_default() += 1;
        }
    }

    /// Print all, and whether all was fine.
    pub fn close(self) -> ExitCode {
        for (outcome, count) in &self.outcomes {
            println!("{count:>9} {outcome}");
        }
        println!("{} different errors (numbers left out), of these the most frequent:", self.errors.len());
        let mut errors: Vec<_> = self.errors.into_iter().collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (error, count) in errors.iter().take(60) {
            println!("{count:>9} {error}");
        }
        let fine = self.outcomes.keys().all(|outcome| Self::is_fine(outcome));
        if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
