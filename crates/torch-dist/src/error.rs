//! `DistError` is the error of every call in this crate. The text of a C++ exception is cut to its first line, without source position and stack.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Why a call to libtorch failed, or ranks did not find each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DistError {
    /// libtorch raised an exception.
    #[error("{operation}: {message}")]
    Torch {
        /// The operation that failed, for example "all-reduce".
        operation: String,
        /// First line of the exception, without the place in libtorch's sources.
        message: String,
    },
    /// The store cannot be served on an address of this machine.
    #[error("serve the store at {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the kernel.
        reason: String,
    },
    /// Nothing listens at the address of the store.
    #[error("no store answered at {address} within {} s: {reason}", seconds(*limit))]
    Unreachable {
        /// `host:port`.
        address: String,
        /// Time limit of all tries.
        limit: Duration,
        /// Error of the last try.
        reason: String,
    },
    /// Not all ranks appeared in time.
    #[error("{}", missing_message(missing, *world, *limit))]
    MissingRanks {
        /// Ranks that did not announce themselves, ascending.
        missing: Vec<u32>,
        /// Number of ranks expected.
        world: u32,
        /// The time limit.
        limit: Duration,
    },
    /// The loaded libtorch does not have the version that this program was built against.
    #[error("built against libtorch {built}, but {loaded} was loaded from {file} (does LD_LIBRARY_PATH name it?)")]
    WrongLibtorch {
        /// Version at compile time.
        built: String,
        /// Version that the library reports.
        loaded: String,
        /// File of the library.
        file: String,
    },
    /// The profiler was started without preparation, or while it was running.
    #[error("start the profiler: it was not prepared, or is running")]
    ProfilerNotPrepared,
    /// libtorch takes only paths in UTF-8.
    #[error("write the profile to {}: the path is not UTF-8", .0.display())]
    ProfilePath(PathBuf),
    /// An entry lies outside of a sparse matrix.
    #[error("build a sparse matrix: entry ({row}, {column}) lies outside of [{rows}, {columns}]")]
    EntryOutside {
        /// Row of the entry.
        row: u32,
        /// Column of the entry.
        column: u32,
        /// Rows of the matrix.
        rows: u32,
        /// Columns of the matrix.
        columns: u32,
    },
}

impl DistError {
    pub(crate) fn torch(operation: impl Into<String>) -> impl FnOnce(cxx::Exception) -> Self {
        move |exception| Self::Torch { operation: operation.into(), message: first_line(exception.what()) }
    }

    /// An error of tch, with the operation named and the C++ stack removed.
    pub fn from_tch(operation: impl Into<String>, error: &tch::TchError) -> Self {
        Self::Torch { operation: operation.into(), message: first_line(&error.to_string()) }
    }
}

fn missing_message(missing: &[u32], world: u32, limit: Duration) -> String {
    let list = missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let noun = if missing.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {list} of {world} did not appear within {} s", seconds(limit))
}

/// Seconds, rounded to a tenth.
fn seconds(limit: Duration) -> f64 {
    (limit.as_secs_f64() * 10.0).round() / 10.0
}

/// First line of an exception's text. libtorch and Gloo put the source position of the throw before the message, and libtorch a list of stack
/// frames after it.
fn first_line(text: &str) -> String {
    let mut line = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("no message");
    for wrapper in ["Internal torch error: ", "Torch error: "] {
        line = line.strip_prefix(wrapper).unwrap_or(line);
    }
    if let Some((position, rest)) = line.strip_prefix('[').and_then(|l| l.split_once("] "))
        && position.contains(".cc:") | position.contains(".h:") | position.contains(".cpp:")
    {
        line = rest;
    }
    let line = line.split(" Exception raised from ").next().unwrap_or(line);
    line.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_positions_and_frames_are_removed() {
        assert_eq!(
            first_line(
                "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4\nx"
            ),
            "Connection closed by peer [127.0.0.1]:4"
        );
        assert_eq!(first_line("[c10d] The wait timed out. Exception raised from f at g"), "[c10d] The wait timed out");
        assert_eq!(first_line("\n"), "no message");
    }

    #[test]
    fn missing_ranks_are_named() {
        let error = DistError::MissingRanks { missing: vec![1, 3], world: 4, limit: Duration::from_secs(120) };
        assert_eq!(error.to_string(), "ranks 1, 3 of 4 did not appear within 120 s");
        let error = DistError::MissingRanks { missing: vec![2], world: 4, limit: Duration::from_millis(1500) };
        assert_eq!(error.to_string(), "rank 2 of 4 did not appear within 1.5 s");
        let error = DistError::MissingRanks { missing: vec![2], world: 4, limit: Duration::from_micros(119_943_110) };
        assert_eq!(error.to_string(), "rank 2 of 4 did not appear within 119.9 s");
    }
}
