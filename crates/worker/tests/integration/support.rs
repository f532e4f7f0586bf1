//! A small DANGO over made-up graphs, and batches of made-up samples.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use expctl_rounding::nudged;
use expctl_settings::{Implementation, Model, ModelKind, Processor, Settings};
use expctl_worker::Activity;
use expctl_worker::models::{ModelBatch, StepContext};
use expctl_worker::trainer::{StepResult, TrainError, Trainer};
use graph_loader::{Assembler, Batch, CellGraph, Common, EdgeType, GraphBatchOptions, Layout, Sample};
use serde_json::{Value, json};
use tch::{Device, Tensor};
use torch_dist::ProcessGroup;

/// Threads that tests compute with. Only a process with a single test may change it.
pub static THREADS: AtomicI32 = AtomicI32::new(1);

/// libtorch has one generator of random numbers for the process, and tests run side by side: whatever seeds it or draws from it (every new model
/// does) holds this meanwhile. libtorch also has one number of threads for the process, [`THREADS`].
pub fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    tch::set_num_threads(THREADS.load(Ordering::SeqCst));
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

pub const GENES: i64 = 50;
const TYPES: [&str; 3] = ["a", "b", "c"];
/// Mean and standard deviation of the labels, for those that standardise.
pub const LABELS: (f64, f64) = (0.1, 0.6);

/// Settings in mode train with SGD and the squared error, `train` replacing single keys.
pub fn settings(train: Value) -> Settings {
    let mut all = json!({
        "experiment": {"study": "", "title": "", "description": "", "measures": [], "does_not_measure": []},
        "data": {"set": "", "samples": 64, "scale": 1.0, "networks": "real", "seed": 1},
        "pipeline": {"processor": "ids", "edge_types": TYPES},
        "loader": {"batch_size": 8, "workers": 0, "prefetch_factor": 1, "pin_memory": false, "shuffle": false,
                   "drop_last": false, "seed": 0},
        "model": {"kind": "dango", "hidden": 16, "heads": 4, "layers": 2, "edge_types": TYPES, "seed": 17},
        "train": {"mode": "train", "optimizer": "sgd", "learning_rate": 0.05, "weight_decay": 0.0, "clip_norm": 0.0,
                  "reconstruction": "off", "loss": "mse"},
        "measure": {"warmup": 0, "steps": 1, "repeats": 1},
        "launch": {"ranks": 1, "threads": 1, "rendezvous_timeout_s": 60, "heartbeat_timeout_s": 60},
        "slurm": {"partition": "", "account": "", "cpus_per_rank": 1, "memory_mib": 0, "time_min": 0, "throttle": 0},
    });
    for (key, value) in train.as_object().unwrap() {
        all["train"][key] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

pub fn graph() -> CellGraph {
    let edge_types = TYPES.iter().zip(0i64..).map(|(name, t)| {
        let sources = (0..200).map(move |i| (i * i + t) % GENES);
        let targets = (0..200).map(move |i| (i * 7 + 3 * t + i / 50) % GENES);
        EdgeType { name: (*name).to_owned(), edge_index: sources.chain(targets).collect() }
    });
    let genes = (0..GENES).map(|gene| format!("G{gene:02}")).collect();
    CellGraph { genes, edge_types: edge_types.collect(), metabolism: None }
}

/// The samples with these numbers: three different genes each, and a label between −1 and 1.
pub fn batch(ids: impl IntoIterator<Item = i64>) -> Batch {
    let mut common = Common { gene_ptr: vec![0], ..Common::default() };
    for (sample, id) in (0i64..).zip(ids) {
        let mut genes = [id * 11 % GENES, (id * 11 + 17) % GENES, (id * 11 + 34 + id % 7) % GENES];
        genes.sort_unstable();
        common.genes.extend(genes);
        common.gene_sample.extend([sample; 3]);
        common.gene_ptr.push(3 * (sample + 1));
        common.labels.push((id as f32 * 0.7).sin());
        common.p_values.push(f32::NAN);
    }
    Batch { common, layout: Layout::Ids }
}

/// The same samples with the graph of each, as the published lazy model reads them.
pub fn with_graphs(ids: impl IntoIterator<Item = i64>) -> Batch {
    let Common { genes, labels, .. } = batch(ids).common;
    let samples: Vec<Sample> = genes
        .chunks(3)
        .zip(labels)
        .map(|(genes, label)| Sample { genes: genes.to_vec(), label, ..Sample::default() })
        .collect();
    collate(graph_loader::Processor::Lazy, &Arc::new(graph()), &samples)
}

/// A batch of `samples` on `graph`, as the loader makes it.
pub fn collate(processor: graph_loader::Processor, graph: &Arc<CellGraph>, samples: &[Sample]) -> Batch {
    let mut assembler = Assembler::new(&GraphBatchOptions::new(processor), Arc::clone(graph)).unwrap();
    let mut batch = assembler.empty();
    assembler.mask(samples, &[], &mut batch);
    assembler.collate(samples, &mut batch);
    batch
}

pub fn new_trainer(settings: &Settings, group: &ProcessGroup) -> Result<Trainer, TrainError> {
    let _alone = generator();
    Trainer::new(settings, &graph(), LABELS, group, Device::Cpu)
}

/// A trainer of rows of `genes` values, to predict `classes` classes.
pub fn new_array_trainer(
    settings: &Settings,
    genes: u64,
    classes: u64,
    group: &ProcessGroup,
) -> Result<Trainer, TrainError> {
    let _alone = generator();
    Trainer::new_array(settings, genes, classes, group, Device::Cpu)
}

pub fn trainer(train: Value, group: &ProcessGroup) -> Trainer {
    new_trainer(&settings(train), group).unwrap()
}

/// The published lazy model, small.
pub fn lazy_trainer(train: Value, group: &ProcessGroup) -> Trainer {
    lazy_trainer_of(train, |_| {}, group)
}

/// The same with a model that `change` modifies.
pub fn lazy_trainer_of(train: Value, change: impl FnOnce(&mut Model), group: &ProcessGroup) -> Trainer {
    let mut settings = settings(train);
    settings.model.kind = ModelKind::Lazy;
    settings.pipeline.processor = Processor::Lazy;
    change(&mut settings.model);
    if settings.model.implementation != Implementation::Replicated {
        settings.pipeline.processor = Processor::Ids;
    }
    new_trainer(&settings, group).unwrap()
}

pub fn step(
    trainer: &mut Trainer,
    batch: &dyn ModelBatch,
    epoch: u64,
    group: &ProcessGroup,
) -> Result<StepResult, TrainError> {
    trainer.step(&StepContext { batch, masks: &[], epoch, group, activity: &Activity::default() })
}

/// Order the buckets, as before the first step after a checkpoint.
pub fn order_buckets(trainer: &mut Trainer, batch: &dyn ModelBatch, epoch: u64, group: &ProcessGroup) {
    let activity = Activity::default();
    trainer.order_buckets(&StepContext { batch, masks: &[], epoch, group, activity: &activity }).unwrap();
}

/// All parameters, by name.
pub fn parameters(trainer: &Trainer) -> Vec<f32> {
    let flat = trainer.state().into_iter().filter(|(name, _)| name.starts_with("model/"));
    flat.flat_map(|(_, tensor)| Vec::<f32>::try_from(tensor.detach().flatten(0, -1)).unwrap()).collect()
}

pub fn farthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Start from a neighbour of the parameters, if one is named.
pub fn nudge(trainer: &mut Trainer, neighbour: Option<u32>) {
    let Some(neighbour) = neighbour else { return };
    let moved = |(name, tensor): (String, Tensor)| {
        let tensor = if name.starts_with("model/") { nudged(&tensor, neighbour) } else { tensor.copy() };
        (name, tensor)
    };
    let state = trainer.state().into_iter().map(moved).collect();
    trainer.restore(&state).unwrap();
}

/// For comparisons.
pub fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}
