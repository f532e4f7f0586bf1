//! What chunked and single random rows over a network come to: a server on 127.0.0.1 with a latency before each answer and one line of
//! some bandwidth for all of them (`tests/remote/server.rs`).
//!
//! `remote_rates [--rows 40000] [--latency-ms 20] [--mb-s 50] [--workers 2] [--requests 32] [--times 3] [--format h5ad]
//! [--draw chunked|uniform] [--cache-mib 0] [--record FILE] FOLDER`
//!
//! Builds the data set in FOLDER where it is not there yet. Prints a JSON object for each run: what was asked of it, MB/s of
//! bytes that the reader wanted (useful) and that the server sent, rows/s. With a cache the first run of each time is cold, the
//! second warm.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement")]

#[path = "../tests/integration/remote/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anndata_io::Labels;
use anndata_io::remote::{CacheOptions, RemoteOptions, configure, remote_counts};
use cell_loader::{CellBatcher, RowSampler, Sharding};
use expctl_datasets::array::{ArrayDataset, ArrayRecipe, ConvertOptions, open_as_configured};
use expctl_datasets::{BuildProgress, array, cell_batch_options, row_draw};
use expctl_ledger::{BenchFigure, BenchRecord};
use expctl_settings::{Array, ArrayFormat, Data, Draw, LabelSource, Networks, Output, Sampler};
use loader_core::{Loader, LoaderOptions};
use server::Server;

struct Options {
    folder: PathBuf,
    rows: u64,
    latency: Duration,
    mb_s: u64,
    workers: u32,
    requests: usize,
    times: u32,
    format: ArrayFormat,
    draw: Draw,
    cache_mib: u64,
}

fn options() -> Options {
    let mut options = Options {
        folder: PathBuf::new(),
        rows: 40_000,
        latency: Duration::from_millis(20),
        mb_s: 50,
        workers: 2,
        requests: 32,
        times: 3,
        format: ArrayFormat::H5ad,
        draw: Draw::Chunked,
        cache_mib: 0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let Some(name) = argument.strip_prefix("--") else {
            options.folder = argument.into();
            continue;
        };
        let value = arguments.next().unwrap();
        let number = || value.parse::<u64>().unwrap();
        match name {
            "rows" => options.rows = number(),
            "latency-ms" => options.latency = Duration::from_millis(number()),
            "mb-s" => options.mb_s = number(),
            "workers" => options.workers = number() as u32,
            "requests" => options.requests = number() as usize,
            "times" => options.times = number() as u32,
            "cache-mib" => options.cache_mib = number(),
            "draw" if value == Draw::Uniform.name() => options.draw = Draw::Uniform,
            "draw" if value == Draw::Chunked.name() => options.draw = Draw::Chunked,
            // Read where it is written.
            "record" => {}
            "format" => options.format = ArrayFormat::ALL.into_iter().find(|format| format.name() == value).unwrap(),
            _ => println!("there is no option --{name} {value}"),
        }
    }
    options
}

/// The files of the data set, built and converted.
fn files(options: &Options) -> Vec<PathBuf> {
    let set = options.folder.join("set");
    if !set.exists() {
        let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/arrayloader");
        let data = Data {
            set: "arrayloader".to_owned(),
            samples: options.rows,
            scale: 1.0,
            networks: Networks::None,
            seed: 1,
            labels: LabelSource::Random,
            files: 2,
            genes: 0,
        };
        let mut go_on = |_: BuildProgress| ControlFlow::Continue(());
        array::build(&ArrayRecipe::load(&study).unwrap(), &data, &set, 2, &mut go_on).unwrap();
    }
    let built = ArrayDataset::open(&set).unwrap();
    if options.format != ArrayFormat::H5ad && built.store_files(options.format).is_err() {
        let mut go_on = |_: BuildProgress| ControlFlow::Continue(());
        let how = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
        array::convert(&built, options.format, &how, &mut go_on).unwrap();
    }
    built.store_files(options.format).unwrap()
}

/// An epoch of the files; returns rows, bytes that were wanted, and seconds.
fn epoch(options: &Options, files: &[PathBuf]) -> (u64, u64, f64) {
    let array = Array { format: options.format, output: Output::Sparse, ..Array::default() };
    let store = open_as_configured(&array, files, 1, u64::MAX).unwrap();
    let sharding = Sharding { seed: 1, rank: 0, world_size: 1, batch_size: 128, drop_last: true };
    let settings = Sampler { draw: options.draw, chunk_rows: 512, chunks: 32, ..Sampler::default() };
    let sampler = Arc::new(RowSampler::new(&row_draw(&settings).unwrap(), &*store, sharding, None).unwrap());
    let steps = sampler.batches_per_epoch();
    let labels = Labels::from_store(&*store, &[]).unwrap();
    let builder = CellBatcher::new(store, sampler, &cell_batch_options(&array), labels).unwrap();
    let loading = LoaderOptions { workers: options.workers, steps, ..LoaderOptions::default() };
    let clock = Instant::now();
    let mut loader = Loader::start(builder, loading).unwrap();
    let (mut rows, mut bytes) = (0, 0);
    while let Some(loaded) = loader.next_batch() {
        let loaded = loaded.unwrap();
        rows += loaded.batch.len() as u64;
        bytes += loaded.bytes_read;
        loader.recycle(loaded.batch);
    }
    (rows, bytes, clock.elapsed().as_secs_f64())
}

fn main() {
    let options = options();
    let server = Server::start(&options.folder);
    let files = files(&options);
    let bucket = server.bucket("rates");
    let name = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
    for file in &files {
        std::fs::create_dir_all(bucket.path("")).unwrap();
        let _ = std::fs::remove_file(bucket.path(&name(file)));
        // A file, or a folder.
        symlink(file.canonicalize().unwrap(), bucket.path(&name(file))).unwrap();
    }
    let urls: Vec<PathBuf> = files.iter().map(|file| bucket.http(&name(file))).collect();
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for time in 0..options.times {
        let folder = tempfile::tempdir_in(&options.folder).unwrap();
        let cache = CacheOptions { folder: folder.path().to_owned(), bytes: options.cache_mib << 20 };
        let runs: &[&str] = if options.cache_mib > 0 { &["cold", "warm"] } else { &["direct"] };
        for run in runs {
            let remote = RemoteOptions {
                requests: options.requests,
                cache: (options.cache_mib > 0).then(|| cache.clone()),
                ..RemoteOptions::default()
            };
            // Nothing is left of the run before but the cache.
            configure(RemoteOptions { requests: options.requests + 1, ..RemoteOptions::default() }).unwrap();
            configure(remote).unwrap();
            *bucket.faults.latency.lock().unwrap() = options.latency;
            bucket.faults.bandwidth.store(options.mb_s * 1_000_000, Ordering::Relaxed);
            bucket.faults.bytes.store(0, Ordering::Relaxed);
            bucket.faults.most.store(0, Ordering::Relaxed);
            let (rows, bytes, seconds) = epoch(&options, &urls);
            let counts = remote_counts();
            let sent = bucket.faults.bytes.load(Ordering::Relaxed);
            for (figure, amount) in [("rows", rows as f64), ("useful", bytes as f64 / 1e6), ("sent", sent as f64 / 1e6)]
            {
                rates.entry(format!("{run}.{figure}")).or_default().push(amount / seconds);
            }
            println!(
                "{}",
                serde_json::json!({
                    "run": run, "time": time, "format": options.format.name(), "draw": options.draw.name(), "latency_ms": options.latency.as_millis() as u64,
                    "line_mb_s": options.mb_s, "workers": options.workers, "seconds": seconds,
                    "rows_s": rows as f64 / seconds,
                    "useful_mb_s": bytes as f64 / 1e6 / seconds,
                    "sent_mb_s": sent as f64 / 1e6 / seconds,
                    "requests": counts.requests, "cache_mb": counts.cache_bytes as f64 / 1e6,
                    "most_requests": bucket.faults.most.load(Ordering::Relaxed),
                })
            );
        }
    }
    let unit = |key: &str| if key.ends_with("rows") { "rows/s" } else { "MB/s" };
    let figures = rates.iter().filter_map(|(key, rates)| BenchFigure::from_range(key, unit(key), rates)).collect();
    let program = "cargo run --release -p expctl-datasets --example remote_rates --";
    BenchRecord::write_if_asked(program, Path::new(env!("CARGO_MANIFEST_DIR")), figures).unwrap();
}
