//! Training runs end to end: epochs, validation, weights, early stopping, going on.

use std::path::{Path, PathBuf};

use crate::common::local::set;
use crate::common::{TestProject, text};
use expctl_ledger::{AttemptDir, LearningRecord, Outcome, TrialState, joined_learning, read_learning};
use nix::sys::signal::{Signal, kill};

/// 300 samples: 240 train in 30 batches of 8, 30 validate.
const SMALL: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
title = "Small"

[data]
samples = 300
scale = 0.02

[select]
split = "train"

[loader]
batch_size = 8
workers = 1

[model]
hidden = 8
heads = 2

[train]
mode = "train"
learning_rate = 0.01
reconstruction = "off"
epochs = 2

[measure]
warmup = 2
repeats = 1

[launch]
ranks = 1
heartbeat_timeout_s = 5

[variant.ids]
pipeline.processor = "ids"
"#;

const PER_EPOCH: u64 = 30;

/// Run one; returns its exit code and its job.
fn train(project: &TestProject, more: &[&str]) -> (Option<i32>, String) {
    let output = project.submission(SMALL, &set(more)).output().unwrap();
    let job = text(&output.stdout).trim().to_owned();
    assert!(!job.is_empty(), "{}", text(&output.stderr));
    (output.status.code(), job)
}

/// Run one that completes; returns its attempt.
fn trained(project: &TestProject, more: &[&str]) -> AttemptDir {
    let (code, job) = train(project, more);
    let attempt = project.attempt(&job, "ids").unwrap();
    assert_eq!(code, Some(0), "{:?}", attempt.outcome());
    attempt
}

fn outcome(attempt: &AttemptDir) -> Outcome {
    attempt.outcome().unwrap().unwrap()
}

fn digest(attempt: &AttemptDir) -> String {
    outcome(attempt).ranks[0].parameters_digest.clone().unwrap()
}

fn weights(attempt: &AttemptDir, name: &str) -> PathBuf {
    attempt.path().parent().unwrap().join("weights").join(format!("{name}.safetensors"))
}

/// Names and shapes in a safetensors file: eight bytes of length, then JSON.
fn header(path: &Path) -> serde_json::Map<String, serde_json::Value> {
    let bytes = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    serde_json::from_slice(&bytes[8..8 + length]).unwrap()
}

/// Without what no two runs have in common.
fn curve(records: Vec<LearningRecord>) -> Vec<LearningRecord> {
    let mut records = records;
    records.iter_mut().filter_map(|r| r.validation.as_mut()).for_each(|v| v.seconds = 0.0);
    records
}

#[test]
fn epochs_are_validated_over_all_ranks_and_leave_weights() {
    let project = TestProject::new();
    let attempt = trained(&project, &[]);
    let steps = attempt.steps(0).unwrap();
    assert_eq!(steps.len() as u64, 2 * PER_EPOCH);
    let records = read_learning(&attempt.learning_path()).unwrap();
    assert_eq!(records.iter().map(|r| (r.epoch, r.step)).collect::<Vec<_>>(), [(0, PER_EPOCH), (1, 2 * PER_EPOCH)]);
    for record in &records {
        let of_epoch = steps.iter().filter(|s| s.epoch == record.epoch);
        let mean = of_epoch.map(|s| s.loss.unwrap() * s.samples as f64).sum::<f64>() / 240.0;
        assert!((record.train_loss - mean).abs() < 1e-12, "{record:?}");
        let validation = record.validation.as_ref().unwrap();
        assert_eq!(validation.samples, 30);
        assert!(validation.loss > 0.0 && validation.mse > 0.0 && validation.seconds > 0.0);
    }
    assert!(records[0].best && !records.iter().any(|r| r.stopped));
    let (best, last) = (header(&weights(&attempt, "best")), header(&weights(&attempt, "last")));
    assert!(best.keys().all(|name| last.contains_key(&format!("model/{name}"))), "{best:?}");
    assert!(last.contains_key("progress/counts") && last.keys().any(|name| name.starts_with("adamw/")));
    // What is between two epochs is in no step: they are next to each other but for that.
    for pair in steps.windows(2) {
        let gap = pair[1].start_ns - (pair[0].start_ns + pair[0].wall_ns);
        assert_eq!(gap > 0, pair[0].epoch != pair[1].epoch, "{gap}");
    }

    // 30 samples over two and over four ranks, whose shares are not all of one size; SGD, so that no rounding grows.
    let same = ["train.optimizer=sgd", "train.learning_rate=1e-30", "train.epochs=1"];
    let of_ranks = |ranks: &str, batch: &str| {
        let attempt = trained(&project, &[&same[..], &[ranks, batch]].concat());
        read_learning(&attempt.learning_path()).unwrap().remove(0)
    };
    let one = of_ranks("launch.ranks=1", "loader.batch_size=8").validation.unwrap();
    let four = of_ranks("launch.ranks=4", "loader.batch_size=2").validation.unwrap();
    assert_eq!((one.samples, four.samples), (30, 30));
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-5 * a.abs().max(1e-3);
    assert!(close(one.loss, four.loss) && close(one.mse, four.mse), "{one:?} {four:?}");
    assert!(close(one.pearson.unwrap(), four.pearson.unwrap()), "{one:?} {four:?}");
}

#[test]
fn training_that_gets_no_better_ends_early_and_is_complete() {
    let project = TestProject::new();
    // Nothing moves: the first validation stays the best.
    let more = ["train.optimizer=sgd", "train.learning_rate=1e-30", "train.epochs=9", "train.patience=2"];
    let attempt = trained(&project, &[&more[..], &["launch.ranks=2", "train.validate_every=2"]].concat());
    assert_eq!(outcome(&attempt).state, TrialState::Completed);
    let records = read_learning(&attempt.learning_path()).unwrap();
    let marks: Vec<_> = records.iter().map(|r| (r.validation.is_some(), r.best, r.stopped)).collect();
    let (plain, best, later, end) =
        ((false, false, false), (true, true, false), (true, false, false), (true, false, true));
    assert_eq!(marks, [plain, best, plain, later, plain, end]);
    for rank in 0..2 {
        assert_eq!(attempt.steps(rank).unwrap().len() as u64, 6 * PER_EPOCH / 2);
    }
}

#[test]
fn two_epochs_and_two_more_are_four() {
    let project = TestProject::new();
    for more in [&["train.schedule=constant"][..], &["train.schedule=cosine_restarts", "train.schedule_epochs=3"]] {
        let of = |extra: &[&str]| trained(&project, &[more, extra].concat());
        let whole = of(&["train.epochs=4"]);
        let half = of(&["train.epochs=2"]);
        let from = format!("train.start_from=\"{}\"", weights(&half, "last").display());
        let rest = of(&["train.epochs=2", &from]);
        assert_eq!(digest(&rest), digest(&whole));
        assert_ne!(digest(&half), digest(&whole));
        let read = |attempt: &AttemptDir| curve(read_learning(&attempt.learning_path()).unwrap());
        assert_eq!([read(&half), read(&rest)].concat(), read(&whole));
        let steps = rest.steps(0).unwrap();
        assert_eq!((steps[0].step, steps[0].epoch, steps.len() as u64), (0, 2, 2 * PER_EPOCH));
    }
}

#[test]
fn a_run_that_was_killed_goes_on_with_the_curve_of_one_that_was_not() {
    let project = TestProject::new();
    let more = ["train.epochs=12", "launch.ranks=2", "checkpoint.every_steps=7"];
    let whole = trained(&project, &more);
    let other = TestProject::new();
    let mut guard = other.started(SMALL, &set(&more));
    // In the middle of the third epoch, of 15 steps.
    other.attempt_with_steps("1", "ids", 2, 37);
    kill(other.rank(1), Signal::SIGKILL).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(5));
    assert_eq!(other.run(&["run-local", "1"]).status.code(), Some(0));
    let dir = other.job("1");
    let attempts = dir.attempts(&dir.record().unwrap().trials[0].id).unwrap();
    assert_eq!(attempts.len(), 2);
    assert!(attempts[1].steps(0).unwrap()[0].step > 0, "it went on");
    assert_eq!(digest(&attempts[1]), digest(&whole));
    let expected = curve(read_learning(&whole.learning_path()).unwrap());
    assert_eq!(curve(joined_learning(&attempts).unwrap()), expected);
    assert_eq!(std::fs::read(weights(&attempts[1], "best")).unwrap(), std::fs::read(weights(&whole, "best")).unwrap());
}

#[test]
fn weights_of_another_model_and_damaged_ones_are_refused_by_name() {
    let project = TestProject::new();
    let small = trained(&project, &["train.epochs=1"]);
    let (best, last) = (weights(&small, "best"), weights(&small, "last"));
    let refused = |path: &Path, more: &[&str], expected: &[&str]| {
        let from = format!("train.start_from=\"{}\"", path.display());
        let (code, job) = train(&project, &[more, &[from.as_str(), "train.epochs=1"]].concat());
        assert_eq!(code, Some(5));
        let outcome = project.outcome(&job, "ids");
        assert_eq!(outcome.state, TrialState::Failed);
        let name = path.to_str().unwrap();
        assert!(expected.iter().chain([&name]).all(|part| outcome.message.contains(part)), "{}", outcome.message);
        let attempt = project.attempt(&job, "ids").unwrap();
        assert!(attempt.steps(0).unwrap().is_empty() && !weights(&attempt, "last").exists());
    };
    for path in [&best, &last] {
        refused(path, &["model.hidden=16"], &["it is of another model: parameter ", "[", ", here Float ["]);
    }
    refused(&best, &["model.layers=3"], &["it is of another model: parameter ", "is not in it"]);
    let sound = std::fs::read(&last).unwrap();
    let damaged = project.path().join("damaged.safetensors");
    std::fs::write(&damaged, &sound[..sound.len() / 2]).unwrap();
    refused(&damaged, &[], &["cannot go on from the checkpoint"]);
    std::fs::write(&damaged, "text").unwrap();
    refused(&damaged, &[], &["cannot go on from the checkpoint"]);
    // The weights alone, of the same model: it starts with them, at epoch 0.
    let from = format!("train.start_from=\"{}\"", best.display());
    let again = trained(&project, &["train.epochs=1", "train.learning_rate=1e-30", &from]);
    let records = read_learning(&again.learning_path()).unwrap();
    assert_eq!((records[0].epoch, records[0].step), (0, PER_EPOCH));
    let of = |attempt: &AttemptDir| read_learning(&attempt.learning_path()).unwrap()[0].validation.clone().unwrap().mse;
    assert!((of(&again) - of(&small)).abs() < 1e-6);
}

#[test]
fn a_loss_that_is_no_number_fails_the_run_and_keeps_what_was_good() {
    let project = TestProject::new();
    let (code, job) = train(&project, &["train.optimizer=sgd", "train.learning_rate=1e30", "train.epochs=2"]);
    assert_eq!(code, Some(5));
    let attempt = project.attempt(&job, "ids").unwrap();
    let outcome = outcome(&attempt);
    assert_eq!(outcome.state, TrialState::Failed);
    assert!(outcome.message.contains("finite") || outcome.message.contains("the loss of step"), "{}", outcome.message);
    assert!(!attempt.steps(0).unwrap().is_empty(), "the steps that were done stay readable");
    assert!(!weights(&attempt, "last").exists() && !weights(&attempt, "best").exists());
    assert!(read_learning(&attempt.learning_path()).unwrap().is_empty());
}

/// A file of the repository's tests, and what it says of itself.
fn sample_module(project: &TestProject) -> String {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/sum.pt");
    std::fs::copy(&module, project.path().join("sum.pt")).unwrap();
    "model.path=\"sum.pt\"".to_owned()
}

#[test]
fn a_torchscript_module_is_trained_like_any_model() {
    let project = TestProject::new();
    let path = sample_module(&project);
    let module = ["model.kind=\"torchscript\"", &path];
    let of = |more: &[&str]| trained(&project, &[&module[..], more].concat());
    let attempt = of(&["launch.ranks=2"]);
    let digests: Vec<_> = outcome(&attempt).ranks.iter().map(|r| r.parameters_digest.clone().unwrap()).collect();
    assert_eq!(digests[0], digests[1]);
    let best = header(&weights(&attempt, "best"));
    // Nested names as in PyTorch, and the buffers.
    assert!(best.contains_key("head.weight") && best.contains_key("norm.running_mean"), "{best:?}");
    // Its buffers are in the state: two epochs and two more are four.
    let whole = of(&["train.epochs=4"]);
    let half = of(&["train.epochs=2"]);
    let from = format!("train.start_from=\"{}\"", weights(&half, "last").display());
    let rest = of(&["train.epochs=2", &from]);
    assert_eq!(digest(&rest), digest(&whole));
    let read = |attempt: &AttemptDir| curve(read_learning(&attempt.learning_path()).unwrap());
    assert_eq!(read(&rest), read(&whole)[2..]);
    assert_eq!(
        std::fs::read(weights(&rest, "last")).unwrap().len(),
        std::fs::read(weights(&whole, "last")).unwrap().len()
    );

    // The wrong signature, and a file that is no module: in front of the first step, with its name.
    let refused = |more: &[&str], expected: &[&str]| {
        let (code, job) = train(&project, &[&["model.kind=\"torchscript\""], more].concat());
        assert_eq!(code, Some(5));
        let attempt = project.attempt(&job, "ids").unwrap();
        let message = outcome(&attempt).message;
        assert!(expected.iter().all(|part| message.contains(part)), "{message}");
        assert!(attempt.steps(0).unwrap().is_empty());
    };
    refused(&[&path, "model.inputs=[\"genes\"]"], &["sum.pt", "forward takes (genes: Tensor, ", "(genes: Tensor)"]);
    std::fs::write(project.path().join("text.pt"), "no module").unwrap();
    refused(&["model.path=\"text.pt\""], &["text.pt", "load a module"]);
}

/// Train on planted labels on one and on two ranks; the validation has to find the interaction.
fn finds_a_planted_interaction(more: &[&str], epochs: [u32; 2]) {
    let project = TestProject::new();
    for (ranks, epochs) in [1, 2].into_iter().zip(epochs) {
        let sets = [
            format!("train.epochs={epochs}"),
            format!("launch.ranks={ranks}"),
            format!("loader.batch_size={}", 32 / ranks),
            "data.labels=\"planted\"".to_owned(),
            "data.samples=5000".to_owned(),
            "model.hidden=16".to_owned(),
            "train.monitor=\"pearson\"".to_owned(),
            "train.standardise_labels=true".to_owned(),
        ];
        let sets: Vec<&str> = sets.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let attempt = trained(&project, &sets);
        let records = read_learning(&attempt.learning_path()).unwrap();
        let last = records.last().unwrap().validation.as_ref().unwrap();
        assert_eq!(last.samples, 500);
        assert!(last.pearson.unwrap() >= 0.5, "{ranks} rank(s): {last:?}");
    }
}

#[test]
fn a_small_dango_finds_a_planted_interaction_on_one_and_on_two_ranks() {
    finds_a_planted_interaction(&[], [3, 3]);
}

#[test]
fn a_small_lazy_model_finds_a_planted_interaction_on_one_and_on_two_ranks() {
    let lazy = [
        "model.kind=\"lazy\"",
        "model.implementation=\"shared\"",
        "pipeline.edge_types=[\"string12_0_fusion\"]",
        "model.layers=1",
        "model.convolution_layers=2",
        "model.aggregation=\"sum\"",
        "model.norm=\"node\"",
        "model.preprocessor_norm=\"node\"",
        "train.learning_rate=3e-3",
        "train.loss=\"mse\"",
        "train.clip_norm=1.0",
    ];
    finds_a_planted_interaction(&lazy, [4, 8]);
}

/// A whole training run of the lazy model for each processor that it reads: epochs, validation, weights.
#[test]
fn the_lazy_model_trains_on_the_batches_of_every_processor_that_it_reads() {
    const SIZES: [&str; 4] = [
        "model.kind=\"lazy\"",
        "model.layers=2",
        "model.convolution_layers=2",
        "pipeline.edge_types=[\"physical\", \"tflink\"]",
    ];
    let parameters =
        |attempt: &AttemptDir| -> Vec<String> { header(&weights(attempt, "best")).keys().cloned().collect() };
    let project = TestProject::new();
    let mut first: Option<Vec<String>> = None;
    for (processor, implementation, more) in [
        ("lazy", "replicated", None),
        ("subgraph", "replicated", None),
        ("incidence_subgraph", "replicated", None),
        ("neighborhood", "replicated", Some("pipeline.hops=2")),
        ("ids", "shared", None),
        ("shared", "shared", None),
        ("ids", "operations", None),
        ("ids", "operations", Some("pipeline.device_masks=\"vectorised\"")),
        ("shared", "operations", None),
    ] {
        let of = [
            format!("variant.ids.pipeline.processor=\"{processor}\""),
            format!("model.implementation=\"{implementation}\""),
        ];
        let sets = SIZES.into_iter().chain(of.iter().map(String::as_str)).chain(more).chain(["train.epochs=1"]);
        let attempt = trained(&project, &sets.collect::<Vec<_>>());
        let steps = attempt.steps(0).unwrap();
        assert_eq!(steps.len() as u64, PER_EPOCH, "{processor}");
        assert!(steps.iter().all(|step| step.loss.is_some_and(f64::is_finite)), "{processor}");
        let records = read_learning(&attempt.learning_path()).unwrap();
        assert_eq!(records[0].validation.as_ref().unwrap().samples, 30, "{processor}");
        // One model, whatever computes it.
        let found = parameters(&attempt);
        assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{processor}");
    }
}

/// Whoever goes on may watch another figure than before: the best one so far was of the other, and is no measure.
#[test]
fn a_run_that_goes_on_with_another_figure_to_watch_begins_anew_with_it() {
    let project = TestProject::new();
    let half = trained(&project, &["train.epochs=2", "train.monitor=\"loss\""]);
    let from = format!("train.start_from=\"{}\"", weights(&half, "last").display());
    let rest = trained(&project, &["train.epochs=2", "train.monitor=\"pearson\"", &from]);
    let records = read_learning(&rest.learning_path()).unwrap();
    assert_eq!(records.iter().map(|r| r.epoch).collect::<Vec<_>>(), [2, 3]);
    assert!(records[0].validation.as_ref().unwrap().pearson.is_some());
    assert!(records[0].best, "{records:?}");
}
