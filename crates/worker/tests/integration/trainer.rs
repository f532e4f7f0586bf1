//! A small DANGO is trained by one rank: what its steps change, refuse and leave behind.

use std::collections::BTreeMap;
use std::time::Duration;

use expctl_rounding::{NEIGHBOURS, assert_rounding, distance, floor, gamma};
use expctl_settings::{Aggregation, Implementation, LocalHead, Model, ModelKind, Norm};
use expctl_worker::metrics::pearson;
use expctl_worker::state::{StateError, all_finite, read_state, write_state};
use expctl_worker::trainer::{TrainError, Trainer};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};
use torch_dist::{ProcessGroup, ScriptModule, Store};

use crate::support::{
    GENES, LABELS, batch, doubles, farthest, lazy_trainer, lazy_trainer_of, new_trainer, nudge, order_buckets,
    parameters, settings, step, trainer, with_graphs,
};

fn alone() -> ProcessGroup {
    tch::set_num_threads(1);
    let limit = Duration::from_secs(60);
    let store = Store::serve("127.0.0.1", 0, limit).unwrap();
    ProcessGroup::gloo(&store, 0, 1, limit).unwrap()
}

/// Mean loss over the first 64 samples.
fn loss(trainer: &Trainer) -> f64 {
    let (predictions, labels) = trainer.evaluate(&batch(0..64), &[]).unwrap();
    trainer.prediction_loss(&predictions, &labels).unwrap()
}

/// Epochs that suffice by far.
const EPOCHS: u64 = 300;
/// Approximate variance of the labels of the samples.
const VARIANCE: f64 = 0.5;

#[test]
fn dango_overfits_64_samples_to_a_tenth_of_its_loss() {
    let group = alone();
    // Without reconstruction, whose share of the loss stays.
    let train = json!({"optimizer": "adamw", "learning_rate": 1e-2, "clip_norm": 10.0});
    let mut trainer = self::trainer(train, &group);
    overfits(&mut trainer, &group);
}

#[test]
fn a_lazy_model_overfits_64_samples_to_a_tenth_of_its_loss() {
    let group = alone();
    let train = json!({"optimizer": "adamw", "learning_rate": 1e-3, "clip_norm": 10.0});
    // Norms of a gene's own channels: those over the batch would tell samples apart by their company.
    let change = |model: &mut Model| {
        model.implementation = Implementation::Shared;
        (model.norm, model.preprocessor_norm) = (Norm::Node, Norm::Node);
    };
    let mut trainer = lazy_trainer_of(train, change, &group);
    overfits(&mut trainer, &group);
}

/// The launcher reports the size of a model before it is built.
#[test]
fn a_model_has_as_many_parameters_as_its_settings_say() {
    let group = alone();
    let changes: [fn(&mut Model); 8] = [
        |_| {},
        |model| (model.hidden, model.heads, model.layers) = (10, 2, 3),
        |model| model.edge_types.truncate(2),
        |model| model.kind = ModelKind::Lazy,
        |model| {
            model.kind = ModelKind::Lazy;
            (model.hidden, model.heads, model.layers, model.convolution_layers) = (10, 2, 3, 2);
            (model.attention_layers, model.aggregation_norm) = (1, false);
        },
        |model| {
            model.kind = ModelKind::Lazy;
            (model.aggregation, model.local_head) = (Aggregation::Sum, LocalHead::None);
        },
        |model| (model.kind, model.local_head) = (ModelKind::Lazy, LocalHead::Zero),
        |model| (model.kind, model.implementation) = (ModelKind::Lazy, Implementation::Shared),
    ];
    let mut counts = Vec::new();
    for change in changes {
        let mut settings = settings(json!({}));
        change(&mut settings.model);
        let trainer = new_trainer(&settings, &group).unwrap();
        counts.push(trainer.parameter_count());
        assert_eq!(settings.model.parameter_count(GENES as u64), counts.last().copied(), "{:?}", settings.model);
    }
    // The local head is there where its term is 0, and both implementations have the same.
    assert!(counts[6] == counts[3] && counts[7] == counts[3] && counts[5] < counts[3], "{counts:?}");
    let mut module = settings(json!({})).model;
    module.kind = ModelKind::Torchscript;
    assert_eq!(module.parameter_count(GENES as u64), None);
}

/// Four steps an epoch until the loss is a tenth of what it was, and of the labels' variance.
fn overfits(trainer: &mut Trainer, group: &ProcessGroup) {
    let first = loss(trainer);
    // To predict the mean alone would come to the variance of the labels.
    let target = first.min(VARIANCE) / 10.0;
    let mut last = first;
    for epoch in 0..EPOCHS {
        for start in (0..64).step_by(16) {
            step(trainer, &batch(start..start + 16), epoch, group).unwrap();
        }
        last = loss(trainer);
        if last <= target {
            eprintln!("{first:.4} to {last:.4} in {} epochs", epoch + 1);
            break;
        }
    }
    assert!(last <= target, "{first} to {last} in {EPOCHS} epochs");
    let (predictions, labels) = trainer.evaluate(&batch(0..64), &[]).unwrap();
    assert!(pearson(&predictions, &labels).unwrap() > 0.9);
}

#[test]
fn labels_are_standardised_and_predictions_come_back_in_their_units() {
    let group = alone();
    let mut trainer = self::trainer(json!({"standardise_labels": true}), &group);
    let samples = batch(0..8);
    let (predictions, labels) = trainer.evaluate(&samples, &[]).unwrap();
    assert_eq!(labels, samples.common.labels);
    let (mean, sd) = LABELS;
    let pairs = || doubles(&predictions).into_iter().zip(doubles(&labels));
    let expected = pairs().map(|(p, l)| ((p - l) / sd).powi(2)).sum::<f64>() / 8.0;
    // In double precision, but for the 1e-8 that is added to the standard deviation.
    let of_all = trainer.prediction_loss(&predictions, &labels).unwrap();
    assert!((of_all - expected).abs() < 1e-7 * expected, "{of_all}, not {expected}");
    let told = step(&mut trainer, &samples, 0, &group).unwrap().loss.unwrap();
    // Predictions took two operations with two rounded numbers to the units of the labels, labels as many to those of training;
    // the difference is squared, and eight of them are summed.
    let moved = |(p, l): (f64, f64)| 2.0 * ((p - l) / sd).abs() * gamma(4) * (p.abs() + l.abs() + 2.0 * mean) / sd;
    let bound = pairs().map(moved).sum::<f64>() / 8.0 + (gamma(3 + 8) + 1e-7) * expected;
    assert!((told - expected).abs() <= bound, "{told}, not {expected} within {bound}");
    let plain = self::trainer(json!({}), &group).evaluate(&samples, &[]).unwrap().0;
    for (standardised, plain) in doubles(&predictions).into_iter().zip(doubles(&plain)) {
        let exact = plain * sd + mean;
        assert!(
            (standardised - exact).abs() <= (gamma(4) + 1e-7) * ((plain * sd).abs() + mean),
            "{standardised} {exact}"
        );
    }
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let group = alone();
    let mut trainer = self::trainer(json!({"clip_norm": 1.0}), &group);
    step(&mut trainer, &batch(0..4), 0, &group).unwrap();
    let before = trainer.parameters_digest().unwrap();
    // The squared error still fits into float32; the squares of its gradients do not.
    let mut huge = batch(0..1);
    huge.common.labels.fill(1.8e19);
    let error = step(&mut trainer, &huge, 0, &group).unwrap_err();
    assert!(matches!(error, TrainError::Gradient { step: 1, norm } if norm == f64::INFINITY), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("the gradient of step 1 is not finite (norm inf)"), "{text}");
    assert!(text.contains("train.learning_rate"), "{text}");
    assert_eq!(trainer.parameters_digest().unwrap(), before);
}

#[test]
fn a_loss_that_is_nan_is_told_and_changes_nothing_where_gradients_are_clipped() {
    let group = alone();
    let mut trainer = self::trainer(json!({"clip_norm": 1.0}), &group);
    let before = trainer.parameters_digest().unwrap();
    let mut wrong = batch(0..4);
    wrong.common.labels[2] = f32::NAN;
    assert!(step(&mut trainer, &wrong, 0, &group).unwrap().loss.unwrap().is_nan());
    assert_eq!(trainer.parameters_digest().unwrap(), before);
    all_finite(&trainer.state()).unwrap();
    // Without clipping nothing is looked at, but nothing like that may be kept.
    let mut trainer = self::trainer(json!({}), &group);
    assert!(step(&mut trainer, &wrong, 0, &group).unwrap().loss.unwrap().is_nan());
    let error = all_finite(&trainer.state()).unwrap_err();
    assert!(matches!(&error, StateError::NotFinite { name } if name.starts_with("model/")), "{error}");
}

#[test]
fn accumulated_batches_are_one_larger_batch() {
    let group = alone();
    let whole = |neighbour: Option<u32>| {
        let mut whole = self::trainer(json!({"clip_norm": 0.5}), &group);
        nudge(&mut whole, neighbour);
        step(&mut whole, &batch(0..12), 0, &group).unwrap();
        step(&mut whole, &batch(12..20), 0, &group).unwrap();
        doubles(&parameters(&whole))
    };
    let mut parts = self::trainer(json!({"clip_norm": 0.5, "accumulation": ["0:3"]}), &group);
    // Five batches an epoch: its end closes the second group.
    parts.set_start(0, 0, 5);
    let start = parts.parameters_digest().unwrap();
    for part in 0..5 {
        let told = step(&mut parts, &batch(part * 4..part * 4 + 4), 0, &group).unwrap();
        assert_eq!(told.gradient_norm.is_some(), part == 2 || part == 4, "batch {part}");
        if part < 2 {
            assert_eq!(parts.parameters_digest().unwrap(), start, "batch {part}");
        }
    }
    let exact = whole(None);
    let peers: Vec<f64> = (0..NEIGHBOURS).map(|neighbour| distance(&whole(Some(neighbour)), &exact)).collect();
    // Either step rounds each parameter once.
    assert_rounding("accumulated", distance(&doubles(&parameters(&parts)), &exact), &peers, floor(&exact, 2));
    assert_ne!(parts.parameters_digest().unwrap(), start);
}

/// Four epochs of five batches, with a validation after each, cut and put back in front of the steps in `cuts`.
fn run(train: &Value, cuts: &[u64]) -> String {
    let group = alone();
    let mut trainer = self::trainer(train.clone(), &group);
    trainer.set_start(0, 0, 5);
    let mut restored = false;
    for step_number in 0..20u64 {
        let (epoch, place) = (step_number / 5, step_number % 5);
        if cuts.contains(&step_number) {
            assert_eq!(trainer.next_boundary(step_number), step_number, "in front of a group");
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("state.safetensors");
            write_state(&path, &trainer.state()).unwrap();
            trainer = self::trainer(train.clone(), &group);
            trainer.restore(&read_state(&path).unwrap()).unwrap();
            trainer.set_start(step_number, 0, 5);
            restored = true;
        }
        let samples = batch((place as i64 * 8)..(place as i64 * 8 + 8));
        if std::mem::take(&mut restored) {
            order_buckets(&mut trainer, &samples, epoch, &group);
        }
        step(&mut trainer, &samples, epoch, &group).unwrap();
        if place == 4 {
            // Worse each time, so that the plateau has something to do.
            trainer.report_validation(1.0 + epoch as f64);
        }
    }
    trainer.parameters_digest().unwrap()
}

#[test]
fn a_run_that_was_cut_ends_with_the_same_bits() {
    for schedule in ["plateau", "cosine_restarts"] {
        let train = json!({"optimizer": "adamw", "learning_rate": 1e-3, "clip_norm": 1.0, "loss": "mse_sinkhorn",
                           "sinkhorn_buffer": 20, "sinkhorn_weight": 5.0, "standardise_labels": true,
                           "accumulation": ["0:1", "1:3"], "schedule": schedule, "schedule_patience": 0,
                           "schedule_epochs": 3, "schedule_min": 1e-5});
        let whole = run(&train, &[]);
        // In front of the buffer's being full, between groups, behind an epoch, twice.
        for cuts in [&[1u64][..], &[3], &[8], &[10], &[2, 13]] {
            assert_eq!(run(&train, cuts), whole, "{schedule}, cut at {cuts:?}");
        }
        // Buffer, plateau and groups have an effect.
        for (key, other) in
            [("sinkhorn_weight", json!(0.0)), ("accumulation", json!([])), ("schedule", json!("constant"))]
        {
            let mut train = train.clone();
            train[key] = other;
            assert_ne!(run(&train, &[]), whole, "{schedule}, {key}");
        }
    }
}

#[test]
fn the_learning_rate_follows_the_epoch() {
    let group = alone();
    let train = json!({"schedule": "cosine_restarts", "schedule_epochs": 10, "schedule_min": 1e-3});
    let mut trainer = self::trainer(train, &group);
    assert_eq!(trainer.learning_rate(), 1e-3);
    trainer.begin_epoch(5);
    assert!((trainer.learning_rate() - (0.05 + 1e-3) / 2.0).abs() < 1e-12);
    step(&mut trainer, &batch(0..4), 10, &group).unwrap();
    assert!((trainer.learning_rate() - 0.025).abs() < 1e-12, "a restart at half the peak");
    let mut trainer = self::trainer(json!({"schedule": "plateau", "schedule_patience": 0}), &group);
    trainer.begin_epoch(0);
    trainer.report_validation(1.0);
    trainer.report_validation(1.0);
    assert_eq!(trainer.learning_rate(), 0.05, "not within an epoch");
    trainer.begin_epoch(1);
    assert_eq!(trainer.learning_rate(), 0.025);
    let train = json!({"schedule": "cosine_restarts", "schedule_epochs": 3, "schedule_warmup": 3});
    let refused = new_trainer(&settings(train), &group);
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("train.schedule_warmup is 3, but a cycle has 3 epochs"), "{error}");
}

#[test]
fn bfloat16_is_near_float32_and_leaves_parameters_alone() {
    let group = alone();
    let train = |precision: &str| json!({"precision": precision, "reconstruction": "uniform", "clip_norm": 10.0});
    let (mut wide, mut narrow) = (self::trainer(train("float32"), &group), self::trainer(train("bf16_mixed"), &group));
    let samples = batch(0..32);
    let (expected, _) = wide.evaluate(&samples, &[]).unwrap();
    let (got, _) = narrow.evaluate(&samples, &[]).unwrap();
    let scale = expected.iter().fold(0f32, |a, b| a.max(b.abs()));
    let difference = farthest(&expected, &got);
    // Eight bits, through some ten products one behind the other.
    assert!(difference < 0.05 * scale, "{difference} of {scale}");
    assert!(difference > 0.0, "it made no difference at all");
    let a = step(&mut wide, &samples, 0, &group).unwrap();
    let b = step(&mut narrow, &samples, 0, &group).unwrap();
    let (a_loss, b_loss) = (a.loss.unwrap(), b.loss.unwrap());
    assert!((a_loss - b_loss).abs() < 0.02 * a_loss, "{a_loss} and {b_loss}");
    let (a_norm, b_norm) = (a.gradient_norm.unwrap(), b.gradient_norm.unwrap());
    assert!(b_norm.is_finite() && (a_norm - b_norm).abs() < 0.05 * a_norm, "{a_norm} and {b_norm}");
    assert!(narrow.state().iter().all(|(_, tensor)| tensor.kind() == Kind::Float));
    all_finite(&narrow.state()).unwrap();
}

#[test]
fn the_lazy_model_trains_in_bfloat16_as_in_float32() {
    let group = alone();
    let made = |precision: &str| {
        lazy_trainer(json!({"precision": precision, "clip_norm": 1.0, "learning_rate": 1e-3}), &group)
    };
    let (mut wide, mut narrow) = (made("float32"), made("bf16_mixed"));
    let samples = with_graphs(0..8);
    for epoch in 0..3 {
        let a = step(&mut wide, &samples, epoch, &group).unwrap().loss.unwrap();
        let b = step(&mut narrow, &samples, epoch, &group).unwrap().loss.unwrap();
        assert!((a - b).abs() < 0.1 * a && a != b, "epoch {epoch}: {a} and {b}");
    }
    assert!(narrow.state().iter().all(|(_, tensor)| tensor.kind() == Kind::Float));
    all_finite(&narrow.state()).unwrap();
}

/// A product, which bfloat16 computes, over a weight for each gene.
const SCRIPT: &str = "
def forward(self, genes, gene_sample, batch_size: int):
    x = torch.tanh(torch.matmul(self.embedding[genes], self.matrix))
    return torch.zeros([batch_size, 1]).index_add(0, gene_sample, torch.matmul(x, self.head).float())
";

#[test]
fn a_torchscript_module_trains_in_bfloat16_as_in_float32() {
    let group = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("module.pt");
    let shapes = [("embedding", [GENES, 16]), ("matrix", [16, 16]), ("head", [16, 1])];
    let values = shapes.map(|(name, shape)| {
        let entries: Vec<f32> = (0..shape[0] * shape[1]).map(|i| (i as f32 * 0.37).sin() * 0.5).collect();
        (name.to_owned(), Tensor::from_slice(&entries).view(shape))
    });
    ScriptModule::define(&values, SCRIPT).unwrap().save(&path).unwrap();
    let made = |precision: &str| {
        let mut settings = settings(json!({"precision": precision, "learning_rate": 0.01}));
        settings.model.kind = ModelKind::Torchscript;
        settings.model.path = path.to_str().unwrap().to_owned();
        settings.model.inputs = ["genes", "gene_sample", "batch_size"].map(str::to_owned).to_vec();
        new_trainer(&settings, &group).unwrap()
    };
    let (mut wide, mut narrow) = (made("float32"), made("bf16_mixed"));
    let samples = batch(0..32);
    let before = parameters(&narrow);
    let first = loss(&narrow);
    for epoch in 0..20 {
        let a = step(&mut wide, &samples, epoch, &group).unwrap().loss.unwrap();
        let b = step(&mut narrow, &samples, epoch, &group).unwrap().loss.unwrap();
        assert!((a - b).abs() < 0.05 * a && a != b, "epoch {epoch}: {a} and {b}");
    }
    assert!(loss(&narrow) < first && farthest(&before, &parameters(&narrow)) > 0.0);
    assert!(narrow.state().iter().all(|(_, tensor)| tensor.kind() == Kind::Float));
}

#[test]
fn a_backward_pass_that_fails_alone_is_no_failed_collective() {
    let group = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("module.pt");
    let weight = ("weight".to_owned(), Tensor::from_slice(&[1f32]));
    // Nothing that a gradient would go to.
    let source = "def forward(self, genes, gene_sample, batch_size: int):\n    return torch.zeros([batch_size])\n";
    ScriptModule::define(&[weight], source).unwrap().save(&path).unwrap();
    let mut settings = settings(json!({}));
    settings.model.kind = ModelKind::Torchscript;
    settings.model.path = path.to_str().unwrap().to_owned();
    settings.model.inputs = ["genes", "gene_sample", "batch_size"].map(str::to_owned).to_vec();
    let mut trainer = new_trainer(&settings, &group).unwrap();
    let error = step(&mut trainer, &batch(0..8), 0, &group).unwrap_err();
    assert!(matches!(error, TrainError::Device(_)), "{error:?}");
    assert!(error.to_string().starts_with("backward pass: "), "{error}");
}

#[test]
fn a_state_of_another_model_is_refused_by_name() {
    let group = alone();
    let mut trainer = self::trainer(json!({"loss": "mse_sinkhorn"}), &group);
    let mut state: BTreeMap<String, Tensor> = trainer.state().into_iter().map(|(n, t)| (n, t.copy())).collect();
    trainer.restore(&state).unwrap();
    state.insert("model/embedding".to_owned(), Tensor::zeros([3, 4], (Kind::Float, Device::Cpu)));
    let error = trainer.restore(&state).unwrap_err().to_string();
    assert_eq!(error, "parameter embedding has another shape: [3, 4], and the model has [50, 16]");
    state.remove("model/embedding");
    assert_eq!(trainer.restore(&state).unwrap_err().to_string(), "parameter embedding is missing");
}
