//! Rows/s of the matrix of .h5ad files: random rows in batches, and ranges, with one and two threads. Of a matrix that is
//! compressed with gzip alone also what libdeflate takes for its chunks when nothing else is done.
//!
//!     cargo run --release --example h5ad_rates -- FILE…

#![expect(clippy::print_stdout, reason = "a program")]

use std::path::Path;
use std::time::{Duration, Instant};

use anndata_io::AnnDataError;
use anndata_io::MatrixFile;
use anndata_io::{CsrRows, RowSelection, Rows};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const BATCH: usize = 128;

fn main() -> Result<(), AnnDataError> {
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
        if let Some(floor) = inflate(Path::new(&path)) {
            println!("  1 threads, libdeflate alone: {floor:.0} MB/s of what comes out");
        }
        for threads in [1, 2] {
            for (name, how) in [("random rows", 0), ("random blocks of 64 rows", 64), ("ranges of 4096 rows", 4096)] {
                let start = Instant::now();
                let done: Result<Vec<[f64; 3]>, AnnDataError> = std::thread::scope(|scope| {
                    let file = &file;
                    let running: Vec<_> =
                        (0..threads).map(|thread| scope.spawn(move || read(file, how, thread))).collect();
                    running
                        .into_iter()
                        .map(|thread| {
                            thread
                                .join()
                                .map_err(|_| AnnDataError::Other("a thread panicked".into()))
                                .and_then(|done| done)
                        })
                        .collect()
                });
                let done = done?;
                let seconds = start.elapsed().as_secs_f64();
                let sum = |i: usize| done.iter().map(|each| each[i]).sum::<f64>();
                println!(
                    "  {threads} threads, {name}: {:.0} rows/s ({:.2} µs to fetch, {:.2} µs to decode a row)",
                    sum(0) / seconds,
                    sum(1) / sum(0) * 1e6,
                    sum(2) / sum(0) * 1e6,
                );
            }
        }
    }
    Ok(())
}

/// Rows, seconds of fetching, seconds of decoding.
fn read(file: &MatrixFile, how: u64, seed: u64) -> Result<[f64; 3], AnnDataError> {
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
                RowSelection::Range(first..(first + 4096).min(file.rows()))
            }
            64 => {
                let first = rng.random_range(0..file.rows().saturating_sub(64).max(1));
                RowSelection::Range(first..(first + 64).min(file.rows()))
            }
            _ => {
                list = (0..BATCH).map(|_| rng.random_range(0..file.rows())).collect();
                RowSelection::Rows(&list)
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
            RowSelection::Rows(rows) => rows.len() as f64,
            RowSelection::Range(range) => (range.end - range.start) as f64,
        };
    }
    Ok([rows, fetch.as_secs_f64(), decode.as_secs_f64()])
}

/// MB/s at which libdeflate decompresses chunks of the values and the columns, in turn, in random order.
fn inflate(path: &Path) -> Option<f64> {
    let bytes = std::fs::read(path).ok()?;
    let file = hdf5_metno::File::open(path).ok()?;
    let mut chunks = Vec::new();
    let mut most = 0;
    for name in ["X/data", "X/indices"] {
        let dataset = file.dataset(name).ok()?;
        if !matches!(dataset.filters()[..], [hdf5_metno::filters::Filter::Deflate(_)]) {
            return None;
        }
        most = most.max(dataset.chunk()?[0] * dataset.dtype().ok()?.size());
        let mut of_this = Vec::new();
        let note = |chunk: hdf5_metno::dataset::ChunkInfoRef<'_>| {
            of_this.push(chunk.addr as usize..(chunk.addr + chunk.size) as usize);
            0
        };
        dataset.chunks_visit(note).ok()?;
        chunks.push(of_this);
    }
    let (mut out, mut inflate) = (vec![0; most], libdeflater::Decompressor::new());
    let mut rng = Pcg64Mcg::seed_from_u64(0);
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(1) {
        for of_this in &chunks {
            let chunk = of_this[rng.random_range(0..of_this.len())].clone();
            done += inflate.zlib_decompress(&bytes[chunk], &mut out).ok()?;
        }
    }
    Some(done as f64 / 1e6 / start.elapsed().as_secs_f64())
}
