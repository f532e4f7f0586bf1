//! Rows per second of the array loader, as `benches/arrayloader/` compares them with Python's loaders.
//!
//! `array_rates FILE… [--draw uniform] [--by COLUMN] [--chunk-rows 512] [--chunks 32] [--batch 128] [--workers 1]
//! [--output sparse|dense] [--memory] [--label COLUMN] [--seconds 5 | --rows N] [--seed 1]`
//!
//! Files are `.h5ad` or `.parquet`, or folders in zarr, all of one kind. Prints a JSON object: rows, seconds, rows_per_s, cpu (seconds of
//! processor per second), bytes_read. A second before the clock starts fills what is ahead and warms what is kept.

#![expect(clippy::print_stdout, reason = "a measurement")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use expctl_pipeline::PipelineError;
use expctl_pipeline::array::loading::ArrayBuilder;
use expctl_pipeline::array::sampler::{RowSampler, Sharding};
use expctl_pipeline::array::{self, Labels};
use expctl_pipeline::loader::{Loader, LoaderOptions};
use expctl_record::{Array, ArrayFormat, Draw, Output, Sampler};

/// What is measured.
struct Options {
    files: Vec<PathBuf>,
    array: Array,
    sampler: Sampler,
    batch: u64,
    workers: u32,
    seconds: f64,
    /// In place of seconds.
    rows: Option<u64>,
    seed: u64,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        files: Vec::new(),
        array: Array::default(),
        sampler: Sampler::default(),
        batch: 128,
        workers: 1,
        seconds: 5.0,
        rows: None,
        seed: 1,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let Some(name) = argument.strip_prefix("--") else {
            options.files.push(argument.into());
            continue;
        };
        if name == "memory" {
            options.array.memory = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("--{name} needs a value"))?;
        let number = || value.parse::<f64>().map_err(|e| format!("--{name} {value}: {e}"));
        match name {
            "draw" => {
                let draws = [Draw::Sequential, Draw::Uniform, Draw::Weighted, Draw::Balanced, Draw::Chunked];
                let draw = draws.into_iter().find(|draw| draw.name() == value);
                options.sampler.draw = draw.ok_or_else(|| format!("there is no draw '{value}'"))?;
            }
            "by" => options.sampler.by = value,
            "label" => options.array.labels.push(value),
            "chunk-rows" => options.sampler.chunk_rows = number()? as u64,
            "chunks" => options.sampler.chunks = number()? as u64,
            "batch" => options.batch = number()? as u64,
            "workers" => options.workers = number()? as u32,
            "seconds" => options.seconds = number()?,
            "rows" => options.rows = Some(number()? as u64),
            "seed" => options.seed = number()? as u64,
            "output" => {
                options.array.output = match value.as_str() {
                    "dense" => Output::Dense,
                    "sparse" => Output::Sparse,
                    _ => return Err(format!("there is no output '{value}'")),
                }
            }
            _ => return Err(format!("there is no option --{name}")),
        }
    }
    let is_parquet = options.files.iter().any(|file| file.extension().is_some_and(|extension| extension == "parquet"));
    options.array.format = match options.files.iter().any(|file| file.is_dir()) {
        true => ArrayFormat::Zarr,
        false if is_parquet => ArrayFormat::Parquet,
        false => ArrayFormat::H5ad,
    };
    if options.files.is_empty() { Err("no files".to_owned()) } else { Ok(options) }
}

/// Seconds of processor that this process has had.
fn cpu_seconds() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    usage.map_or(f64::NAN, |usage| {
        [usage.user_time(), usage.system_time()].iter().map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6).sum()
    })
}

fn measure(options: &Options) -> Result<serde_json::Value, PipelineError> {
    let store = array::open(&options.array, &options.files, options.workers.max(1) as usize, u64::MAX)?;
    let sharding = Sharding { seed: options.seed, rank: 0, world_size: 1, batch_size: options.batch, drop_last: true };
    let sampler = Arc::new(RowSampler::new(&options.sampler, &*store, sharding, None)?);
    let labels = Labels::of(store.as_ref(), &options.array.labels)?;
    let builder = ArrayBuilder::new(store, sampler, &options.array, labels)?;
    let loading =
        LoaderOptions { workers: options.workers, prefetch_factor: 2, first: 0, steps: u64::MAX, buffer_bytes: 0 };
    let mut loader = Loader::start(builder, loading)?;
    let (mut rows, mut bytes_read) = (0, 0);
    let (mut clock, mut cpu, mut warm) = (Instant::now(), 0.0, false);
    while let Some(loaded) = loader.next_batch() {
        let loaded = loaded?;
        rows += loaded.batch.len() as u64;
        bytes_read += loaded.bytes_read;
        loader.recycle(loaded.batch);
        if !warm && clock.elapsed() > Duration::from_secs(1) {
            (warm, rows, bytes_read, clock, cpu) = (true, 0, 0, Instant::now(), cpu_seconds());
        } else if warm && options.rows.map_or(clock.elapsed().as_secs_f64() > options.seconds, |most| rows >= most) {
            break;
        }
    }
    let seconds = clock.elapsed().as_secs_f64();
    Ok(serde_json::json!({
        "rows": rows,
        "seconds": seconds,
        "rows_per_s": rows as f64 / seconds,
        "cpu": (cpu_seconds() - cpu) / seconds,
        "bytes_read": bytes_read,
    }))
}

fn main() -> Result<(), String> {
    let options = options()?;
    println!("{}", measure(&options).map_err(|e| e.to_string())?);
    Ok(())
}
