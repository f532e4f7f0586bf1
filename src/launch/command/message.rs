//! What the ranks of a trial say to each other: a JSON object a line, over TCP to rank 0.

use std::io::Write;
use std::net::TcpStream;

use expctl_record::Hardware;
use serde::{Deserialize, Serialize};

/// The longest line, bytes.
pub(super) const MAX_MESSAGE: u64 = 1 << 20;

/// A rank that comes to the meeting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Join {
    /// Of which trial and attempt: what else finds the port is not listened to.
    pub trial: String,
    pub attempt: u32,
    pub rank: u32,
    /// The same for all ranks of a node, and for no other.
    pub node: String,
    /// Processors that it may use.
    pub cpus: Vec<u32>,
    pub hardware: Hardware,
}

/// A rank to rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToHub {
    Join(Box<Join>),
    /// A sign of life, with the steps that are done.
    Beat {
        steps: u64,
    },
    /// `rank` failed so many ms ago.
    Failed {
        rank: u32,
        message: String,
        age_ms: u64,
    },
    /// All is done that was to do.
    Done,
}

/// Rank 0 to a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromHub {
    Start(Box<Start>),
    /// A sign of life, with the steps of the rank that has done the fewest.
    Beat {
        least: u64,
    },
    Lost(Lost),
    /// Every rank is done.
    Over,
}

/// All have met.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Start {
    /// A port that rank 0 keeps free for the program.
    pub master_port: u16,
    /// The ranks of this rank's node, in order.
    pub ranks: Vec<u32>,
    /// The processors that they may use together.
    pub cpus: Vec<u32>,
    /// Each rank's node, by rank; for rank 0 alone.
    pub hardware: Vec<Hardware>,
}

/// The rank that failed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lost {
    pub rank: u32,
    pub message: String,
    /// It does not answer any more, or is not there: nobody else will say why.
    pub gone: bool,
}

/// Send a message as one piece.
pub(super) fn send<T: Serialize>(mut stream: &TcpStream, message: &T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}
