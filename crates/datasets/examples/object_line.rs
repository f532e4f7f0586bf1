//! Runs a command with a folder as the bucket `line` of an object store on 127.0.0.1, behind a line with a latency before each answer and
//! one bandwidth for all of them (`tests/integration/remote/server.rs`).
//!
//! `object_line [--latency-ms 20] [--mb-s 200] FOLDER COMMAND [ARGUMENT]…`
//!
//! The command finds the store in `AWS_ENDPOINT_URL` and the other variables of S3; the files are `s3://line/…`. Ends with the command's exit code.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a measurement")]

#[path = "../tests/integration/remote/server.rs"]
mod server;

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use server::Server;

fn main() {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let (mut latency_ms, mut mb_s) = (20_u64, 200_u64);
    while let Some(name) = arguments.next_if(|argument| argument.to_str().is_some_and(|text| text.starts_with("--"))) {
        let value = arguments.next().and_then(|value| value.to_str()?.parse().ok());
        match (name.to_str(), value) {
            (Some("--latency-ms"), Some(value)) => latency_ms = value,
            (Some("--mb-s"), Some(value)) => mb_s = value,
            _ => usage(),
        }
    }
    let (Some(folder), Some(program)) = (arguments.next().map(PathBuf::from), arguments.next()) else { usage() };
    let place = tempfile::tempdir().unwrap();
    let server = Server::start(place.path());
    let bucket = server.bucket("line");
    // Files below the bucket must not be links, which a listing leaves out: the bucket itself is one.
    let path = bucket.path("").components().as_path().to_owned();
    std::fs::remove_dir(&path).unwrap();
    symlink(folder.canonicalize().unwrap(), &path).unwrap();
    *bucket.faults.latency.lock().unwrap() = Duration::from_millis(latency_ms);
    bucket.faults.straight.store(true, Ordering::Relaxed);
    bucket.faults.bandwidth.store(mb_s * 1_000_000, Ordering::Relaxed);
    let status = Command::new(program).args(arguments).status().unwrap();
    drop(place);
    std::process::exit(status.code().unwrap_or(1));
}

fn usage() -> ! {
    eprintln!("usage: object_line [--latency-ms 20] [--mb-s 200] FOLDER COMMAND [ARGUMENT]…");
    std::process::exit(2);
}
