//! Errors of the client.

use std::path::PathBuf;
use std::time::Duration;

/// Why Slurm could not be asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// A command could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// The command.
        program: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// No answer within the limit.
    #[error("{program} did not answer within {} s", limit.as_secs())]
    Timeout {
        /// The command, or the server.
        program: String,
        /// The time limit.
        limit: Duration,
    },
    /// Slurm said no.
    #[error("{program}: {message}")]
    Refused {
        /// The command, or the server.
        program: String,
        /// Slurm's own words.
        message: String,
    },
    /// The answer is not the table that was asked for. It says nothing about tasks, least of all that there are none.
    #[error("{program} answered {answer:?}, which is not the table that was asked for")]
    NotATable {
        /// The command, or the server.
        program: String,
        /// The beginning of the answer.
        answer: String,
    },
    /// `sbatch` succeeded without naming a job.
    #[error("sbatch answered {answer:?}, which is not a job id")]
    NotAJobId {
        /// The answer.
        answer: String,
    },
    /// The batch script could not be read.
    #[error(transparent)]
    Script(std::io::Error),
    /// The address, the user or the token of slurmrestd is missing or malformed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// slurmrestd did not accept the token.
    #[error("{program} does not accept the token of {user}: {message}")]
    TokenRefused {
        /// The server.
        program: String,
        /// The user that the token was sent for.
        user: String,
        /// Slurm's own words.
        message: String,
    },
    /// slurmrestd has no field for an option of a batch script.
    #[error("the option {option} of the batch script cannot be handed to slurmrestd: {reason}")]
    UnsupportedOption {
        /// The option, as on a command line.
        option: String,
        /// Why.
        reason: String,
    },
}

/// Why slurmrestd cannot be used: its address, the user or the token is missing or malformed. No message contains a
/// token.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// There is no address.
    #[error("SLURMRESTD_URL, the address of slurmrestd, is not set")]
    NoUrl,
    /// The address cannot be parsed. It is not shown: it may hold a password.
    #[error("SLURMRESTD_URL is not an address: {reason}")]
    InvalidUrl {
        /// Why.
        reason: String,
    },
    /// The address has another scheme than HTTP, or names a user.
    #[error("SLURMRESTD_URL must be http://HOST:PORT or https://HOST:PORT, without a user")]
    UrlNotPlainHttp,
    /// The HTTP client could not be built.
    #[error("no HTTP client: {reason}")]
    HttpClient {
        /// Why.
        reason: String,
    },
    /// A path could not be joined to the address.
    #[error("no address for {path}: {reason}")]
    InvalidPath {
        /// The path.
        path: String,
        /// Why.
        reason: String,
    },
    /// No variable names the user.
    #[error("slurmrestd has to be told a user name, and none of SLURM_USER, USER and LOGNAME is set")]
    NoUser,
    /// `SLURM_JWT` is set to something else.
    #[error("SLURM_JWT does not hold a token")]
    InvalidToken,
    /// The token cannot be sent in a header.
    #[error("unusable token")]
    TokenNotSendable,
    /// The file with the token cannot be read.
    #[error("cannot read the token in {}: {source}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Other users may read or write the file with the token.
    #[error("others may read or write {}, which holds a token (its mode is {mode:03o})", path.display())]
    TokenFileMode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file holds something else.
    #[error("{} does not hold a token", path.display())]
    InvalidTokenFile {
        /// The file.
        path: PathBuf,
    },
    /// `scontrol token` failed.
    #[error("no token for slurmrestd: {source}")]
    TokenCommand {
        /// The failure of the command.
        source: Box<SlurmError>,
    },
    /// `scontrol token` answered something else.
    #[error("scontrol token did not answer with a token")]
    NoTokenInAnswer,
}
