//! What needs a GPU: `make test-gpu` runs it, one case after another in a process of its own. Elsewhere each says that it is skipped.

use std::io::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

use expctl_dist::{Cuda, GpuBackend, ProcessGroup, Profile, ProfileOptions, Range, Store};
use expctl_pipeline::collate::{Assembler, Batch};
use expctl_pipeline::graph::{CellGraph, EdgeType};
use expctl_pipeline::store::Sample;
use expctl_record::{DeviceMasks, Pipeline, Processor, Settings, Stage};
use serde_json::{Value, json};
use tch::{Device, Tensor};

use super::{Feed, Staged};
use crate::Activity;
use crate::device_masks::DeviceMaskMaker;
use crate::models::ModelBatch;
use crate::trainer::Trainer;

const GENES: i64 = 300;
const TYPES: [&str; 3] = ["a", "b", "c"];
const GPU: Device = Device::Cuda(0);

/// Whether there is a GPU to test with; says why not.
fn ready(case: &str) -> bool {
    static CUDA: OnceLock<Result<Cuda, String>> = OnceLock::new();
    // Beside other tests of this process libtorch may have looked for devices before.
    let wanted = std::env::var_os("EXPCTL_TEST_GPU").is_some();
    let cuda = CUDA.get_or_init(|| match wanted {
        true => Cuda::load().map_err(|why| why.to_string()),
        false => Err("`make test-gpu` runs it".to_owned()),
    });
    if let Err(why) = cuda {
        // Written past the harness, which would keep it to itself: skips are counted.
        std::io::stderr().write_all(format!("SKIPPED {case}: {why}\n").as_bytes()).unwrap();
    }
    cuda.is_ok()
}

fn graph() -> CellGraph {
    let edge_types = TYPES.iter().zip(0i64..).map(|(name, t)| {
        let sources = (0..3000).map(move |i| (i * i + t) % GENES);
        let targets = (0..3000).map(move |i| (i * 7 + 3 * t + i / 50) % GENES);
        EdgeType { name: (*name).to_owned(), edge_index: sources.chain(targets).collect() }
    });
    let genes = (0..GENES).map(|gene| format!("G{gene:03}")).collect();
    CellGraph { genes, edge_types: edge_types.collect(), metabolism: None }
}

fn batch(processor: Processor, first: i64) -> Batch {
    let samples: Vec<Sample> = (first..first + 16)
        .map(|id| Sample {
            genes: vec![id * 11 % GENES, (id * 11 + 17) % GENES, (id * 11 + 134) % GENES],
            label: (id as f32 * 0.7).sin(),
            ..Sample::default()
        })
        .collect();
    let pipeline = Pipeline::new(processor, TYPES.map(str::to_owned).to_vec());
    let mut assembler = Assembler::new(&pipeline, std::sync::Arc::new(graph())).unwrap();
    let mut batch = assembler.empty();
    assembler.mask(&samples, &[], &mut batch);
    assembler.collate(&samples, &mut batch);
    batch
}

fn settings(model: Value) -> Settings {
    let mut all = json!({
        "experiment": {"study": "", "title": "", "description": "", "measures": [], "does_not_measure": []},
        "data": {"set": "", "samples": 64, "scale": 1.0, "networks": "real", "seed": 1},
        "pipeline": {"processor": "lazy", "edge_types": TYPES},
        "loader": {"batch_size": 16, "workers": 0, "prefetch_factor": 1, "pin_memory": true, "shuffle": false,
                   "drop_last": false, "seed": 0},
        "model": {"kind": "lazy", "hidden": 16, "heads": 4, "layers": 2, "edge_types": TYPES, "seed": 17},
        "train": {"mode": "train", "optimizer": "adamw", "learning_rate": 0.01, "weight_decay": 0.0, "clip_norm": 1.0,
                  "reconstruction": "off", "loss": "mse"},
        "measure": {"warmup": 0, "steps": 1, "repeats": 1},
        "launch": {"ranks": 1, "threads": 1, "rendezvous_timeout_s": 60, "heartbeat_timeout_s": 60},
        "slurm": {"partition": "", "account": "", "cpus_per_rank": 1, "memory_mib": 0, "time_min": 0, "throttle": 0},
    });
    for (key, value) in model.as_object().unwrap() {
        all["model"][key] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

fn alone() -> ProcessGroup {
    let limit = Duration::from_secs(60);
    let store = Store::alone(limit).unwrap();
    ProcessGroup::with_gpus(&store, 0, 1, limit, GpuBackend::Gloo).unwrap()
}

fn trainer(model: Value, group: &ProcessGroup, device: Device) -> Trainer {
    Trainer::new(&settings(model), &graph(), (0.0, 1.0), group, device).unwrap()
}

#[test]
fn steps_on_a_gpu_are_those_of_the_host() {
    if !ready("steps_on_a_gpu_are_those_of_the_host") {
        return;
    }
    let group = alone();
    for model in [json!({"kind": "lazy"}), json!({"kind": "dango"})] {
        let (mut here, mut there) = (trainer(model.clone(), &group, Device::Cpu), trainer(model.clone(), &group, GPU));
        assert_eq!(
            here.parameters_digest().unwrap(),
            there.parameters_digest().unwrap(),
            "the same parameters are drawn"
        );
        let feed = Feed::new(0).unwrap();
        for step in 0..20 {
            let mut staged = Staged::of(batch(Processor::Lazy, step * 16));
            let expected = here.step(&staged.batch, &[], 0, &group, &Activity::default()).unwrap();
            staged.pin(true).unwrap();
            staged.send(&feed).unwrap();
            let found = there.step(&staged, &[], 0, &group, &Activity::default()).unwrap();
            let (a, b) = (expected.loss.unwrap(), found.loss.unwrap());
            assert!((a - b).abs() < 1e-3 * a.abs().max(0.1), "{model} step {step}: {a} and {b}");
            let (a, b) = (expected.gradient_norm.unwrap(), found.gradient_norm.unwrap());
            assert!((a - b).abs() < 2e-2 * a.abs().max(0.1), "{model} step {step}: norms {a} and {b}");
            assert!(staged.copied() > 0);
            let device = found.device.unwrap();
            for stage in [Stage::Transfer, Stage::Forward, Stage::Backward, Stage::Clip, Stage::Optimizer] {
                assert!(device[stage] > 0 && found.exposed[stage] == device[stage] && found.busy[stage] > 0, "{stage}");
            }
        }
    }
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
        for (a, b) in made(Device::Cpu).iter().zip(made(GPU)) {
            assert!(b.device() == GPU && a.equal(&b.to_device(Device::Cpu)), "{}", way.name());
        }
    }
}

/// Calls of the host that wait for the device, and copies from it, within the range `name` of a trace.
fn waits(trace: &Value, name: &str) -> (Vec<String>, usize) {
    let events = trace["traceEvents"].as_array().unwrap();
    let range = events.iter().find(|e| e["name"] == name && e["ph"] == "X").unwrap();
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

#[test]
fn a_step_with_masks_of_its_own_waits_for_the_device_once() {
    if !ready("a_step_with_masks_of_its_own_waits_for_the_device_once") {
        return;
    }
    let group = alone();
    let maker = DeviceMaskMaker::new(DeviceMasks::Vectorised, &graph(), GPU).unwrap().unwrap();
    let mut trainer = trainer(json!({"kind": "lazy"}), &group, GPU);
    let feed = Feed::new(0).unwrap();
    let mut step = |first: i64| {
        let mut staged = Staged::of(batch(Processor::Lazy, first));
        staged.pin(true).unwrap();
        let _range = Range::open("the step");
        staged.send(&feed).unwrap();
        let masks: Vec<Tensor> = maker.make(&staged.batch.common).unwrap();
        trainer.step(&staged, &masks, 0, &group, &Activity::default()).unwrap();
        assert_eq!(staged.samples(), 16);
    };
    (0..5).for_each(|i| step(i * 16));
    let options = ProfileOptions { cuda: true, ..ProfileOptions::default() };
    Profile::prepare(options).unwrap();
    let profile = Profile::start(options).unwrap();
    step(99);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    profile.stop().unwrap().save(&path).unwrap();
    let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let (calls, copies) = waits(&trace, "the step");
    assert_eq!((calls.len(), copies), (1, 1), "{calls:?}");
}
