//! What the searches for bad input have alike: damage, bounds, and how often what came out.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use nix::libc;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

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
