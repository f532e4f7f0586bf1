//! For tests of all packages: the one way to skip a test.
//!
//! Invariant: a test that does not run says so on standard error, where `scripts/test.sh` counts it, and fails where the caller of
//! the tests requires what it needs.

use std::io::Write;

/// Names the requirements that must be there: `EXPCTL_REQUIRE=slurm,python,chromium,ssh`.
pub const REQUIRE: &str = "EXPCTL_REQUIRE";

/// What a test may need and a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// A real Slurm: root on Debian, with namespaces.
    Slurm,
    /// Python packages from the package index.
    Python,
    /// Chromium, for pages.
    Chromium,
    /// The server of OpenSSH.
    Ssh,
    /// An NVIDIA GPU with its driver.
    Gpu,
    /// Anything else that only some machines have.
    Other,
}

impl Requirement {
    /// Its name in [`REQUIRE`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Python => "python",
            Self::Chromium => "chromium",
            Self::Ssh => "ssh",
            Self::Gpu => "gpu",
            Self::Other => "other",
        }
    }
}

/// Say that the test of this thread does not run, and why. The caller returns from the test then.
///
/// Standard error is written to directly, because the test harness captures what `eprintln!` prints.
///
/// # Panics
///
/// If [`REQUIRE`] names the requirement: the test fails.
pub fn skip(requirement: Requirement, why: impl std::fmt::Display) {
    let thread = std::thread::current();
    skip_test(thread.name().unwrap_or("a test"), requirement, why);
}

/// [`skip`], for a test whose thread has another name (a case within a test, a process that a test started).
///
/// # Panics
///
/// As [`skip`].
#[expect(clippy::panic, reason = "a required test that cannot run fails")]
pub fn skip_test(test: &str, requirement: Requirement, why: impl std::fmt::Display) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    if required.split(',').any(|name| name.trim() == requirement.name()) {
        panic!("{test} cannot run: {why}; {REQUIRE} names {}", requirement.name());
    }
    let _ = std::io::stderr().write_all(format!("SKIPPED {test}: {why}\n").as_bytes());
}
