//! Steps as on a GPU: `make test-gpu` runs all tests on one, one after another in a process of their own. Elsewhere the tests that need a GPU
//! say that they are skipped, and the others run with the host in its place: with the same buffers, clipping and timers.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use expctl_datasets::graph_batch_options;
use expctl_ledger::Stage;
use expctl_rounding::{NEIGHBOURS, assert_rounding, floor, nudged};
use expctl_settings::{DeviceMasks, Settings};
use graph_loader::{Batch, CellGraph, EdgeType, Processor, Sample};
use serde_json::{Value, json};
use tch::{Device, Tensor};
use test_support::{Requirement, skip_test};
use torch_dist::{Cuda, GpuBackend, ProcessGroup, ProfileOptions, ProfilerRange, RunningProfile, Store};

use crate::activity::Activity;
use crate::device::{DeviceTimer, Gpu, PinMemory, Prefetcher, StagedBatch};
use crate::device_masks::DeviceMaskMaker;
use crate::models::{ModelBatch, Network, StepContext};
use crate::tests::collate;
use crate::trainer::{StepResult, Trainer};

const GENES: i64 = 300;
const TYPES: [&str; 3] = ["a", "b", "c"];
/// The one to test with.
const GPU: Gpu = Gpu::Cuda(0);

/// CUDA, loaded where a GPU is tested with. Tests of the host load it as well: once libtorch has made a tensor, it finds no GPU that is loaded
/// later, and all tests of this file share a process.
fn load_cuda() -> &'static Result<Cuda, String> {
    static CUDA: OnceLock<Result<Cuda, String>> = OnceLock::new();
    // Beside other tests of this process libtorch may have looked for devices before.
    let wanted = std::env::var_os("EXPCTL_TEST_GPU").is_some();
    CUDA.get_or_init(|| match wanted {
        true => Cuda::load().map_err(|why| why.to_string()),
        false => Err("`make test-gpu` runs it".to_owned()),
    })
}

/// Whether there is a GPU to test with; says why not.
fn ready(case: &str) -> bool {
    let cuda = load_cuda();
    if let Err(why) = cuda {
        skip_test(case, Requirement::Gpu, why);
    }
    cuda.is_ok()
}

fn graph() -> CellGraph {
    let edge_types = TYPES.iter().zip(0i64..).map(|(name, t)| {
        let sources = (0..1000).map(move |i| (i * i + t) % GENES);
        let targets = (0..1000).map(move |i| (i * 7 + 3 * t + i / 50) % GENES);
        EdgeType { name: (*name).to_owned(), edge_index: sources.chain(targets).collect() }
    });
    let genes = (0..GENES).map(|gene| format!("G{gene:03}")).collect();
    CellGraph { genes, edge_types: edge_types.collect(), metabolism: None }
}

fn batch(processor: Processor, first: i64) -> Batch {
    let samples: Vec<Sample> = (first..first + 16)
        .map(|id| {
            let mut genes = vec![id * 11 % GENES, (id * 11 + 17) % GENES, (id * 11 + 134) % GENES];
            genes.sort_unstable();
            Sample { genes, label: (id as f32 * 0.7).sin(), ..Sample::default() }
        })
        .collect();
    collate(processor, &Arc::new(graph()), &samples)
}

/// A model, what computes it, and the processor of its batches.
#[derive(Clone, Copy)]
struct Model {
    kind: &'static str,
    implementation: &'static str,
    processor: Processor,
}

impl Model {
    const LAZY: Self = Self::lazy("replicated", Processor::Lazy);
    const DANGO: Self = Self { kind: "dango", ..Self::LAZY };
    /// One graph for all samples: by the kernels of the host, and by libtorch's operations from genes and from removed edges.
    const SHARED: Self = Self::lazy("shared", Processor::Ids);
    const OF_GENES: Self = Self::lazy("operations", Processor::Ids);
    const OF_REMOVED: Self = Self::lazy("operations", Processor::Shared);
    const OF_SUBGRAPHS: Self = Self::lazy("replicated", Processor::IncidenceSubgraph);
    const OF_NEIGHBORHOODS: Self = Self::lazy("replicated", Processor::Neighborhood);
    const ALL: [Self; 7] = [
        Self::LAZY,
        Self::DANGO,
        Self::SHARED,
        Self::OF_GENES,
        Self::OF_REMOVED,
        Self::OF_SUBGRAPHS,
        Self::OF_NEIGHBORHOODS,
    ];

    const fn lazy(implementation: &'static str, processor: Processor) -> Self {
        Self { kind: "lazy", implementation, processor }
    }

    fn name(self) -> String {
        format!("{}, {}, {}", self.kind, self.implementation, self.processor.name())
    }
}

/// A small model, stepped by `optimizer`.
fn settings(model: Model, optimizer: &str) -> Settings {
    let Model { kind, implementation, processor } = model;
    let all = json!({
        "experiment": {"study": "", "title": "", "description": "", "measures": [], "does_not_measure": []},
        "data": {"set": "", "samples": 64, "scale": 1.0, "networks": "real", "seed": 1},
        "pipeline": {"processor": processor.name(), "edge_types": TYPES},
        "loader": {"batch_size": 16, "workers": 0, "prefetch_factor": 1, "pin_memory": true, "shuffle": false,
                   "drop_last": false, "seed": 0},
        "model": {"kind": kind, "implementation": implementation, "hidden": 16, "heads": 4, "layers": 2,
                  "edge_types": TYPES, "seed": 17},
        "train": {"mode": "train", "optimizer": optimizer, "learning_rate": 0.01, "weight_decay": 0.0, "clip_norm": 1.0,
                  "reconstruction": "off", "loss": "mse"},
        "measure": {"warmup": 0, "steps": 1, "repeats": 1},
        "launch": {"ranks": 1, "threads": 1, "rendezvous_timeout_s": 60, "heartbeat_timeout_s": 60},
        "slurm": {"partition": "", "account": "", "cpus_per_rank": 1, "memory_mib": 0, "time_min": 0, "throttle": 0},
    });
    serde_json::from_value(all).unwrap()
}

/// A group of one rank for work on `gpu`.
fn alone(gpu: Gpu) -> ProcessGroup {
    let _ = load_cuda();
    let limit = Duration::from_secs(60);
    let store = Store::in_process(limit).unwrap();
    match gpu {
        Gpu::Cuda(_) => ProcessGroup::with_gpus(&store, 0, 1, limit, GpuBackend::Gloo).unwrap(),
        Gpu::Host => ProcessGroup::gloo(&store, 0, 1, limit).unwrap(),
    }
}

fn trainer(settings: &Settings, group: &ProcessGroup, device: Device) -> Trainer {
    Trainer::new(settings, &graph(), (0.0, 1.0), group, device).unwrap()
}

/// A trainer that works as on `gpu`.
fn trainer_on(gpu: Gpu, settings: &Settings, group: &ProcessGroup) -> Trainer {
    let mut trainer = trainer(settings, group, gpu.device());
    trainer.run_as_on(gpu);
    trainer
}

const STEPS: usize = 10;

fn step(
    trainer: &mut Trainer,
    batch: &dyn ModelBatch,
    masks: &[Tensor],
    group: &ProcessGroup,
    activity: &Activity,
) -> StepResult {
    trainer.step(&StepContext { batch, masks, epoch: 0, group, activity }).unwrap()
}

/// Loss and norm of the gradient.
type LossAndNorm = [f64; 2];

/// Loss and norm of each step on the host, from the parameters in `start` or from a neighbour of them.
fn by_the_host(
    settings: &Settings,
    start: &BTreeMap<String, Tensor>,
    neighbour: Option<u32>,
    group: &ProcessGroup,
) -> Vec<LossAndNorm> {
    let mut here = trainer(settings, group, Device::Cpu);
    let of_model = |name: &str| name.starts_with("model/");
    let moved = |(name, tensor): (&String, &Tensor)| match neighbour.filter(|_| of_model(name)) {
        Some(neighbour) => (name.clone(), nudged(tensor, neighbour)),
        None => (name.clone(), tensor.shallow_clone()),
    };
    here.restore(&start.iter().map(moved).collect()).unwrap();
    let processor = graph_batch_options(&settings.pipeline).unwrap().processor;
    let batches = (0..STEPS).map(|step| batch(processor, step as i64 * 16));
    let steps = batches.map(|batch| step(&mut here, &batch, &[], group, &Activity::default()));
    steps.map(|found| [found.loss.unwrap(), found.gradient_norm.unwrap()]).collect()
}

/// Page-locked batches are copied to `gpu` and stepped on there; losses and norms are those of the host. A GPU rounds in another order, and Adam
/// amplifies the rounding of small gradients: by how much is measured at neighbouring parameters on the host.
fn steps_are_those_of_the_host(gpu: Gpu) {
    let group = alone(gpu);
    for model in Model::ALL {
        let settings = settings(model, "adamw");
        let mut there = trainer_on(gpu, &settings, &group);
        let start = there.state().into_iter().map(|(name, tensor)| (name, tensor.to_device(Device::Cpu).copy()));
        let start: BTreeMap<String, Tensor> = start.collect();
        let expected = by_the_host(&settings, &start, None, &group);
        let near: Vec<Vec<LossAndNorm>> =
            (0..NEIGHBOURS).map(|neighbour| by_the_host(&settings, &start, Some(neighbour), &group)).collect();
        let prefetcher = Prefetcher::new(gpu).unwrap();
        let pin_memory =
            if Network::reads_graphs(&settings) { PinMemory::BatchAndGraphs(gpu) } else { PinMemory::Batch(gpu) };
        for (step, expected) in expected.iter().enumerate() {
            let mut staged = StagedBatch::new(batch(model.processor, step as i64 * 16));
            staged.pin(pin_memory).unwrap();
            staged.prefetch(&prefetcher).unwrap();
            let activity = Activity::default();
            activity.begin_step(step as u64);
            let found = self::step(&mut there, &staged, &[], &group, &activity);
            // A loss is a mean over 16 samples, a norm is over some thousands of gradients.
            for (i, (what, terms, found)) in
                [("loss", 16, found.loss), ("norm", 4096, found.gradient_norm)].into_iter().enumerate()
            {
                let peers: Vec<f64> = near.iter().map(|near| near[step][i] - expected[i]).collect();
                let error = (found.unwrap() - expected[i]).abs();
                let name = format!("{}, step {step}, {what}", model.name());
                assert_rounding(&name, error, &peers, floor(&[expected[i]], terms));
            }
            assert!(staged.copied_bytes() > 0 && staged.free_copy().unwrap().is_some_and(|ns| ns > 0));
            let device = found.device.unwrap();
            for stage in [Stage::Transfer, Stage::Forward, Stage::Backward, Stage::Clip, Stage::Optimizer] {
                assert!(device[stage] > 0 && found.exposed[stage] == device[stage] && found.busy[stage] > 0, "{stage}");
            }
            // A rank that waits at the end of a step says that it waits for the device.
            assert!(activity.snapshot().unwrap().description.starts_with(&format!("at step {step} (device)")));
        }
    }
}

#[test]
fn steps_on_a_gpu_are_those_of_the_host() {
    if !ready("steps_on_a_gpu_are_those_of_the_host") {
        return;
    }
    let group = alone(GPU);
    for model in Model::ALL {
        let settings = settings(model, "adamw");
        let [here, there] = [Device::Cpu, GPU.device()].map(|device| trainer(&settings, &group, device));
        let (here, there) = (here.parameters_digest().unwrap(), there.parameters_digest().unwrap());
        assert_eq!(here, there, "the same parameters are drawn");
    }
    steps_are_those_of_the_host(GPU);
}

/// Tests that `make check` leaves out.
mod slow {
    use super::*;

    #[test]
    fn steps_as_a_gpu_does_them_are_those_of_the_host() {
        steps_are_those_of_the_host(Gpu::Host);
    }
}

#[test]
fn a_loss_that_is_no_number_is_told_and_not_what_it_makes_of_the_gradient() {
    let group = alone(Gpu::Host);
    for optimizer in ["adamw", "sgd"] {
        let settings = settings(Model::DANGO, optimizer);
        let mut there = trainer_on(Gpu::Host, &settings, &group);
        let before = there.parameters_digest().unwrap();
        let mut batch = batch(Processor::Lazy, 0);
        batch.common.labels[3] = f32::NAN;
        let found = step(&mut there, &batch, &[], &group, &Activity::default());
        assert!(found.loss.unwrap().is_nan() && found.gradient_norm.unwrap().is_nan(), "{optimizer}");
        assert_eq!(there.parameters_digest().unwrap(), before, "{optimizer}: no parameter has changed");
    }
}

#[test]
fn each_end_is_of_its_stage() {
    let _ = load_cuda();
    let mut timer = DeviceTimer::start(Gpu::Host).unwrap();
    for stage in [Stage::Mask, Stage::Other, Stage::Mask] {
        std::thread::sleep(Duration::from_millis(2));
        timer.end_stage(stage).unwrap();
    }
    timer.synchronize().unwrap();
    let times = timer.times().unwrap();
    assert!(times[Stage::Mask] >= 4_000_000 && times[Stage::Other] >= 2_000_000 && times[Stage::Forward] == 0);
}

#[test]
fn masks_made_on_a_gpu_are_those_of_the_host() {
    if !ready("masks_made_on_a_gpu_are_those_of_the_host") {
        return;
    }
    let batch = batch(Processor::Ids, 5);
    for way in [DeviceMasks::Looped, DeviceMasks::Vectorised] {
        let made = |device| {
            let maker = DeviceMaskMaker::new(way, &graph(), device).unwrap().unwrap();
            maker.make(&batch.common).unwrap()
        };
        for (a, b) in made(Device::Cpu).iter().zip(made(GPU.device())) {
            assert!(b.device() == GPU.device() && a.equal(&b.to_device(Device::Cpu)), "{}", way.name());
        }
    }
}

/// Calls of the host that wait for the device, and copies from it, within the range `name` of a trace.
fn waits(trace: &Value, name: &str) -> (Vec<String>, usize) {
    let events = trace["traceEvents"].as_array().unwrap();
    // The device has an event of that name, too.
    let range = events.iter().find(|e| e["name"] == name && e["ph"] == "X" && e["cat"] == "user_annotation").unwrap();
    let start = range["ts"].as_f64().unwrap();
    let end = start + range["dur"].as_f64().unwrap();
    let inside = events.iter().filter(|e| e["ts"].as_f64().is_some_and(|ts| ts >= start && ts <= end));
    let (mut calls, mut copies) = (Vec::new(), 0);
    for event in inside {
        let name = event["name"].as_str().unwrap_or_default();
        if event["cat"] == "cuda_runtime" && name.contains("Synchronize") {
            calls.push(name.to_owned());
        }
        copies += usize::from(event["cat"] == "gpu_memcpy" && name.contains("DtoH"));
    }
    (calls, copies)
}

/// One step on `GPU` with the masks of `maker`, if any, behind five that set libtorch up; its trace.
fn traced_step(model: Model, maker: Option<&DeviceMaskMaker>) -> Value {
    let group = alone(GPU);
    let mut trainer = trainer_on(GPU, &settings(model, "adamw"), &group);
    let prefetcher = Prefetcher::new(GPU).unwrap();
    let mut run_step = |first: i64| {
        let mut staged = StagedBatch::new(batch(model.processor, first));
        staged.pin(PinMemory::BatchAndGraphs(GPU)).unwrap();
        let _range = ProfilerRange::open("the step");
        staged.prefetch(&prefetcher).unwrap();
        let masks = maker.map(|maker| maker.make(&staged.batch.common).unwrap()).unwrap_or_default();
        step(&mut trainer, &staged, &masks, &group, &Activity::default());
        assert_eq!(staged.samples(), 16);
    };
    (0..5).for_each(|i| run_step(i * 16));
    let options = ProfileOptions { cuda: true, ..ProfileOptions::default() };
    RunningProfile::prepare(options).unwrap();
    let profile = RunningProfile::start(options).unwrap();
    run_step(99);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    profile.stop().unwrap().save(&path).unwrap();
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_step_waits_for_the_device_once_wherever_its_masks_are_made() {
    if !ready("a_step_waits_for_the_device_once_wherever_its_masks_are_made") {
        return;
    }
    let maker = DeviceMaskMaker::new(DeviceMasks::Vectorised, &graph(), GPU.device()).unwrap().unwrap();
    // Masks made by the step, for a model that reads copies of the graph and for one that reads none, and by the model.
    for (model, maker) in [
        (Model::LAZY, Some(&maker)),
        (Model::OF_GENES, Some(&maker)),
        (Model::OF_GENES, None),
        (Model::OF_REMOVED, None),
        (Model::OF_SUBGRAPHS, None),
    ] {
        let (calls, copies) = waits(&traced_step(model, maker), "the step");
        assert_eq!((calls.len(), copies), (1, 1), "{}: {calls:?}", model.name());
    }
}
