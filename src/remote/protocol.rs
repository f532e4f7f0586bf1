//! What is said over a connection: a line of JSON for each message, and behind some of them bytes of the length that they name.
//!
//! Invariant: a message that is cut off is an error, never a shorter message.

use std::io::{BufRead, Read, Write};

use expctl_ledger::SnapshotEntry;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job_files::{FetchExtent, ListedFile, ListedJob};
use super::once_submission::{SubmissionOrder, SubmissionResult};

/// Number of this protocol. Both sides have to have the same.
pub const PROTOCOL: u32 = 5;

/// Start of the first line of the far side. What a login prints comes before it.
pub const GREETING: &str = "expctl-remote ";

/// Longest line, bytes: the list of 50,000 files with long paths.
const MAX_LINE: u64 = 64 << 20;

/// The first line of the far side, after [`GREETING`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostGreeting {
    /// Its version of expctl.
    pub version: String,
    /// Its [`PROTOCOL`].
    pub protocol: u32,
}

impl HostGreeting {
    /// That of this program.
    pub fn of_this_program() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL }
    }
}

/// What is asked of the far side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostRequest {
    /// Which contents of a tree it lacks; answered by [`HostReply::Lacks`].
    Lacks {
        /// The files and links of the tree.
        entries: Vec<SnapshotEntry>,
    },
    /// A content, whose bytes follow. Not answered.
    Content {
        /// Its BLAKE3.
        hash: String,
        /// Its length.
        size: u64,
    },
    /// Make the folder of the tree that was listed; answered by [`HostReply::Tree`].
    Unpack,
    /// Submit, unless it was done before; answered by [`HostReply::Submitted`].
    Submit(SubmissionOrder),
    /// How far a job is; answered by [`HostReply::State`].
    State {
        /// The job.
        job: u64,
    },
    /// The numbers of all jobs; answered by [`HostReply::Numbers`].
    Numbers,
    /// The files of jobs; answered by [`HostReply::Jobs`].
    List {
        /// The jobs.
        jobs: Vec<u64>,
        /// Those of them whose files are not asked for, each with the time of its submission: another job of that number is asked for.
        skip: Vec<(u64, i64)>,
        /// Which files.
        extent: FetchExtent,
    },
    /// Contents of files; answered by a [`HostReply::File`] for each that is still there, and [`HostReply::End`].
    Send {
        /// Their paths in the ledger.
        files: Vec<String>,
    },
}

/// What the far side answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostReply {
    /// The hashes of contents that it lacks.
    Lacks {
        /// The hashes.
        hashes: Vec<String>,
    },
    /// The tree is complete.
    Tree {
        /// Its folder there.
        folder: String,
    },
    /// How a submission ended.
    Submitted(SubmissionResult),
    /// How far a job is.
    State {
        /// In words: `1 completed, 1 running`.
        summary: String,
        /// Nothing runs it any more.
        ended: bool,
    },
    /// The numbers of all jobs.
    Numbers {
        /// The numbers.
        jobs: Vec<u64>,
    },
    /// Jobs and their files.
    Jobs {
        /// Those that are there.
        jobs: Vec<ListedJob>,
        /// Those that are not.
        unknown: Vec<u64>,
    },
    /// A file, whose bytes follow.
    File(ListedFile),
    /// That was all.
    End,
    /// It cannot be done.
    Failed(RefusedRequest),
}

/// Why the far side did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// The exit code that it would have ended with.
    pub exit: i32,
    /// The message.
    pub message: String,
    /// What to do, a line each.
    pub hints: Vec<String>,
}

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The other side closed the connection between two messages.
    #[error("the connection was closed")]
    Closed,
    /// The connection ended within a message, or within its bytes.
    #[error("the connection was cut off within a message")]
    CutOff,
    /// A line does not end.
    #[error("a line has more than {} MiB", MAX_LINE >> 20)]
    TooLong,
    /// The line is no message.
    #[error("no message: {source}")]
    Malformed {
        /// The reason.
        source: serde_json::Error,
    },
    /// The system refused to read.
    #[error("{source}")]
    Io {
        /// Its reason.
        source: std::io::Error,
    },
}

/// Write a message; bytes that belong to it are written behind it.
///
/// # Errors
/// The other side has gone.
pub fn write_message<T: Serialize>(out: &mut impl Write, message: &T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Read a message.
///
/// # Errors
/// There is none, or it is not one.
pub fn read_message<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T, MessageError> {
    let mut line = Vec::new();
    Read::by_ref(input).take(MAX_LINE).read_until(b'\n', &mut line).map_err(|source| MessageError::Io { source })?;
    match line.last() {
        None => Err(MessageError::Closed),
        Some(b'\n') => serde_json::from_slice(&line).map_err(|source| MessageError::Malformed { source }),
        Some(_) if line.len() as u64 == MAX_LINE => Err(MessageError::TooLong),
        Some(_) => Err(MessageError::CutOff),
    }
}

/// Read bytes that belong to a message.
///
/// # Errors
/// There are fewer.
pub fn read_content(input: &mut impl BufRead, size: u64) -> Result<Vec<u8>, MessageError> {
    let mut content = Vec::new();
    Read::by_ref(input).take(size).read_to_end(&mut content).map_err(|source| MessageError::Io { source })?;
    if content.len() as u64 == size { Ok(content) } else { Err(MessageError::CutOff) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(message: &HostReply) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_message(&mut bytes, message).unwrap();
        bytes
    }

    #[test]
    fn messages_are_read_back_and_cut_off_ones_are_errors() {
        let file = HostReply::File(ListedFile { path: "1/job.json".to_owned(), size: 3, mtime_ns: -5 });
        let mut bytes = sent(&file);
        bytes.extend(b"abc");
        bytes.extend(sent(&HostReply::End));
        let mut input = &bytes[..];
        assert_eq!(read_message::<HostReply>(&mut input).unwrap(), file);
        assert_eq!(read_content(&mut input, 3).unwrap(), b"abc");
        assert_eq!(read_message::<HostReply>(&mut input).unwrap(), HostReply::End);
        assert!(matches!(read_message::<HostReply>(&mut input), Err(MessageError::Closed)));
        let whole = sent(&file);
        for end in 1..whole.len() {
            assert!(matches!(read_message::<HostReply>(&mut &whole[..end]), Err(MessageError::CutOff)), "{end}");
        }
        assert!(matches!(read_content(&mut &b"ab"[..], 3), Err(MessageError::CutOff)));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for line in [&b"\n"[..], b"{}\n", b"Welcome to delta\n", b"{\"file\":{\"path\":1}}\n", b"\xff\n"] {
            assert!(matches!(read_message::<HostReply>(&mut &line[..]), Err(MessageError::Malformed { .. })));
        }
        let endless = std::io::repeat(b'x').take(MAX_LINE + 9);
        let mut endless = std::io::BufReader::new(endless);
        assert!(matches!(read_message::<HostReply>(&mut endless), Err(MessageError::TooLong)));
    }
}
