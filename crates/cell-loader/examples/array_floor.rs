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

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anndata_io::{AnnDataError, ArrayStore, CsrView, Form, Labels, ReadRows, Resident};
use cell_loader::{CellBatchOptions, CellBatcher, Draw, RowSampler, Sharding, ShuffleMeter};
use loader_core::{Loader, LoaderOptions};
use memmap2::{Advice, MmapMut, MmapOptions};

fn main() {
    if std::env::args().nth(1).is_some_and(|first| first.starts_with("--")) {
        return one_floor();
    }
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<f64>().unwrap());
    let mut next = |default: f64| arguments.next().unwrap_or(default);
    let (rows, genes, values) = (next(200_000.0) as usize, next(20_000.0) as usize, next(1232.0) as usize);
    let time = Duration::from_secs_f64(next(1.0));
    let store = Arc::new(Memory::new(rows, genes, values));
    let source = on_huge_pages(store.bytes());
    for threads in [1, 2] {
        for batch in [128, 1024] {
            let (copy, fill) = bandwidths(&source, threads, batch, genes, values, time);
            println!("threads {threads}, batch {batch}: copy {:.1} GB/s, fill {:.1} GB/s", copy / 1e9, fill / 1e9);
            let floors = floors(copy, fill, genes, values);
            for (output, floor) in [Form::Sparse, Form::Dense].into_iter().zip(floors) {
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
    measure_draws();
}

/// Bytes a second of copying and of filling.
fn bandwidths(source: &[u8], threads: u32, batch: usize, genes: usize, values: usize, time: Duration) -> (f64, f64) {
    let copy = copy_bandwidth(threads, batch, values * 8, source, time);
    (copy, fill_bandwidth(threads, batch * genes * 4, time))
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
    let source = on_huge_pages(Memory::new(200_000, genes, values).bytes());
    let (copy, fill) = bandwidths(&source, threads, batch, genes, values, time);
    let [sparse, dense] = floors(copy, fill, genes, values);
    let mut rate = if option("--output") == "dense" { dense } else { sparse };
    let mut read = f64::INFINITY;
    if let Some(pair) = arguments.chunks(2).find(|pair| pair[0] == "--file") {
        let row = values * 8;
        read = read_bandwidth(threads, batch * row, &File::open(&pair[1]).unwrap(), time);
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

/// Print what drawing a row costs, and measuring how well an epoch of ten million is shuffled.
fn measure_draws() {
    let rows = 10_000_000;
    let store = Memory::new(rows, 1, 0);
    let labels = store.labels("class").unwrap();
    for (name, draw, chunk_rows, chunks) in [
        ("sequential", Draw::Sequential { chunk_rows: 512 }, 512, 32),
        ("uniform", Draw::Uniform, 512, 32),
        ("weighted", Draw::Weighted { column: "weight".into(), rows: 0 }, 512, 32),
        ("balanced", Draw::Balanced { column: "class".into(), rows: 0 }, 512, 32),
        ("chunked", Draw::Chunked { chunk_rows: 512, chunks: 32 }, 512, 32),
        ("chunked", Draw::Chunked { chunk_rows: 16, chunks: 1024 }, 16, 1024),
    ] {
        let sharding = Sharding { seed: 1, rank: 0, world_size: 1, batch_size: 128, drop_last: true };
        let start = Instant::now();
        let sampler = RowSampler::new(&draw, &store, sharding, None).unwrap();
        let made = start.elapsed();
        let start = Instant::now();
        let mut drawn = Vec::new();
        sampler.batch(0, &mut drawn);
        let first = start.elapsed();
        let (start, steps) = (Instant::now(), 10_000);
        for step in 0..steps {
            drawn.clear();
            sampler.batch(step, &mut drawn);
        }
        let each = start.elapsed().as_nanos() as f64 / (steps * 128) as f64;
        let start = Instant::now();
        let quality = ShuffleMeter::epoch(&sampler, store.len(), Some(("class", &labels)), 0);
        println!(
            "{name:10} {chunk_rows:4} × {chunks:4}: made in {made:.1?}, first batch {first:.1?}, then {each:.0} ns a row; an epoch \
             measured in {:.2?}: neighbours {:.4}, distance {:.4}, {} twice, entropy {:.4} of {:.4}",
            start.elapsed(),
            quality.neighbour_correlation.unwrap_or(f64::NAN),
            quality.mean_distance,
            quality.duplicates,
            quality.labels.as_ref().map_or(0.0, |labels| labels.entropy),
            quality.labels.as_ref().map_or(0.0, |labels| labels.ideal_entropy),
        );
    }
}

/// Rows in memory, all of as many values, at columns as even as can be.
#[derive(Debug)]
struct Memory {
    indptr: Vec<u64>,
    indices: Vec<i32>,
    data: Vec<f32>,
    genes: Vec<String>,
}

impl Memory {
    fn new(rows: usize, genes: usize, values: usize) -> Self {
        let gap = genes.checked_div(values).unwrap_or(1);
        let column = |place: usize| {
            let (row, number) = (place / values, place % values);
            let shift = (row.wrapping_mul(0x9E37_79B9) ^ number.wrapping_mul(0x85EB_CA6B)) >> 5;
            (number * gap + shift % gap) as i32
        };
        Self {
            indptr: (0..=rows).map(|row| (row * values) as u64).collect(),
            indices: (0..rows * values).map(column).collect(),
            data: (0..rows * values).map(|place| (place % 50 + 1) as f32).collect(),
            genes: (0..genes).map(|gene| gene.to_string()).collect(),
        }
    }

    /// All values, as bytes.
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.data)
    }
}

impl ArrayStore for Memory {
    fn len(&self) -> u64 {
        self.indptr.len() as u64 - 1
    }

    fn genes(&self) -> &[String] {
        &self.genes
    }

    fn form(&self) -> Form {
        Form::Sparse
    }

    fn stored_bytes(&self) -> u64 {
        0
    }

    /// Of any name: a hundred classes, one behind the other.
    fn labels(&self, _: &str) -> Result<Labels, AnnDataError> {
        let class = |row: u64| (row * 100 / self.len()) as i32;
        Ok(Labels {
            categories: (0..100).map(|class| class.to_string()).collect(),
            codes: (0..self.len()).map(class).collect(),
            ..Labels::default()
        })
    }

    fn numbers(&self, _: &str) -> Result<Vec<f64>, AnnDataError> {
        Ok((0..self.len()).map(|row| (row % 17) as f64).collect())
    }

    fn resident(&self) -> Option<Resident<'_>> {
        Some(Resident::Csr(CsrView { indptr: &self.indptr, indices: &self.indices, data: &self.data }))
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Err(AnnDataError::Other("all rows are in memory".into()))
    }
}

/// Buffers of a batch for each thread, as many as the loader has.
const BUFFERS: usize = 3;

/// Sum over threads of `work` calls a second, each of which moves `bytes`.
fn bandwidth(threads: u32, bytes: usize, time: Duration, work: impl Fn(&mut Vec<Vec<u8>>, u64) + Sync) -> f64 {
    let one = &|thread: u64| {
        let mut buffers = Vec::new();
        let mut number = thread << 32;
        for _ in 0..BUFFERS {
            work(&mut buffers, number);
        }
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < time {
            number += 1;
            work(&mut buffers, number);
            calls += 1;
        }
        black_box(&buffers);
        (calls * bytes) as f64 / start.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..u64::from(threads)).map(|thread| scope.spawn(move || one(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

fn buffer(buffers: &mut Vec<Vec<u8>>, number: u64, bytes: usize) -> &mut [u8] {
    if buffers.len() < BUFFERS {
        buffers.push(vec![1; bytes]);
    }
    let place = number as usize % buffers.len();
    &mut buffers[place]
}

/// The same bytes on huge pages, as the loader has its rows and numpy its arrays.
fn on_huge_pages(bytes: &[u8]) -> MmapMut {
    let mut map = MmapOptions::new().len(bytes.len()).map_anon().unwrap();
    #[cfg(target_os = "linux")]
    map.advise(Advice::HugePage).unwrap();
    map.copy_from_slice(bytes);
    map
}

/// Bytes a second, read and written, of copying `batch` pieces of `piece` bytes from random places of `source`.
fn copy_bandwidth(threads: u32, batch: usize, piece: usize, source: &[u8], time: Duration) -> f64 {
    bandwidth(threads, 2 * batch * piece, time, |buffers, number| {
        for (i, to) in buffer(buffers, number, batch * piece).chunks_exact_mut(piece).enumerate() {
            let random = (number * batch as u64 + i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
            let from = random as usize % (source.len() - piece);
            to.copy_from_slice(&source[from..from + piece]);
        }
    })
}

/// Bytes a second of reading pieces of `piece` bytes from random places of a file that the system has in memory, into a buffer
/// that stays in the caches.
fn read_bandwidth(threads: u32, piece: usize, file: &File, time: Duration) -> f64 {
    let places = file.metadata().unwrap().len() - piece as u64;
    bandwidth(threads, piece, time, |buffers, number| {
        let random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
        // One buffer, as the loader has one.
        file.read_exact_at(buffer(buffers, 0, piece), random % places).unwrap();
    })
}

/// Bytes written a second of filling buffers of `bytes`: in the caches or around them, whichever is faster.
fn fill_bandwidth(threads: u32, bytes: usize, time: Duration) -> f64 {
    let plain =
        bandwidth(threads, bytes, time / 2, |buffers, number| buffer(buffers, number, bytes).fill(black_box(0)));
    let around = bandwidth(threads, bytes, time / 2, |buffers, number| fill_around(buffer(buffers, number, bytes)));
    plain.max(around)
}

#[cfg(target_arch = "x86_64")]
fn fill_around(buffer: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};

    // SAFETY: any bytes are a `__m128i`.
    let (head, lines, tail) = unsafe { buffer.align_to_mut::<__m128i>() };
    head.fill(0);
    for line in lines {
        // SAFETY: every x86-64 processor has SSE2, and the place is aligned and ours.
        unsafe { _mm_stream_si128(line, _mm_setzero_si128()) };
    }
    tail.fill(0);
    // SAFETY: as above.
    #[allow(unused_unsafe, reason = "safe from some compiler version on")]
    unsafe {
        _mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fill_around(buffer: &mut [u8]) {
    buffer.fill(black_box(0));
}
