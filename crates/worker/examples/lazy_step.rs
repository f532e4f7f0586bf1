//! Times forward and backward passes of the lazy model on the data set that ships, at full scale: 6,607 genes, 2.5 million
//! edges of nine types. Peak memory is that of the steps: each run is a process of its own.
//!
//!     cargo run --release -p expctl-worker --example lazy_step -- --implementation shared --batch 28 --threads 2
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;
use expctl_datasets::graph::{Dataset, Recipe, build};
use expctl_ledger::{BenchFigure, BenchRecord};
use expctl_settings::{Data, Implementation, LabelSource, LocalHead, Networks};
use expctl_worker::models::lazy::{Lazy, LazyConfig};
use expctl_worker::models::{EdgeList, SampleInputs};
use graph_loader::{Assembler, Batch, GraphBatchOptions, Processor, Sample};
use tch::{Device, Kind, nn};

#[derive(Parser)]
struct Arguments {
    /// replicated, shared or operations.
    #[arg(long, default_value = "shared")]
    implementation: String,
    /// Channels.
    #[arg(long, default_value_t = 16)]
    hidden: i64,
    /// Samples in a batch.
    #[arg(long, default_value_t = 28)]
    batch: usize,
    /// Threads of libtorch.
    #[arg(long, default_value_t = 1)]
    threads: i32,
    /// Steps that are timed.
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Steps that come first and are not timed.
    #[arg(long, default_value_t = 2)]
    warmup: usize,
    /// Only the forward pass, without gradients.
    #[arg(long)]
    forward: bool,
    /// Write the figures into this file; `BenchRecord` reads the argument again.
    #[arg(long)]
    #[allow(dead_code, reason = "read elsewhere")]
    record: Option<PathBuf>,
}

fn main() {
    let arguments = Arguments::parse();
    tch::set_num_threads(arguments.threads);
    let implementation = match arguments.implementation.as_str() {
        "shared" => Implementation::Shared,
        "replicated" => Implementation::Replicated,
        "operations" => Implementation::Operations,
        other => {
            println!("no implementation {other}: replicated, shared or operations");
            std::process::exit(2);
        }
    };
    let dataset = dataset();
    let names: Vec<String> = dataset.manifest().networks.iter().map(|network| network.name.clone()).collect();
    let graph = Arc::new(dataset.graph(&names, false).unwrap());
    let processor = match implementation {
        Implementation::Replicated => Processor::Lazy,
        Implementation::Shared | Implementation::Operations => Processor::Shared,
    };
    let mut assembler = Assembler::new(&GraphBatchOptions::new(processor), Arc::clone(&graph)).unwrap();
    let genes = dataset.sample_genes().unwrap();
    let collate = |assembler: &mut Assembler, b: usize, batch: &mut Batch| {
        let sample =
            |i| Sample { genes: genes.of(i).iter().map(|gene| i64::from(*gene)).collect(), ..Sample::default() };
        let samples: Vec<Sample> = (b * arguments.batch..(b + 1) * arguments.batch).map(|i| sample(i as u64)).collect();
        assembler.mask(&samples, &[], batch);
        assembler.collate(&samples, batch);
    };

    let lists: Vec<EdgeList<'_>> = graph.edge_types.iter().map(EdgeList::from).collect();
    let places: Vec<usize> = (0..lists.len()).collect();
    tch::manual_seed(1);
    let vs = nn::VarStore::new(Device::Cpu);
    let config = LazyConfig {
        hidden: arguments.hidden,
        local_head: LocalHead::Full,
        ..LazyConfig::published(graph.num_genes() as i64)
    };
    let model = Lazy::new(&vs.root(), &config, implementation, &lists, &places).unwrap();
    println!(
        "{}, hidden {}, batch {}, {} threads, {} genes, {} edges, rows with {}, {} B to add up per step",
        arguments.implementation,
        arguments.hidden,
        arguments.batch,
        tch::get_num_threads(),
        graph.num_genes(),
        graph.num_edges(),
        torch_dist::row_instructions(),
        graph.num_edges() * 4 * arguments.hidden as usize * (4 * arguments.batch + 6),
    );

    // What is written to first is the batch; it belongs to the data side.
    let mut batch = assembler.empty();
    collate(&mut assembler, 0, &mut batch);
    let before = memory_kib("VmRSS") + memory_kib("VmSwap");
    let watch = Watch::start();
    let mut times = Vec::new();
    for step in 0..arguments.steps + arguments.warmup {
        collate(&mut assembler, step % 16, &mut batch);
        let start = Instant::now();
        let inputs = SampleInputs::new(&batch, &[], true, Device::Cpu).unwrap();
        let (forward, backward) = if arguments.forward {
            let prediction = tch::no_grad(|| model.forward(&inputs).unwrap().prediction);
            assert!(prediction.isfinite().all().int64_value(&[]) == 1);
            (start.elapsed().as_secs_f64(), 0.0)
        } else {
            let loss = model.forward(&inputs).unwrap().prediction.square().mean(Kind::Float);
            let forward = start.elapsed().as_secs_f64();
            loss.backward();
            (forward, start.elapsed().as_secs_f64() - forward)
        };
        for mut parameter in vs.trainable_variables() {
            parameter.zero_grad();
        }
        if step >= arguments.warmup {
            times.push((forward, backward));
        }
    }
    let (peak, swapped) = watch.end();
    let peak = peak.saturating_sub(before);
    let mut figures = Vec::new();
    let mut show = |what: &str, of: &dyn Fn(&(f64, f64)) -> f64, unit: &str| {
        let mut values: Vec<f64> = times.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        figures.extend(BenchFigure::from_range(what, unit, &values));
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        println!("{what}: median {:.3} {unit}, p5 {:.3}, p95 {:.3}, n = {}", at(0.5), at(0.05), at(0.95), values.len());
    };
    show("forward", &|t| t.0, "s");
    show("backward", &|t| t.1, "s");
    show("rate", &|t| arguments.batch as f64 / (t.0 + t.1), "samples/s");
    let mb = |kib: u64| kib as f64 / 1000.0 * 1.024;
    println!("memory of the steps: {:.1} MB at the peak, up to {:.1} MB of it swapped out", mb(peak), mb(swapped));
    figures.extend(BenchFigure::from_range("memory", "B", &[peak as f64 * 1024.0]));
    figures.extend(BenchFigure::from_range("swapped", "B", &[swapped as f64 * 1024.0]));
    let program = "cargo run --release -p expctl-worker --example lazy_step --";
    BenchRecord::write_if_asked(program, Path::new(env!("CARGO_MANIFEST_DIR")), figures).unwrap();
}

/// Looks at the memory of this process a hundred times a second: the kernel keeps no peak of what is swapped out.
struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64)>,
}

impl Watch {
    fn start() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let (mut peak, mut swapped) = (0, 0);
            while !told.load(Ordering::Relaxed) {
                let swap = memory_kib("VmSwap");
                peak = peak.max(memory_kib("VmRSS") + swap);
                swapped = swapped.max(swap);
                std::thread::sleep(Duration::from_millis(10));
            }
            (peak, swapped)
        });
        Self { over, thread }
    }

    /// Peaks of all memory and of what was swapped out, in KiB.
    fn end(self) -> (u64, u64) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A line of /proc/self/status, in KiB.
fn memory_kib(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':')).unwrap();
    value.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The data set that ships at full scale, built in the cache if it is not there.
fn dataset() -> Dataset {
    let cache = std::env::var_os("EXPCTL_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache/expctl"))).unwrap();
    let data = Data {
        set: "006-kuzmin-tmi".to_owned(),
        samples: 10_000,
        scale: 1.0,
        networks: Networks::Completed,
        seed: 42,
        labels: LabelSource::Random,
        files: 1,
        genes: 0,
    };
    let folder = cache.join("bench").join(data.folder_name());
    std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(&data.set);
    build(&Recipe::load(&recipe).unwrap(), &data, &folder, &mut |_| ControlFlow::Continue(())).unwrap();
    Dataset::open(&folder).unwrap()
}
