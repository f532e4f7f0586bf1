//! Ranks on a GPU, end to end. What needs one says that it is skipped where none is; what is told where none is, is tested there.

use std::process::Command;

use crate::common::local::set;
use crate::common::{PATIENCE, TestProject, text, wait_until, worker_pids};
use expctl_ledger::{AttemptDir, RankStatus, Stage, TrialState};
use nix::sys::signal::{Signal, kill};
use test_support::{Requirement, skip, skip_test};

const SMALL: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
title = "Small"

[data]
samples = 400
scale = 0.1

[loader]
batch_size = 28
workers = 1

[model]
kind = "lazy"
hidden = 16

[train]
mode = "train"
clip_norm = 1.0

[measure]
warmup = 2
steps = 12
repeats = 1

[variant.a]
pipeline.processor = "lazy"
"#;

/// Whether the driver's tool sees one.
fn sees_gpu() -> bool {
    Command::new("nvidia-smi").arg("-L").output().is_ok_and(|output| output.status.success())
}

/// Whether there is one to test with; says why not.
fn has_gpu(test: &str) -> bool {
    let there = std::env::var_os("EXPCTL_TEST_GPU").is_some() && sees_gpu();
    if !there {
        skip_test(test, Requirement::Gpu, "nvidia-smi shows no GPU, or it is not run by `make test-gpu`");
    }
    there
}

fn submit(project: &TestProject, settings: &[&str]) -> std::process::Output {
    project.submission(SMALL, &set(settings)).output().unwrap()
}

/// The last attempt of the only trial.
fn attempt(project: &TestProject) -> AttemptDir {
    project.attempt("1", "a").unwrap()
}

#[test]
fn a_gpu_that_is_not_there_is_missed_in_one_line() {
    if sees_gpu() {
        return skip(Requirement::Other, "there is a GPU");
    }
    let project = TestProject::new();
    let output = submit(&project, &["launch.device=cuda"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let outcome = attempt(&project).outcome().unwrap().unwrap();
    assert!(
        outcome.message.contains("launch.device is \"cuda\": this machine has no NVIDIA driver (libcuda.so.1"),
        "{}",
        outcome.message
    );
    // Left to itself, a rank takes the host.
    let project = TestProject::new();
    assert_eq!(submit(&project, &["measure.steps=4"]).status.code(), Some(0));
    let environment = attempt(&project).environment().unwrap().unwrap();
    assert_eq!((environment.device.as_str(), environment.backend.as_str()), ("cpu", "gloo"));
    assert!(environment.cuda.is_none() && environment.ranks[0].device.is_none());
}

#[test]
fn a_trial_on_a_gpu_times_its_device() {
    if !has_gpu("a_trial_on_a_gpu_times_its_device") {
        return;
    }
    for (pin, masks) in [("true", "none"), ("false", "none"), ("true", "vectorised")] {
        let project = TestProject::new();
        let (pin, masks) = (format!("loader.pin_memory={pin}"), format!("pipeline.device_masks={masks}"));
        let output = submit(&project, &["launch.device=cuda", &pin, &masks]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let attempt = attempt(&project);
        let environment = attempt.environment().unwrap().unwrap();
        assert_eq!(environment.device, "cuda");
        assert!(environment.ranks[0].device.as_ref().unwrap().uuid.starts_with("GPU-"));
        assert!(!environment.cuda.unwrap().runtime.is_empty());
        for step in attempt.steps(0).unwrap() {
            let device = step.device.unwrap();
            assert!(step.bytes_to_device > 0 && device[Stage::Forward] > 0 && device[Stage::Backward] > 0, "{step:?}");
            assert!(step.exposed.total() <= step.wall_ns + step.wall_ns / 50, "{step:?}");
            assert_eq!(device[Stage::Mask] > 0, masks.ends_with("vectorised"), "{step:?}");
            assert_eq!(step.copy_ns.is_some_and(|ns| ns > 0), pin.ends_with("true"), "{step:?}");
        }
    }
}

/// Masks made by the step and by the model, lists of removed edges, and subgraphs: what comes to the device, and what the note says.
#[test]
fn a_lazy_model_trains_on_a_gpu_on_one_graph_for_all_samples_and_on_subgraphs() {
    if !has_gpu("a_lazy_model_trains_on_a_gpu_on_one_graph_for_all_samples_and_on_subgraphs") {
        return;
    }
    const ONE_GRAPH: &str = "- lazy model: one graph for all samples, libtorch's operations\n";
    const OF_SAMPLES: &str = "- lazy model: the graph of each sample, libtorch's operations\n";
    let mut bytes = Vec::new();
    for (processor, implementation, masks, line) in [
        ("ids", "shared", "none", ONE_GRAPH),
        ("ids", "operations", "vectorised", ONE_GRAPH),
        ("shared", "shared", "none", ONE_GRAPH),
        ("incidence_subgraph", "replicated", "none", OF_SAMPLES),
        ("neighborhood", "replicated", "none", OF_SAMPLES),
    ] {
        let project = TestProject::new();
        let settings = [
            "launch.device=cuda".to_owned(),
            "loader.pin_memory=true".to_owned(),
            format!("variant.a.pipeline.processor={processor}"),
            format!("model.implementation={implementation}"),
            format!("pipeline.device_masks={masks}"),
        ];
        let output = submit(&project, &settings.each_ref().map(String::as_str));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let attempt = attempt(&project);
        assert_eq!(attempt.environment().unwrap().unwrap().device, "cuda");
        let steps = attempt.steps(0).unwrap();
        for step in &steps {
            let device = step.device.unwrap();
            assert!(device[Stage::Forward] > 0 && device[Stage::Backward] > 0, "{processor}: {step:?}");
            assert!(step.loss.is_some_and(f64::is_finite), "{processor}: {step:?}");
            assert_eq!(device[Stage::Mask] > 0, masks == "vectorised", "{processor}: {step:?}");
        }
        bytes.push(steps.last().unwrap().bytes_to_device);
        project.ok(&["report", "1"]);
        let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
        assert!(note.contains(line), "{note}");
    }
    // Gene ids alone, with the lists of removed edges, and with edges of each sample.
    assert!(bytes[0] == bytes[1] && bytes[0] < bytes[2] && bytes[2] < bytes[3], "{bytes:?}");
    assert!(bytes[4] < bytes[3], "{bytes:?}");
}

#[test]
fn two_ranks_share_a_gpu_over_gloo() {
    if !has_gpu("two_ranks_share_a_gpu_over_gloo") {
        return;
    }
    let project = TestProject::new();
    let output = submit(&project, &["launch.device=cuda", "launch.backend=gloo", "launch.ranks=2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let attempt = attempt(&project);
    assert_eq!(attempt.environment().unwrap().unwrap().backend, "gloo");
    for rank in 0..2 {
        for step in attempt.steps(rank).unwrap() {
            assert!(step.busy[Stage::Allreduce] > 0 && step.exposed[Stage::Allreduce] <= step.busy[Stage::Allreduce]);
        }
    }
}

/// The survivor may be stuck on the device in a collective that never ends: it has to end all the same, and to blame the right rank.
#[test]
fn a_killed_rank_ends_a_job_on_a_gpu_and_is_named() {
    if !has_gpu("a_killed_rank_ends_a_job_on_a_gpu_and_is_named") {
        return;
    }
    for victim in [1, 0] {
        let project = TestProject::new();
        let settings = ["launch.device=cuda", "launch.backend=gloo", "launch.ranks=2", "measure.steps=100000"];
        let mut job = project.started(SMALL, &set(&settings));
        project.attempt_with_steps("1", "a", 2, 5);
        kill(project.rank(victim), Signal::SIGKILL).unwrap();
        let ended = wait_until("the job to end", PATIENCE, || job.0.try_wait().unwrap());
        assert_eq!(ended.code(), Some(5));
        assert!(worker_pids(project.path()).is_empty(), "no rank is left");
        let outcome = project.outcome("1", "a");
        assert_eq!((outcome.state, outcome.failed_rank), (TrialState::Failed, Some(victim)), "{outcome:?}");
        let survivor = &outcome.ranks[1 - victim as usize];
        assert_eq!((survivor.status, survivor.lost_peer), (RankStatus::PeerLost, Some(victim)), "{survivor:?}");
    }
}
