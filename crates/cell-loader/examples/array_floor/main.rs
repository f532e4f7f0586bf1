//! What the memory of this machine allows, and what the loader makes of it, in one run:
//! `cargo run --release -p cell-loader --example array_floor [ROWS [GENES [VALUES_PER_ROW [SECONDS]]]]`.
//!
//! With `--threads N --batch N --output sparse|dense --seconds S [--file FILE]` it measures that floor alone and prints it as JSON;
//! with a file (which the system has in memory) that of rows that are read from it, a batch at once,
//! and then copied as those of memory are.
//!
//! Prints, for 1 and 2 threads, the bandwidth of copying (bytes read and bytes written) and of filling, into buffers of a batch
//! that are used again as the loader's are; the rows/s that follow for a sparse batch (a copy of int32 and float32) and a dense
//! one (a fill, and reading the row); and the rows/s of the loader from rows in memory, drawn at random. Then what drawing a row
//! costs, out of ten million.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement")]

mod draws;
mod floor;
mod memory;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_loader::{CellBatchOptions, CellBatcher, Draw, Output, RowSampler, Sharding};
use loader_core::{Loader, LoaderOptions};
use memory::Memory;

fn main() {
    if std::env::args().nth(1).is_some_and(|first| first.starts_with("--")) {
        return one_floor();
    }
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<f64>().unwrap());
    let mut next = |default: f64| arguments.next().unwrap_or(default);
    let (rows, genes, values) = (next(200_000.0) as usize, next(20_000.0) as usize, next(1232.0) as usize);
    let time = Duration::from_secs_f64(next(1.0));
    let store = Arc::new(Memory::new(rows, genes, values));
    let source = floor::on_huge_pages(store.bytes());
    for threads in [1, 2] {
        for batch in [128, 1024] {
            let (copy, fill) = bandwidths(&source, threads, batch, genes, values, time);
            println!("threads {threads}, batch {batch}: copy {:.1} GB/s, fill {:.1} GB/s", copy / 1e9, fill / 1e9);
            let floors = floors(copy, fill, genes, values);
            for (output, floor) in [Output::Sparse, Output::Dense].into_iter().zip(floors) {
                for (name, changed) in [("", false), (", normalised, ln(1 + x)", true)] {
                    let settings = CellBatchOptions {
                        output,
                        normalize: if changed { 1e4 } else { 0.0 },
                        log1p: changed,
                        ..CellBatchOptions::default()
                    };
                    let rate = rate(&store, threads, batch as u64, &settings, time);
                    println!(
                        "  {output:?}{name}: {rate:.0} rows/s, floor {floor:.0}, {:.0} % of it",
                        rate / floor * 100.0
                    );
                }
            }
        }
    }
    drop((store, source));
    draws::measure();
}

/// Bytes a second of copying and of filling.
fn bandwidths(source: &[u8], threads: u32, batch: usize, genes: usize, values: usize, time: Duration) -> (f64, f64) {
    let copy = floor::copy(threads, batch, values * 8, source, time);
    (copy, floor::fill(threads, batch * genes * 4, time))
}

/// Rows a second that they allow, sparse and dense: a row is copied, or read and a dense one filled.
fn floors(copy: f64, fill: f64, genes: usize, values: usize) -> [f64; 2] {
    let row = (values * 8) as f64;
    [copy / (2.0 * row), 1.0 / ((genes * 4) as f64 / fill + row / copy)]
}

/// One floor, as JSON.
fn one_floor() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| arguments.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str()).unwrap();
    let (threads, batch) = (option("--threads").parse().unwrap(), option("--batch").parse().unwrap());
    let time = Duration::from_secs_f64(option("--seconds").parse::<f64>().unwrap() / 2.0);
    let (genes, values) = (20_000, 1_232);
    let source = floor::on_huge_pages(Memory::new(200_000, genes, values).bytes());
    let (copy, fill) = bandwidths(&source, threads, batch, genes, values, time);
    let [sparse, dense] = floors(copy, fill, genes, values);
    let mut rate = if option("--output") == "dense" { dense } else { sparse };
    let mut read = f64::INFINITY;
    if let Some(pair) = arguments.chunks(2).find(|pair| pair[0] == "--file") {
        let row = values * 8;
        read = floor::read(threads, batch * row, &std::fs::File::open(&pair[1]).unwrap(), time);
        rate = 1.0 / (row as f64 / read + 1.0 / rate);
    }
    println!(r#"{{"rows_per_s": {rate}, "cpu": {threads}, "copy": {copy}, "fill": {fill}, "read": "{read}"}}"#);
}

/// Rows a second of the loader.
fn rate(store: &Arc<Memory>, threads: u32, batch_size: u64, settings: &CellBatchOptions, time: Duration) -> f64 {
    let sharding = Sharding { seed: 1, rank: 0, world_size: 1, batch_size, drop_last: true };
    let sampler = Arc::new(RowSampler::new(&Draw::Uniform, store.as_ref(), sharding, None).unwrap());
    let builder = CellBatcher::new(Arc::<Memory>::clone(store), sampler, settings, Arc::default()).unwrap();
    let options = LoaderOptions { workers: threads, steps: u64::MAX / 2, ..LoaderOptions::default() };
    let mut loader = Loader::start(builder, options).unwrap();
    let mut take = |time: Duration| {
        let (start, mut rows) = (Instant::now(), 0);
        while start.elapsed() < time {
            let loaded = loader.next_batch().unwrap().unwrap();
            rows += loaded.batch.len();
            loader.recycle(loaded.batch);
        }
        rows as f64 / start.elapsed().as_secs_f64()
    };
    take(time / 5);
    take(time)
}
