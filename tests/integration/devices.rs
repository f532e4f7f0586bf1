//! Runs on GPUs in notes and comparisons, on ledgers written by the record crate.

use expctl_ledger::{CudaFacts, JobDir, RankDevice, Stage, StepRecord, TrialState, write_json};
use expctl_settings::{
    BackendChoice, DeviceChoice, DeviceMasks, Implementation, ModelKind, Norm, Processor, Settings, Trial,
};

use crate::common::TestProject;
use crate::common::ledger::{finish, running, steps};

const MS: u64 = 1_000_000;

/// Steps of 100 ms that hand 2 ms of work over for a forward pass of 20 ms, and copy a batch in 3 ms.
fn on_gpu() -> Vec<StepRecord> {
    let mut all = steps(100, 10);
    for step in &mut all {
        (step.busy[Stage::Forward], step.exposed[Stage::Forward]) = (2 * MS, 20 * MS);
        let times = step.device.get_or_insert_default();
        (times[Stage::Transfer], times[Stage::Forward]) = (3 * MS, 20 * MS);
    }
    all
}

/// A completed trial on two ranks with a GPU of this model each, or on the host.
fn ran(dir: &JobDir, trial: &Trial, gpu: Option<&str>, ranks: &[Vec<StepRecord>]) {
    let attempt = running(dir, trial, ranks);
    let mut environment = attempt.environment().unwrap().unwrap();
    if let Some(name) = gpu {
        (environment.device, environment.backend) = ("cuda".into(), "nccl".into());
        for (index, rank) in environment.ranks.iter_mut().enumerate() {
            rank.gpu_driver = "580.65.06".into();
            rank.device = Some(RankDevice {
                index: index as u32,
                name: name.into(),
                uuid: format!("GPU-{index}"),
                bus: "0000:19:00.0".into(),
                memory_bytes: 85_000_000_000,
                capability: "9.0".into(),
            });
        }
        environment.cuda = Some(CudaFacts {
            driver: "13.0".into(),
            runtime: "12.8".into(),
            library: "/opt/libtorch/lib/libtorch_cuda.so".into(),
            nccl: "2.28.9".into(),
            topology: vec!["GPU 0 - GPU 1: NVLink x18".into()],
        });
    }
    write_json(&attempt.environment_path(), &environment).unwrap();
    finish(&attempt, ranks, TrialState::Completed, "");
}

fn note(project: &TestProject) -> String {
    project.expect(&["report", "12"], 0);
    std::fs::read_to_string(project.file("results/086_ddp_12.md")).unwrap()
}

/// The part of a note under a heading of a variant.
fn part<'a>(text: &'a str, section: &str, variant: &str) -> &'a str {
    let text = text.split_once(&format!("<!-- expctl:begin {section} ")).unwrap().1;
    let text = text.split_once(&format!("<!-- expctl:end {section} ")).unwrap().0;
    let text = text.split_once(&format!("#### {variant}\n")).unwrap().1;
    text.split("\n#### ").next().unwrap()
}

#[test]
fn device_times_have_a_column_of_their_own_where_there_are_any() {
    let project = TestProject::new();
    let trials = [project.trial("gpu", "On GPUs", 1, |_| {}), project.trial("host", "On the host", 1, |_| {})];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    // One rank's times of the device are twice the other's; its warm-up counts for nothing.
    let mut other = on_gpu();
    for step in &mut other {
        let times = step.device.as_mut().unwrap();
        times[Stage::Transfer] = if step.measured { 6 * MS } else { 999 * MS };
    }
    ran(&dir, &trials[0], Some("NVIDIA H100 80GB HBM3"), &[on_gpu(), other]);
    ran(&dir, &trials[1], None, &[steps(100, 10), steps(100, 10)]);
    let text = note(&project);
    for row in [
        "| Variant | transfer | forward | all |\n",
        "| gpu | 4.500 | 20.000 | 24.500 |\n",
        "| host | – | – | – |\n",
        "Device (measured): ms of a stage by the GPU's clock. ",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
    // Exposed, and busy.
    for cells in [["50.000 (50.0 %)", "20.000 (20.0 %)", "100.000"], ["200.000 (", "2.000 (", "220.000 ("]] {
        let row = text.lines().find(|line| line.starts_with("| gpu |") && cells.iter().all(|cell| line.contains(cell)));
        assert!(row.is_some(), "{cells:?}: {text}");
    }
    // Without a device there is none.
    let plain = TestProject::new();
    let dir = plain.submitted(12, "086_ddp", vec![trials[1].clone()]);
    ran(&dir, &trials[1], None, &[steps(100, 10), steps(100, 10)]);
    assert!(!note(&plain).contains("Device (measured)"));
}

#[test]
fn steps_without_device_times_do_not_lower_their_mean() {
    let project = TestProject::new();
    let trial = project.trial("gpu", "On GPUs", 1, |_| {});
    let dir = project.submitted(12, "086_ddp", vec![trial.clone()]);
    let mut half = on_gpu();
    half.iter_mut().filter(|step| step.step % 2 == 0).for_each(|step| step.device = None);
    ran(&dir, &trial, Some("NVIDIA H100"), &[half.clone(), half]);
    let text = note(&project);
    assert!(text.contains("| gpu | 3.000 | 20.000 | 23.000 |\n"), "{text}");
}

#[test]
fn a_note_names_the_gpus_of_the_ranks_and_what_reached_them() {
    let project = TestProject::new();
    let asks = |settings: &mut expctl_settings::Settings| {
        (settings.launch.device, settings.launch.backend) = (DeviceChoice::Cuda, BackendChoice::Auto);
    };
    let trials = [project.trial("gpu", "On GPUs", 1, asks), project.trial("host", "On the host", 1, |_| {})];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    ran(&dir, &trials[0], Some("NVIDIA H100 80GB HBM3"), &[on_gpu(), on_gpu()]);
    ran(&dir, &trials[1], None, &[steps(100, 10), steps(100, 10)]);
    let text = note(&project);
    let gpu = part(&text, "ranks", "gpu");
    for row in [
        "| Rank | Node | GPU | it/s |",
        "| 0 | node0 | 0 (NVIDIA H100 80GB HBM3) | 10 |",
        "| 1 | node1 | 1 (NVIDIA H100 80GB HBM3) | 10 |",
    ] {
        assert!(gpu.contains(row), "{row}: {gpu}");
    }
    assert!(part(&text, "ranks", "host").contains("| Rank | Node | it/s |"), "{text}");
    for line in [
        "- device: cpu; cuda · process group: gloo; nccl · ",
        "- GPU: NVIDIA H100 80GB HBM3, 85 GB, compute capability 9.0, driver 580.65.06\n",
        "- CUDA: runtime 12.8, driver for up to 13.0\n",
        "- NCCL: 2.28.9\n",
        "- between GPUs: GPU 0 - GPU 1: NVLink x18\n",
        "| launch.device | cuda | auto |",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // What was asked for by default says nothing.
    assert!(!text.contains("backend = auto") && !text.contains("gradient_compression"), "{text}");
}

#[test]
fn a_note_of_ranks_on_the_host_says_nothing_of_gpus() {
    let project = TestProject::new();
    let trial = project.trial("host", "On the host", 1, |_| {});
    let dir = project.submitted(12, "086_ddp", vec![trial.clone()]);
    ran(&dir, &trial, None, &[steps(100, 10), steps(100, 10)]);
    let text = note(&project);
    assert!(text.contains("- device: cpu · ") && !text.contains("GPU") && !text.contains("CUDA"), "{text}");
}

#[test]
fn a_note_says_what_computed_the_lazy_model() {
    let shared = |settings: &mut Settings| {
        (settings.model.kind, settings.model.implementation) = (ModelKind::Lazy, Implementation::Shared);
        settings.pipeline.processor = Processor::Ids;
    };
    let both = [steps(100, 10), steps(100, 10)];
    let project = TestProject::new();
    let trials = [project.trial("gpu", "On GPUs", 1, shared), project.trial("host", "On the host", 1, shared)];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    ran(&dir, &trials[0], Some("NVIDIA H100"), &[on_gpu(), on_gpu()]);
    ran(&dir, &trials[1], None, &both);
    let line = "- lazy model: one graph for all samples, expctl's kernels (host); one graph for all samples, libtorch's \
                operations (gpu)\n";
    let text = note(&project);
    assert!(text.contains(line), "{text}");

    // One for all needs no names, and where no layer is computed there is nothing to say.
    for (mode, line) in [("train", Some("- lazy model: one graph for all samples, expctl's kernels\n")), ("data", None)]
    {
        let project = TestProject::new();
        let trial = project.trial("host", "On the host", 1, |settings| {
            shared(settings);
            settings.train.mode = serde_json::from_value(mode.into()).unwrap();
        });
        ran(&project.submitted(12, "086_ddp", vec![trial.clone()]), &trial, None, &both);
        let text = note(&project);
        assert_eq!(line.is_some_and(|line| text.contains(line)), text.contains("lazy model"), "{text}");
    }
}

#[test]
fn a_note_warns_where_the_lazy_model_is_another_function() {
    let lazy = |change: fn(&mut Settings)| {
        move |settings: &mut Settings| {
            settings.model.kind = ModelKind::Lazy;
            change(settings);
        }
    };
    let subgraph = lazy(|settings| settings.pipeline.processor = Processor::IncidenceSubgraph);
    let of_nodes = lazy(|settings| {
        settings.pipeline.processor = Processor::IncidenceSubgraph;
        (settings.model.norm, settings.model.preprocessor_norm) = (Norm::Node, Norm::Node);
    });
    let near = lazy(|settings| (settings.pipeline.processor, settings.pipeline.hops) = (Processor::Neighborhood, 2));
    let unread = lazy(|settings| {
        (settings.pipeline.processor, settings.pipeline.device_masks) = (Processor::Ids, DeviceMasks::Vectorised);
        settings.model.implementation = Implementation::Shared;
    });
    let project = TestProject::new();
    let trials = [
        project.trial("subgraph", "Subgraph", 1, subgraph),
        project.trial("of_nodes", "Norms of nodes", 1, of_nodes),
        project.trial("near", "Neighborhood", 1, near),
        project.trial("unread", "Masks that nobody reads", 1, unread),
    ];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    for trial in &trials {
        ran(&dir, trial, None, &[steps(100, 10), steps(100, 10)]);
    }
    let text = note(&project);
    for said in [
        "subgraph: norms over all nodes of the batch are taken without the removed genes",
        "near: the encoder sees the genes within 2 hops of the perturbed ones",
        "unread: on the host the masks that the step makes are not read",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("of_nodes: norms"), "{text}");
}

#[test]
fn models_of_gpus_are_classes_and_what_was_asked_for_is_no_difference() {
    let project = TestProject::new();
    for (id, model, device) in [(12, "NVIDIA H100", "auto"), (13, "NVIDIA A40", "auto"), (14, "NVIDIA H100", "cuda")] {
        let trial = project.trial("lazy", "Lazy", 1, |settings| {
            settings.launch.device = serde_json::from_value(device.into()).unwrap();
        });
        let dir = project.submitted(id, "086_ddp", vec![trial.clone()]);
        ran(&dir, &trial, Some(model), &[on_gpu(), on_gpu()]);
    }
    let (stdout, _) = project.expect(&["compare", "12", "13", "14", "--format", "json"], 0);
    let all: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let groups = all["groups"].as_array().unwrap();
    let class = |at: usize| (groups[at]["class"].as_str().unwrap(), groups[at]["lines"].as_array().unwrap().len());
    assert_eq!((groups.len(), class(0), class(1)), (2, ("GPU NVIDIA H100", 2), ("GPU NVIDIA A40", 1)));
    assert_eq!(groups[0]["lines"][1]["confounds"], serde_json::json!([]));
    let crossed = &groups[1]["lines"][0]["crosses"];
    let expected = serde_json::json!([{ "setting": "GPU", "base": "NVIDIA H100", "row": "NVIDIA A40" }]);
    assert_eq!(crossed, &expected);
}
