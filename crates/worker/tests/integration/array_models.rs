//! Models over arrays: sizes, dense against sparse rows, rows alone against rows in a batch, and wrong inputs.

use cell_loader::{CellBatch, CellValues};
use expctl_rounding::{assert_rounding, at_neighbours, distance, floor, norm, values};
use expctl_worker::models::array::{
    ArrayInputs, Mlp, MlpConfig, RowBatch, Transformer, TransformerConfig, ValueInputs,
};
use expctl_worker::models::{ModelBatch, ModelInputs, named_parameters};
use tch::{Device, Kind, Tensor, nn};

use crate::support::generator;

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

/// As a model reads them that takes `tokens` of a row, or all values.
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
