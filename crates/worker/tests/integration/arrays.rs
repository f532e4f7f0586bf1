//! Models over arrays learn the classes of made-up rows, on one rank and on two alike.

use std::time::Duration;

use cell_loader::{CellBatch, CellValues};
use expctl_rounding::{assert_rounding, distance, floor};
use expctl_settings::{Loss, ModelKind, Optimizer, Settings};
use expctl_worker::models::array::RowBatch;
use expctl_worker::trainer::{TrainError, Trainer};
use serde_json::json;
use torch_dist::{ProcessGroup, Store};

use crate::rank_processes::{RankEntry, Role};
use crate::support::{self, new_array_trainer, nudge, parameters, settings};

const RANKS: RankEntry = RankEntry("arrays::rank_entry");

const GENES: usize = 40;
const CLASSES: u64 = 4;
/// The most that a transformer reads of a row.
const TOKENS: usize = 12;
/// Rows of a whole step.
const BATCH: u64 = 16;
/// Steps of one rank and of two.
const STEPS: u64 = 60;

fn of_kind(kind: ModelKind) -> Settings {
    let mut settings = settings(json!({"optimizer": "adamw", "learning_rate": 0.01}));
    settings.train.loss = Loss::CrossEntropy;
    let model = &mut settings.model;
    (model.kind, model.hidden, model.heads, model.layers, model.tokens) = (kind, 32, 4, 2, TOKENS as u32);
    settings
}

/// Rows with these numbers, CSR: a row of class c has large values in every fourth gene from c on, and a small one elsewhere;
/// of every ninth row the class is not known.
fn rows(ids: impl IntoIterator<Item = u64>) -> CellBatch {
    let rows: Vec<u64> = ids.into_iter().collect();
    let (mut crow, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for id in &rows {
        for gene in (0..GENES as u64).filter(|gene| gene % CLASSES == id % CLASSES || (gene * 7 + id) % 11 == 0) {
            col.push(gene as i32);
            values.push(if gene % CLASSES == id % CLASSES { 2.0 } else { 0.5 } + (id % 5) as f32 * 0.1);
        }
        crow.push(col.len() as i32);
    }
    let labels = rows.iter().map(|id| if id % 9 == 8 { -1 } else { (id % CLASSES) as i64 }).collect();
    CellBatch { rows, columns: GENES, values: CellValues::Sparse { crow, col, values }, labels: vec![labels] }
}

fn step(trainer: &mut Trainer, batch: CellBatch, kind: ModelKind, group: &ProcessGroup) -> Result<f64, TrainError> {
    let batch = RowBatch::new(batch, (kind == ModelKind::Transformer).then_some(TOKENS));
    Ok(support::step(trainer, &batch, 0, group)?.loss.unwrap())
}

/// The share of rank `role.0` of `role.1` of `count` steps, with all classes known if `role.2` says so; returns the mean losses of the first and the last four.
fn train(
    trainer: &mut Trainer,
    kind: ModelKind,
    role: (u32, u32, bool),
    count: u64,
    group: &ProcessGroup,
) -> (f64, f64) {
    let (rank, world) = (u64::from(role.0), u64::from(role.1));
    trainer.set_start(0, 0, count);
    let mut losses = Vec::new();
    for number in 0..count {
        let ids = (0..BATCH).filter(|row| row % world == rank).map(|row| number % 8 * BATCH + row);
        let mut batch = rows(ids);
        if role.2 {
            // The loss of a rank is a mean over its rows of known class: with as many on each, it is that of all of them.
            batch.labels[0] = batch.rows.iter().map(|id| (id % CLASSES) as i64).collect();
        }
        losses.push(step(trainer, batch, kind, group).unwrap());
    }
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    (mean(&losses[..4]), mean(&losses[losses.len() - 4..]))
}

fn alone() -> ProcessGroup {
    tch::set_num_threads(1);
    let limit = Duration::from_secs(60);
    let store = Store::serve("127.0.0.1", 0, limit).unwrap();
    ProcessGroup::gloo(&store, 0, 1, limit).unwrap()
}

#[test]
fn both_models_learn_the_classes() {
    let group = alone();
    for kind in [ModelKind::Mlp, ModelKind::Transformer] {
        let mut settings = of_kind(kind);
        settings.train.learning_rate = if kind == ModelKind::Mlp { 0.01 } else { 0.002 };
        let mut trainer = new_array_trainer(&settings, GENES as u64, CLASSES, &group).unwrap();
        let (first, last) = train(&mut trainer, kind, (0, 1, false), 120, &group);
        assert!(first > 0.5 && last < first / 10.0, "{kind:?}: {first} {last}");
    }
}

#[test]
fn rows_without_labels_are_refused() {
    let group = alone();
    let mut trainer = new_array_trainer(&of_kind(ModelKind::Mlp), GENES as u64, CLASSES, &group).unwrap();
    let batch = CellBatch { labels: Vec::new(), ..rows(0..4) };
    let message = step(&mut trainer, batch, ModelKind::Mlp, &group).unwrap_err().to_string();
    assert!(message.contains("array.labels"), "{message}");
    let graphs = support::batch(0..4);
    let message = support::step(&mut trainer, &graphs, 0, &group).unwrap_err().to_string();
    assert!(message.contains("rows of an array"), "{message}");
    let message = new_array_trainer(&of_kind(ModelKind::Dango), 10, 2, &group).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("does not read rows of an array"), "{message}");
}

#[test]
#[ignore = "entry of the ranks that the tests start"]
fn rank_entry() {
    let role = Role::from_env();
    let (store, group) = role.connect();
    let kind = if role.scenario == "mlp" { ModelKind::Mlp } else { ModelKind::Transformer };
    let mut settings = of_kind(kind);
    // AdamW would make much of differences in rounding.
    settings.train.optimizer = Optimizer::Sgd;
    settings.train.learning_rate = 0.05;
    let mut trainer = new_array_trainer(&settings, GENES as u64, CLASSES, &group).unwrap();
    nudge(&mut trainer, role.neighbour);
    let (first, last) = train(&mut trainer, kind, (role.rank, role.world, true), STEPS, &group);
    assert!(last < first, "{first} {last}");
    role.report(&store, &group, &parameters(&trainer), &trainer.parameters_digest().unwrap());
}

#[test]
fn two_ranks_train_as_one_does() {
    for scenario in ["mlp", "transformer"] {
        let (_, digests) = RANKS.train(scenario, 2);
        assert_eq!(digests[0], digests[1], "{scenario}: ranks differ from each other");
        let (alone, both) = (RANKS.final_parameters(scenario, 1), RANKS.final_parameters(scenario, 2));
        // A step rounds each parameter once.
        let floor = floor(&alone, STEPS as usize);
        assert_rounding(scenario, distance(&alone, &both), &RANKS.neighbour_distances(scenario, &alone), floor);
    }
}
