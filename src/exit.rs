//! Exit codes and the failures that carry them.

use std::fmt::Display;

/// The documented exit codes. Scripts rely on them: they never change meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// A gate of `compare` or `history` did not hold.
    Gate = 1,
    /// The command line was wrong.
    Usage = 2,
    /// A config is invalid.
    Config = 3,
    /// The cluster cannot be reached, or refused the job.
    Cluster = 4,
    /// Some trials failed.
    TrialsFailed = 5,
    /// Results are incomplete, or records or data cannot be read or written.
    Incomplete = 6,
    /// A comparison was refused.
    Refused = 7,
    /// Anything that should not happen.
    Internal = 70,
}

impl Exit {
    const ALL: [Self; 9] = [
        Self::Ok,
        Self::Gate,
        Self::Usage,
        Self::Config,
        Self::Cluster,
        Self::TrialsFailed,
        Self::Incomplete,
        Self::Refused,
        Self::Internal,
    ];

    /// The exit code with this number.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|exit| *exit as i32 == code)
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed: the exit code, one clear message, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is printed, complete.
    pub message: String,
    /// What to do, a line each.
    pub hints: Vec<String>,
    /// The message is a diagnostic that brings its own headline and layout.
    pub rendered: bool,
}

impl Failure {
    /// A failure with a one-line message, without a trailing period.
    pub fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string(), hints: Vec::new(), rendered: false }
    }

    /// Something that should not happen.
    pub fn internal(message: impl Display) -> Self {
        Self::new(Exit::Internal, message)
    }

    /// A diagnostic that is already laid out.
    pub fn rendered(exit: Exit, text: impl Display) -> Self {
        Self { rendered: true, ..Self::new(exit, text) }
    }

    /// Add what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hints.push(hint.to_string());
        self
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.rendered {
            write!(f, "{}", self.message)?;
        } else {
            write!(f, "error: {}", self.message)?;
        }
        for hint in &self.hints {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Records that are damaged, or that permissions or a full disk keep from being read or written.
impl From<expctl_ledger::LedgerError> for Failure {
    fn from(e: expctl_ledger::LedgerError) -> Self {
        Self::new(Exit::Incomplete, e)
    }
}
