//! What a training step pays for being timed, part by part, in ns a step. Public, and called as the worker does: profiler
//! ranges, the split of a wait, the journal, the last words, the marks of operations (`profile.operations`). Not public, and
//! repeated here with the same calls: the step's own clock (`src/trainer/step.rs`), a loader thread's stage clock (`loader-core`,
//! `src/timing.rs`), and the times of a bucket in the process group (`torch-dist`, `cpp/timed_allreduce.cpp`, there in C++, with
//! a future around each all-reduce that is not in these figures). Steps are those of a model on the host without clipping,
//! masks or a running profiler. What only watches for a step that hangs is not for its times, and left out.
//!
//!     cargo run --release -p expctl-worker --example timing_cost -- [REPEATS [STEPS]] [--record FILE]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use expctl_datasets::{ledger_operations, ledger_times};
use expctl_ledger::{
    AttemptDir, BenchFigure, BenchRecord, Journal, LastWords, PerStage, Stage, StepRecord, trace_rows,
};
use graph_loader::{Marker, Marks, Operand};
use loader_core::{BatchOperations, Interval, Loaded, StageOperation, exposed_wait};
use torch_dist::ProfilerRange;

/// Written between two steps, so that these find nothing in the caches: four times the second level of the machine in the docs.
const EVICTED_BYTES: usize = 8 << 20;
/// Stages of a batch of graphs, more than any batch of rows has.
const BATCH_STAGES: [loader_core::Stage; 5] = [
    loader_core::Stage::Sample,
    loader_core::Stage::Read,
    loader_core::Stage::Decode,
    loader_core::Stage::Mask,
    loader_core::Stage::Collate,
];
/// Edge types of the published graph.
const TYPES: [&str; 9] = [
    "physical",
    "regulatory",
    "tflink",
    "string12_0_neighborhood",
    "string12_0_fusion",
    "string12_0_cooccurence",
    "string12_0_coexpression",
    "string12_0_experimental",
    "string12_0_database",
];

fn main() {
    let numbers: Vec<usize> =
        std::env::args().skip(1).take_while(|a| a != "--record").map(|a| a.parse().unwrap()).collect();
    let (repeats, steps) = (numbers.first().copied().unwrap_or(15), numbers.get(1).copied().unwrap_or(5000));
    let keys = [
        "stages",
        "batch",
        "allreduce",
        "journal",
        "last_words",
        "all",
        "all_cold",
        "loader",
        "operations",
        "operations_step",
    ];
    let names = [
        "stages of the step: clock laps and profiler ranges",
        "the batch: wait split over its stages, its times added up",
        "all-reduce: times of one bucket, read",
        "journal: one step appended",
        "last words: one step counted",
        "sum of a step's own thread, all parts in turn",
        "the same with cold caches",
        "beside the step: laps of a loader thread, five stages",
        "with profile.operations, beside the step: marks of a lazy batch over nine edge types with metabolism",
        "with profile.operations: their times added up, one step with them appended to the journal",
    ];
    let mut times = vec![Vec::with_capacity(repeats); names.len()];
    for repeat in 0..=repeats {
        let measured = once(steps);
        // The first warms up.
        if repeat > 0 {
            times.iter_mut().zip(measured).for_each(|(times, ns)| times.push(ns));
        }
    }
    println!("ns a step, median [least..most] of {repeats} repeats of {steps} steps (cold caches: {})", steps / 10);
    for (name, times) in names.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{:>8.0} [{:.0}..{:.0}]  {name}", times[times.len() / 2], times[0], times[times.len() - 1]);
    }
    let figures =
        keys.iter().zip(&times).filter_map(|(key, times)| BenchFigure::from_range(*key, "ns", times)).collect();
    let program = "cargo run --release -p expctl-worker --example timing_cost --";
    BenchRecord::write_if_asked(program, Path::new(env!("CARGO_MANIFEST_DIR")), figures).unwrap();
}

/// Each part in turn.
fn once(steps: usize) -> [f64; 10] {
    let dir = tempfile::tempdir().unwrap();
    let mut rank = SimulatedRank::new(dir.path());
    let mut evicted = vec![0u8; EVICTED_BYTES];
    let mut cold: Vec<f64> = (0..steps / 10)
        .map(|step| {
            evicted.fill(black_box(step as u8));
            black_box(&evicted);
            let start = Instant::now();
            rank.step(step as u64);
            start.elapsed().as_nanos() as f64
        })
        .collect();
    cold.sort_by(f64::total_cmp);
    let mut marks = Marks::new(rank.begin, TYPES);
    let marked = operations(&mut marks);
    [
        mean(steps, |_| keep(stages())),
        mean(steps, |_| keep(rank.batch())),
        mean(steps, |_| keep(rank.timeline.bucket())),
        mean(steps, |step| rank.journal.append(&black_box(record(step, PerStage::default()))).unwrap()),
        mean(steps, |_| rank.last_words.step_done()),
        mean(steps, |step| rank.step(step)),
        cold[cold.len() / 2],
        mean(steps, |_| keep(laps(rank.begin))),
        mean(steps, |_| keep(operations(&mut marks))),
        mean(steps, |step| {
            let operations = ledger_operations(black_box(&marked));
            rank.journal.append(&black_box(StepRecord { operations, ..record(step, PerStage::default()) })).unwrap();
        }),
    ]
}

/// The result of a part, which must not be left out.
fn keep<T>(result: T) {
    black_box(result);
}

/// Mean ns of one call.
fn mean(steps: usize, mut part: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..steps as u64).for_each(&mut part);
    start.elapsed().as_nanos() as f64 / steps as f64
}

/// State of a rank between steps.
struct SimulatedRank {
    begin: Instant,
    loaded: Loaded<()>,
    timeline: Timeline,
    journal: Journal,
    last_words: LastWords,
}

impl SimulatedRank {
    fn new(dir: &std::path::Path) -> Self {
        let begin = Instant::now();
        let loaded = Loaded { thread: Some(0), intervals: laps(begin), ..Loaded::new((), 0, 0) };
        Self {
            begin,
            loaded,
            timeline: Timeline::default(),
            journal: Journal::create(&dir.join("rank-0.jsonl")).unwrap(),
            last_words: LastWords::new(AttemptDir::open(dir), 0),
        }
    }

    /// All that the step's own thread does for the times of one step.
    fn step(&mut self, step: u64) {
        let mut cost = self.batch();
        let result = stages();
        add(&mut cost, &result);
        keep(self.timeline.bucket());
        self.journal.append(&record(step, cost)).unwrap();
        self.last_words.step_done();
    }

    /// As `Loader::next_batch` and `StepLoop::run_steps` do around a batch.
    fn batch(&mut self) -> PerStage<u64> {
        let mut cost = PerStage::default();
        let waiting = ProfilerRange::open(trace_rows::LOAD);
        let from = self.begin.elapsed().as_nanos() as u64;
        self.loaded.exposed =
            exposed_wait(from, self.begin.elapsed().as_nanos() as u64, black_box(&self.loaded.intervals));
        drop(waiting);
        add(&mut cost, &ledger_times(&self.loaded.busy()));
        let from = Instant::now();
        let other = ProfilerRange::open(Stage::Other.name());
        drop(other);
        cost[Stage::Other] += from.elapsed().as_nanos() as u64;
        keep(self.begin.elapsed().as_nanos());
        cost
    }
}

fn add(cost: &mut PerStage<u64>, times: &PerStage<u64>) {
    for (stage, ns) in times.iter() {
        cost[stage] += ns;
    }
}

/// As `StageTimer` does in `Trainer::step`: transfer, forward, backward, optimizer.
fn stages() -> PerStage<u64> {
    let mut result = PerStage::default();
    let mut since = Instant::now();
    for stage in [Stage::Transfer, Stage::Forward, Stage::Backward, Stage::Optimizer] {
        let range = ProfilerRange::open(stage.name());
        drop(black_box(range));
        let now = Instant::now();
        result[stage] += now.duration_since(since).as_nanos() as u64;
        since = now;
    }
    result
}

/// As `StageClock` does on a loader thread.
fn laps(clock: Instant) -> Vec<Interval> {
    let mut last = clock.elapsed().as_nanos() as u64;
    let mut intervals = Vec::with_capacity(BATCH_STAGES.len());
    for stage in BATCH_STAGES {
        let now = clock.elapsed().as_nanos() as u64;
        intervals.push(Interval { stage, start: last, end: now, busy: true });
        last = now;
    }
    intervals
}

/// As `Assembler` marks what it does for a batch of the processor `lazy` with the collation `pyg`, operation by operation.
fn operations(marks: &mut Marks) -> BatchOperations {
    let types = || (0..TYPES.len()).map(Operand::EdgeType);
    marks.begin(loader_core::Stage::Mask);
    marks.mark(StageOperation::Fill, Operand::Genes);
    types().chain([Operand::Metabolism; 3]).for_each(|operand| marks.mark(StageOperation::Allocate, operand));
    for operand in types().chain([Operand::Metabolism]) {
        marks.mark(StageOperation::Lookup, operand);
        marks.mark(StageOperation::Fill, operand);
    }
    marks.mark(StageOperation::Fill, Operand::Metabolism);
    marks.begin(loader_core::Stage::Collate);
    for operand in [Operand::Labels, Operand::Labels, Operand::Genes] {
        marks.mark(StageOperation::Copy, operand);
    }
    for operand in types().chain([Operand::Metabolism; 2]) {
        marks.mark(StageOperation::Allocate, operand);
        marks.mark(StageOperation::Copy, operand);
    }
    for _ in 0..2 {
        marks.mark(StageOperation::Copy, Operand::Metabolism);
    }
    marks.finish()
}

/// As the class of this name in C++.
#[derive(Default)]
struct Timeline(Mutex<Vec<(Option<Instant>, Option<Instant>)>>);

impl Timeline {
    /// One bucket handed over and completed, and both figures taken: busy and exposed.
    fn bucket(&self) -> (u128, u128) {
        self.0.lock().unwrap().clear();
        {
            let mut buckets = self.0.lock().unwrap();
            buckets.push((Some(Instant::now()), None));
        }
        let end = Instant::now();
        self.0.lock().unwrap()[0].1 = Some(end);
        let figure = || {
            let buckets = black_box(self.0.lock().unwrap().clone());
            buckets.iter().map(|(start, end)| end.unwrap().duration_since(start.unwrap()).as_nanos()).sum()
        };
        (figure(), figure())
    }
}

/// A step of usual figures.
fn record(step: u64, cost: PerStage<u64>) -> StepRecord {
    let mut times = cost;
    for (place, stage) in Stage::ALL.into_iter().enumerate() {
        times[stage] += 123_456 * place as u64;
    }
    StepRecord {
        step,
        epoch: 3,
        measured: true,
        start_ns: 2_000_000 * (step + 1),
        wall_ns: 2_084_712,
        samples: 128,
        bytes_batch: 1_025_024,
        loss: Some(2.271_604_776_382_446_3),
        busy: times,
        exposed: times,
        ..StepRecord::default()
    }
}
