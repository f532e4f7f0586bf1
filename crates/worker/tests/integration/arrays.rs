//! Models over arrays: sizes, dense against sparse rows, rows alone against rows in a batch, wrong inputs; and both learn the classes of made-up
//! rows, on one rank and on two alike.

use std::time::Duration;

use cell_loader::{CellBatch, CellValues};
use expctl_rounding::{assert_rounding, at_neighbours, distance, floor, norm, values};
use expctl_settings::{Loss, ModelKind, Optimizer, Settings};
use expctl_worker::models::array::{
    ArrayInputs, Mlp, MlpConfig, RowBatch, Transformer, TransformerConfig, ValueInputs,
};
use expctl_worker::models::{ModelBatch, ModelInputs, named_parameters};
use expctl_worker::trainer::{TrainError, Trainer};
use serde_json::json;
use tch::{Device, Kind, Tensor, nn};
use torch_dist::{ProcessGroup, Store};

use crate::rank_processes::{RankEntry, Role};
use crate::support::{self, generator, new_array_trainer, nudge, parameters, settings};

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

fn count(vs: &nn::VarStore) -> i64 {
    vs.variables().values().map(|tensor| tensor.numel() as i64).sum()
}

/// Rows of 7 genes, dense.
fn dense(rows: &[[f32; 7]]) -> CellBatch {
    let values = CellValues::Dense(rows.concat());
    CellBatch { rows: (0..rows.len() as u64).collect(), columns: 7, values, labels: Vec::new() }
}

/// The same, CSR.
fn sparse(batch: &CellBatch) -> CellBatch {
    let CellValues::Dense(data) = &batch.values else { unreachable!() };
    let (mut crow, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in data.chunks(7) {
        for (gene, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            col.push(gene as i32);
            values.push(*value);
        }
        crow.push(col.len() as i32);
    }
    CellBatch { values: CellValues::Sparse { crow, col, values }, ..batch.clone() }
}

/// The rows for a model that reads at most `tokens` tokens of each, or all values.
fn read(batch: &CellBatch, tokens: Option<usize>) -> RowBatch {
    RowBatch::new(batch.clone(), tokens)
}

fn inputs(batch: &RowBatch) -> ArrayInputs<'_> {
    let ModelInputs::Rows(inputs) = batch.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
    inputs
}

const ROWS: [[f32; 7]; 3] = [[0.0, 1.0, 0.0, 2.5, 0.0, 0.0, -1.0], [0.0; 7], [3.0, 0.5, 0.25, 0.0, 4.0, 1.0, 2.0]];

/// The outputs, and of each parameter the gradient of the sum of their squares; the parameters have `kind`.
fn run(
    vs: &nn::VarStore,
    kind: Kind,
    forward: &dyn Fn(&ArrayInputs<'_>) -> Tensor,
    batch: &RowBatch,
) -> Vec<(String, Vec<f64>)> {
    let mut inputs = inputs(batch);
    if let ValueInputs::Dense(rows) = &mut inputs.values {
        *rows = rows.to_kind(kind);
    }
    let output = forward(&inputs);
    output.square().sum(kind).backward();
    let gradients = named_parameters(vs).into_iter().map(|(name, mut tensor)| {
        let gradient = values(&tensor.grad());
        tensor.zero_grad();
        (name, gradient)
    });
    let mut all: Vec<_> = gradients.collect();
    all.push(("output".to_owned(), values(&output)));
    all
}

#[test]
fn the_presets_have_the_sizes_that_are_stated() {
    let _alone = generator();
    let mlp = MlpConfig { genes: 20_000, hidden: 1024, layers: 5, classes: 16 };
    assert_eq!(mlp.parameters(), 24_695_824);
    let transformer = TransformerConfig { genes: 20_000, hidden: 256, heads: 4, layers: 8, tokens: 2200, classes: 16 };
    assert_eq!(transformer.parameters(), 11_509_264);
    let vs = nn::VarStore::new(Device::Cpu);
    let small = MlpConfig { genes: 7, hidden: 5, layers: 3, classes: 4 };
    Mlp::new(&vs.root(), &small).unwrap();
    assert_eq!(count(&vs), small.parameters());
    let vs = nn::VarStore::new(Device::Cpu);
    let small = TransformerConfig { genes: 7, hidden: 6, heads: 3, layers: 2, tokens: 4, classes: 4 };
    Transformer::new(&vs.root(), &small).unwrap();
    assert_eq!(count(&vs), small.parameters());
}

#[test]
fn dense_and_sparse_rows_give_the_same() {
    let _alone = generator();
    let batch = dense(&ROWS);
    let vs = nn::VarStore::new(Device::Cpu);
    let config = MlpConfig { genes: 7, hidden: 16, layers: 2, classes: 4 };
    let mlp = Mlp::new(&vs.root(), &config).unwrap();
    let mut double = nn::VarStore::new(Device::Cpu);
    let in_double = Mlp::new(&double.root(), &config).unwrap();
    double.set_kind(Kind::Double);
    let exact = || {
        for ((_, mut double), (_, single)) in named_parameters(&double).into_iter().zip(named_parameters(&vs)) {
            tch::no_grad(|| double.copy_(&single));
        }
        run(&double, Kind::Double, &|inputs| in_double.forward(inputs).unwrap().prediction, &read(&batch, None))
    };
    let of = |batch: &CellBatch| {
        run(&vs, Kind::Float, &|inputs| mlp.forward(inputs).unwrap().prediction, &read(batch, None))
    };
    let (got, truth) = (of(&sparse(&batch)), exact());
    let near = at_neighbours(&vs, || (of(&batch), exact()));
    for (i, (name, exact)) in truth.iter().enumerate() {
        assert!(norm(exact) > 0.0, "{name}");
        let peers: Vec<f64> = near.iter().map(|(dense, exact)| distance(&dense[i].1, &exact[i].1)).collect();
        // The widest sums are over the 16 channels.
        assert_rounding(name, distance(&got[i].1, exact), &peers, floor(exact, 16));
    }

    let vs = nn::VarStore::new(Device::Cpu);
    let sizes = TransformerConfig { genes: 7, hidden: 8, heads: 2, layers: 2, tokens: 4, classes: 4 };
    let transformer = Transformer::new(&vs.root(), &sizes).unwrap();
    let of = |batch: &CellBatch| {
        run(&vs, Kind::Float, &|inputs| transformer.forward(inputs).unwrap().prediction, &read(batch, Some(4)))
    };
    // Both are the same tokens.
    assert_eq!(of(&batch), of(&sparse(&batch)));
}

#[test]
fn the_rows_of_a_batch_do_not_influence_each_other() {
    let _alone = generator();
    let vs = nn::VarStore::new(Device::Cpu);
    let sizes = TransformerConfig { genes: 7, hidden: 8, heads: 2, layers: 2, tokens: 6, classes: 3 };
    let transformer = Transformer::new(&vs.root(), &sizes).unwrap();
    let of = |batch: &CellBatch| transformer.forward(&inputs(&read(batch, Some(6)))).unwrap().prediction.detach();
    let whole = of(&dense(&ROWS));
    // Alone it has no padding, the one without any value no token but that of the cell.
    let alone: Vec<Vec<f64>> = ROWS.iter().map(|row| values(&of(&dense(&[*row])))).collect();
    let near = at_neighbours(&vs, || of(&dense(&ROWS)));
    for (place, alone) in alone.iter().enumerate() {
        let of_row = |outputs: &Tensor| values(&outputs.get(place as i64));
        let peers: Vec<f64> = near.iter().map(|near| distance(&of_row(near), &of_row(&whole))).collect();
        assert_rounding(&format!("row {place}"), distance(alone, &of_row(&whole)), &peers, floor(alone, 32));
    }
}

#[test]
fn misfits_are_errors() {
    let _alone = generator();
    let vs = nn::VarStore::new(Device::Cpu);
    let mlp = Mlp::new(&vs.root(), &MlpConfig { genes: 8, hidden: 4, layers: 1, classes: 2 }).unwrap();
    let (whole, tokens) = (read(&dense(&ROWS), None), read(&dense(&ROWS), Some(4)));
    let message = mlp.forward(&inputs(&whole)).unwrap_err().to_string();
    assert!(message.contains("rows of 8 genes, not of 7"), "{message}");
    let other = nn::VarStore::new(Device::Cpu);
    let mlp = Mlp::new(&other.root(), &MlpConfig { genes: 7, hidden: 4, layers: 1, classes: 2 }).unwrap();
    assert!(mlp.forward(&inputs(&tokens)).unwrap_err().to_string().contains("all values of a row"));
    let other = nn::VarStore::new(Device::Cpu);
    let sizes = TransformerConfig { genes: 7, hidden: 4, heads: 2, layers: 1, tokens: 4, classes: 2 };
    let transformer = Transformer::new(&other.root(), &sizes).unwrap();
    assert!(transformer.forward(&inputs(&whole)).unwrap_err().to_string().contains("the tokens of each row"));
    assert!(Mlp::new(&vs.root(), &MlpConfig { genes: 8, hidden: 4, layers: 1, classes: 0 }).is_err());
    let sizes = TransformerConfig { genes: 7, hidden: 6, heads: 4, layers: 1, tokens: 4, classes: 2 };
    assert!(Transformer::new(&vs.root(), &sizes).unwrap_err().to_string().contains("multiple of heads"));
}
