//! Writes generated batch times of the shape of the published array-loader benchmark, for docs/guide/timings.md and benches/timings.sh.
//!
//! `timings_generated FILE [ROWS]`: 148,045 rows as published, or that many of the same shape.
#![expect(clippy::print_stderr, reason = "a program of one screen")]

#[allow(dead_code, reason = "tests draw series without a file")]
mod batch_times;

use std::path::Path;
use std::process::ExitCode;

use batch_times::{write_benchmark, write_many};

/// The committed pictures are drawn from this seed.
const SEED: u64 = 20_241_105;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rows = arguments.get(1).map(|rows| rows.replace('_', "").parse::<usize>());
    let written = match (arguments.first(), rows) {
        (Some(path), None) => write_benchmark(Path::new(path), SEED),
        (Some(path), Some(Ok(rows))) => write_many(Path::new(path), SEED, rows),
        _ => {
            eprintln!("usage: timings_generated FILE [ROWS]");
            return ExitCode::from(2);
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
