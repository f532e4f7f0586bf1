//! Rows/s of the matrix of .h5ad files: random rows in batches, and ranges, with one and two threads.
//!
//!     cargo run --release --example h5ad_rates -- FILE…

#![expect(clippy::print_stdout, reason = "a program")]

use std::path::Path;
use std::time::{Duration, Instant};

use expctl_pipeline::PipelineError;
use expctl_pipeline::array::h5ad::MatrixFile;
use expctl_pipeline::array::{CsrRows, Rows, Wanted};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const BATCH: usize = 128;

fn main() -> Result<(), PipelineError> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let file = MatrixFile::open(Path::new(&path), "X")?;
        println!(
            "{path}: {} × {}, {:.0} values a row, {:.0} MB, opened in {:.1} ms",
            file.rows(),
            file.columns(),
            file.nnz() as f64 / file.rows().max(1) as f64,
            file.stored_bytes() as f64 / 1e6,
            start.elapsed().as_secs_f64() * 1e3
        );
        for threads in [1, 2] {
            for (name, how) in [("random rows", 0), ("random blocks of 64 rows", 64), ("ranges of 4096 rows", 4096)] {
                let start = Instant::now();
                let done: Result<Vec<[f64; 3]>, PipelineError> = std::thread::scope(|scope| {
                    let file = &file;
                    let running: Vec<_> =
                        (0..threads).map(|thread| scope.spawn(move || read(file, how, thread))).collect();
                    running
                        .into_iter()
                        .map(|thread| thread.join().map_err(|_| PipelineError::Stopped).and_then(|done| done))
                        .collect()
                });
                let done = done?;
                let seconds = start.elapsed().as_secs_f64();
                let sum = |i: usize| done.iter().map(|each| each[i]).sum::<f64>();
                println!(
                    "  {threads} threads, {name}: {:.0} rows/s ({:.2} µs to fetch, {:.2} µs to decode a row)",
                    sum(0) / seconds,
                    sum(1) / sum(0) * 1e6,
                    sum(2) / sum(0) * 1e6
                );
            }
        }
    }
    Ok(())
}

/// Rows, seconds of fetching, seconds of decoding.
fn read(file: &MatrixFile, how: u64, seed: u64) -> Result<[f64; 3], PipelineError> {
    let mut reader = file.reader()?;
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut out = Rows::Sparse(CsrRows::default());
    let (mut rows, mut fetch, mut decode) = (0.0, Duration::ZERO, Duration::ZERO);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1500) {
        out.clear();
        let list: Vec<u64>;
        let wanted = match how {
            4096 => {
                let first = rng.random_range(0..file.rows().saturating_sub(4096).max(1));
                Wanted::Range(first..(first + 4096).min(file.rows()))
            }
            64 => {
                let first = rng.random_range(0..file.rows().saturating_sub(64).max(1));
                Wanted::Range(first..(first + 64).min(file.rows()))
            }
            _ => {
                list = (0..BATCH).map(|_| rng.random_range(0..file.rows())).collect();
                Wanted::Rows(&list)
            }
        };
        let t0 = Instant::now();
        reader.fetch(&wanted, &mut out)?;
        let t1 = Instant::now();
        reader.decode(&mut out)?;
        reader.unchanged()?;
        fetch += t1 - t0;
        decode += t1.elapsed();
        rows += match &wanted {
            Wanted::Rows(rows) => rows.len() as f64,
            Wanted::Range(range) => (range.end - range.start) as f64,
        };
    }
    Ok([rows, fetch.as_secs_f64(), decode.as_secs_f64()])
}
