//! [`RemoteError`]: why a cluster cannot be reached, or what it was asked for cannot be done.

use std::path::{Path, PathBuf};

use expctl_ledger::LedgerError;

use super::protocol::{MessageError, PROTOCOL, RefusedRequest};
use crate::exit::{Exit, Failure};
use crate::snapshot::SnapshotError;

/// Why something on another machine failed. `host` is the name that the user gave.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The program `ssh` cannot be started here.
    #[error("cannot start {program}: {source}")]
    NoSsh {
        /// The program.
        program: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A setting has a character that no shell takes.
    #[error("the settings of {host} hold a NUL character")]
    NotQuotable {
        /// The host.
        host: String,
    },
    /// `ssh` ended without an answer, or the connection was lost.
    #[error("cannot reach {host}: {said}")]
    Unreachable {
        /// The host.
        host: String,
        /// The last line that `ssh` printed, or how it ended.
        said: String,
    },
    /// There is no expctl there.
    #[error("there is no {program} on {host}")]
    NotInstalled {
        /// The host.
        host: String,
        /// The program that was looked for.
        program: String,
    },
    /// The expctl there speaks another protocol.
    #[error(
        "expctl {theirs} on {host} speaks version {protocol} of the protocol, this expctl {} speaks version {}",
        env!("CARGO_PKG_VERSION"),
        PROTOCOL
    )]
    OtherProtocol {
        /// The host.
        host: String,
        /// Its version of expctl.
        theirs: String,
        /// Its protocol.
        protocol: u32,
    },
    /// The expctl there has no verb `remote`.
    #[error("the expctl on {host} is older than this one, {}, and takes no connections", env!("CARGO_PKG_VERSION"))]
    TooOld {
        /// The host.
        host: String,
    },
    /// Something else answers.
    #[error("{host} does not answer as expctl does: {source}")]
    Answer {
        /// The host.
        host: String,
        /// The reason.
        source: MessageError,
    },
    /// An answer to another question.
    #[error("{host} answers something that was not asked")]
    OtherAnswer {
        /// The host.
        host: String,
    },
    /// The far side says no.
    #[error("{host}: {}", refused.message)]
    Refused {
        /// The host.
        host: String,
        /// Its words.
        refused: RefusedRequest,
    },
    /// A path leads out of the folder that it belongs into.
    #[error("{path:?} is no path of a file that was asked for; nothing was written there")]
    UnsafePath {
        /// The path.
        path: String,
    },
    /// A tree or a submission is not what it says.
    #[error("refused: {reason}")]
    Tree {
        /// Why.
        reason: String,
    },
    /// A content is not what its hash says.
    #[error("a content has another hash than {hash}: it was damaged on the way")]
    OtherContent {
        /// The hash.
        hash: String,
    },
    /// The bytes of a file did not all go out behind its header: no message may follow them.
    #[error("{} was sent in part: {source}", path.display())]
    SentInPart {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The folder of a host here has records of another machine, or of another folder there.
    #[error("{} has records of {known}, and {host} is {given} now", folder.display())]
    OtherAddress {
        /// The host.
        host: String,
        /// Its folder here.
        folder: PathBuf,
        /// The address that the records are of.
        known: String,
        /// The address of the host now.
        given: String,
    },
    /// A submission ended without saying how.
    #[error("the submission ended midway ({status}): {said}; its log there is {}", log.display())]
    SubmissionDied {
        /// How its process ended.
        status: String,
        /// Its exit code, if it has one.
        exit: Option<i32>,
        /// Its last error, else its last line.
        said: String,
        /// Its log.
        log: PathBuf,
    },
    /// The process that submits was killed.
    #[error("it was killed ({status})")]
    SubmissionKilled {
        /// How it ended.
        status: String,
    },
    /// The system refused to read or write.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The refused action as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The code cannot be copied.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A record cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A verb that runs there failed.
    #[error("{}", failure.message)]
    Failed {
        /// Its failure.
        failure: Failure,
    },
}

impl RemoteError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Whether another connection may do better.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

impl From<Failure> for RemoteError {
    fn from(failure: Failure) -> Self {
        Self::Failed { failure }
    }
}

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Self {
        let error = match error {
            RemoteError::Snapshot(source) => return source.into(),
            RemoteError::Failed { failure } => return failure,
            other => other,
        };
        let exit = match &error {
            RemoteError::NotQuotable { .. } => Exit::Config,
            RemoteError::Refused { refused, .. } => Exit::from_code(refused.exit).unwrap_or(Exit::Internal),
            RemoteError::OtherAddress { .. } => Exit::Refused,
            RemoteError::SubmissionDied { exit, .. } => {
                exit.and_then(Exit::from_code).filter(|exit| *exit != Exit::Ok).unwrap_or(Exit::Incomplete)
            }
            RemoteError::UnsafePath { .. }
            | RemoteError::Tree { .. }
            | RemoteError::OtherContent { .. }
            | RemoteError::SentInPart { .. }
            | RemoteError::SubmissionKilled { .. }
            | RemoteError::Io { .. }
            | RemoteError::Ledger(_) => Exit::Incomplete,
            _ => Exit::Cluster,
        };
        let failure = Self::new(exit, &error);
        match &error {
            RemoteError::NoSsh { .. } => failure.hint("install OpenSSH, or name a program: EXPCTL_SSH"),
            RemoteError::NotInstalled { host, .. } => failure
                .hint(format!("install it on {host}: python3 -m venv ~/expctl && ~/expctl/bin/pip install dist/*.whl"))
                .hint("and name it in [ssh]: expctl = \"~/expctl/bin/expctl\" (docs/guide/install.md)"),
            RemoteError::OtherProtocol { host, protocol, .. } => {
                let older = if *protocol < PROTOCOL { host.as_str() } else { "this machine" };
                failure.hint(format!("update expctl on {older}"))
            }
            RemoteError::TooOld { host } => failure.hint(format!("update expctl on {host}")),
            RemoteError::Refused { refused, .. } => refused.hints.iter().fold(failure, Self::hint),
            RemoteError::OtherAddress { folder, .. } => failure
                .hint(format!("move {} away, or give this machine another name: [ssh.OTHER]", folder.display()))
                .hint(format!("if both are the same folder: remove {}", folder.join("where.json").display())),
            RemoteError::SubmissionDied { .. } => failure.hint("the same command again goes on"),
            _ => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_that_died_keeps_its_exit_code() {
        let died = |exit| {
            let (status, said) = ("exit status: 4".to_owned(), "Slurm does not answer".to_owned());
            Failure::from(RemoteError::SubmissionDied { status, exit, said, log: "/p/log".into() })
        };
        assert_eq!(died(Some(4)).exit, Exit::Cluster);
        assert_eq!([died(None).exit, died(Some(0)).exit, died(Some(99)).exit], [Exit::Incomplete; 3]);
        assert_eq!(died(Some(4)).hints, ["the same command again goes on"]);
    }
}
