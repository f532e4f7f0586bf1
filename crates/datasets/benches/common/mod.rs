//! What the benchmarks share: the full-scale data set, and comparing with a floor.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use expctl_datasets::graph::{Dataset, Recipe, build};
use expctl_ledger::{BenchFigure, BenchInterval, BenchRecord};
use expctl_settings::{Data, LabelSource, Networks};
use graph_loader::{CellGraph, Sample};

/// What [`against_floor`] found, for the record.
static FIGURES: Mutex<Vec<BenchFigure>> = Mutex::new(Vec::new());

/// Write what was compared with floors since the start into the record, if one was asked for (`EXPCTL_BENCH_RECORD`).
pub fn write_record(bench: &str) {
    let figures = std::mem::take(&mut *FIGURES.lock().unwrap());
    let command = format!("cargo bench -p expctl-datasets --bench {bench}");
    if let Some(file) = std::env::var_os("EXPCTL_BENCH_RECORD") {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        BenchRecord::new(command, repository, figures).write(Path::new(&file)).unwrap();
    }
}

/// Samples of the data set that most benchmarks use.
#[allow(dead_code, reason = "not every benchmark needs it")]
pub const SAMPLES: u64 = 10_000;

/// The data set that ships at full scale, built in the cache if it is not there.
pub fn dataset(samples: u64) -> Dataset {
    let cache = std::env::var_os("EXPCTL_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache/expctl"))).unwrap();
    let data = Data {
        set: "006-kuzmin-tmi".to_owned(),
        samples,
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

/// All nine edge types, with metabolism.
#[allow(dead_code, reason = "not every benchmark needs it")]
pub fn graph(dataset: &Dataset) -> Arc<CellGraph> {
    let names: Vec<String> = dataset.manifest().networks.iter().map(|network| network.name.clone()).collect();
    Arc::new(dataset.graph(&names, true).unwrap())
}

/// The first samples of the data set.
#[allow(dead_code, reason = "not every benchmark needs it")]
pub fn samples(dataset: &Dataset, count: u64) -> Vec<Sample> {
    let (store, decoder) = (dataset.store().unwrap(), dataset.decoder().unwrap());
    let mut reader = store.reader().unwrap();
    let one = |index| {
        let (mut bytes, mut sample) = (Vec::new(), Sample::default());
        reader.read(index, &mut bytes).unwrap();
        decoder.decode(index, &bytes, &mut sample).unwrap();
        sample
    };
    (0..count).map(one).collect()
}

/// Run floor and subject in turns, so that both see the same machine, and print medians, quartiles and their ratio.
/// Others may use the machine: medians of turns hold where means of one after the other do not.
#[allow(dead_code, reason = "not every benchmark needs it")]
pub fn against_floor(name: &str, bytes: usize, rounds: usize, floor: impl FnMut(), subject: impl FnMut()) {
    against_floor_after(name, bytes, rounds, || {}, floor, subject);
}

/// [`against_floor`] with something that is done before each run and is not timed.
#[allow(dead_code, reason = "not every benchmark needs it")]
pub fn against_floor_after(
    name: &str,
    bytes: usize,
    rounds: usize,
    mut before: impl FnMut(),
    mut floor: impl FnMut(),
    mut subject: impl FnMut(),
) {
    let mut time = |run: &mut dyn FnMut()| {
        before();
        let start = Instant::now();
        run();
        start.elapsed()
    };
    // The first round faults pages in.
    time(&mut floor);
    time(&mut subject);
    let mut times: Vec<(Duration, Duration)> = (0..rounds).map(|_| (time(&mut floor), time(&mut subject))).collect();
    let mut ratios: Vec<f64> =
        times.iter().map(|(floor, subject)| floor.as_secs_f64() / subject.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let n = rounds as u64;
    let quartiles = |key: String, unit: &str, median, low, high| {
        FIGURES.lock().unwrap().push(BenchFigure {
            key,
            median,
            low,
            high,
            interval: BenchInterval::Quartiles,
            n,
            unit: unit.to_owned(),
        });
    };
    let mut describe = |what: &str, of: fn(&(Duration, Duration)) -> Duration| {
        times.sort_by_key(of);
        let (median, low, high) = (of(&times[rounds / 2]), of(&times[rounds / 4]), of(&times[rounds * 3 / 4]));
        let rate = bytes as f64 / median.as_secs_f64() / 1e9;
        let ns = |time: Duration| time.as_nanos() as f64;
        quartiles(format!("{name}.{what}"), "ns", ns(median), ns(low), ns(high));
        println!("{name}: {what} {median:.1?} ({low:.1?} to {high:.1?}, n = {rounds}), {rate:.2} GB/s");
    };
    describe("floor", |times| times.0);
    describe("this", |times| times.1);
    let (median, low, high) = (ratios[rounds / 2], ratios[rounds / 4], ratios[rounds * 3 / 4]);
    quartiles(format!("{name}.ratio"), "", median, low, high);
    println!("{name}: {median:.2} of the floor's speed ({low:.2} to {high:.2})");
}
