//! Models over arrays against what they are said to be.

use expctl_pipeline::array::{ArrayBatch, Values};
use tch::{Device, Kind, Tensor, nn};

use super::{ArrayInputs, Mlp, MlpConfig, Transformer, TransformerConfig};

fn count(vs: &nn::VarStore) -> i64 {
    vs.variables().values().map(|tensor| tensor.numel() as i64).sum()
}

/// Rows of 7 genes, dense.
fn dense(rows: &[[f32; 7]]) -> ArrayBatch {
    let values = Values::Dense(rows.concat());
    ArrayBatch { rows: (0..rows.len() as u64).collect(), columns: 7, values, labels: Vec::new() }
}

/// The same, CSR.
fn sparse(batch: &ArrayBatch) -> ArrayBatch {
    let Values::Dense(data) = &batch.values else { unreachable!() };
    let (mut crow, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in data.chunks(7) {
        for (gene, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            col.push(gene as i32);
            values.push(*value);
        }
        crow.push(col.len() as i32);
    }
    ArrayBatch { values: Values::Sparse { crow, col, values }, ..batch.clone() }
}

const ROWS: [[f32; 7]; 3] = [[0.0, 1.0, 0.0, 2.5, 0.0, 0.0, -1.0], [0.0; 7], [3.0, 0.5, 0.25, 0.0, 4.0, 1.0, 2.0]];

/// Outputs, and the gradients of all parameters of the sum of their squares.
fn run(vs: &nn::VarStore, forward: &dyn Fn(&ArrayInputs<'_>) -> Tensor, batch: &ArrayBatch) -> (Tensor, Vec<Tensor>) {
    let inputs = ArrayInputs::of(batch, Device::Cpu).unwrap();
    let output = forward(&inputs);
    output.square().sum(Kind::Float).backward();
    let mut parameters: Vec<_> = vs.variables().into_iter().collect();
    parameters.sort_by(|a, b| a.0.cmp(&b.0));
    let gradients = parameters.iter_mut().map(|(_, tensor)| {
        let gradient = tensor.grad().copy();
        tensor.zero_grad();
        gradient
    });
    (output.detach(), gradients.collect())
}

#[track_caller]
fn same(a: &Tensor, b: &Tensor) {
    assert!(a.allclose(b, 1e-4, 1e-5, false), "{a:?} {b:?}");
}

#[test]
fn the_presets_have_the_sizes_that_are_stated() {
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
    let batch = dense(&ROWS);
    let vs = nn::VarStore::new(Device::Cpu);
    let mlp = Mlp::new(&vs.root(), &MlpConfig { genes: 7, hidden: 16, layers: 2, classes: 4 }).unwrap();
    let of = |batch: &ArrayBatch| run(&vs, &|inputs| mlp.forward(inputs).unwrap().prediction, batch);
    let ((a, grad_a), (b, grad_b)) = (of(&batch), of(&sparse(&batch)));
    assert_eq!(a.size(), [3, 4]);
    same(&a, &b);
    grad_a.iter().zip(&grad_b).for_each(|(a, b)| same(a, b));
    assert!(grad_a.iter().all(|gradient| gradient.abs().sum(Kind::Float).double_value(&[]) > 0.0));

    let vs = nn::VarStore::new(Device::Cpu);
    let sizes = TransformerConfig { genes: 7, hidden: 8, heads: 2, layers: 2, tokens: 4, classes: 4 };
    let transformer = Transformer::new(&vs.root(), &sizes).unwrap();
    let of = |batch: &ArrayBatch| run(&vs, &|inputs| transformer.forward(inputs).unwrap().prediction, batch);
    let ((a, grad_a), (b, grad_b)) = (of(&batch), of(&sparse(&batch)));
    assert_eq!(a.size(), [3, 4]);
    same(&a, &b);
    grad_a.iter().zip(&grad_b).for_each(|(a, b)| same(a, b));
}

#[test]
fn the_rows_of_a_batch_do_not_influence_each_other() {
    let vs = nn::VarStore::new(Device::Cpu);
    let sizes = TransformerConfig { genes: 7, hidden: 8, heads: 2, layers: 2, tokens: 6, classes: 3 };
    let transformer = Transformer::new(&vs.root(), &sizes).unwrap();
    let of = |batch: &ArrayBatch| {
        let inputs = ArrayInputs::of(batch, Device::Cpu).unwrap();
        transformer.forward(&inputs).unwrap().prediction.detach()
    };
    let whole = of(&dense(&ROWS));
    for (place, row) in ROWS.iter().enumerate() {
        // Alone it has no padding, the one without any value no token but that of the cell.
        same(&whole.get(place as i64), &of(&dense(&[*row])).get(0));
    }
}

#[test]
fn misfits_are_errors() {
    let vs = nn::VarStore::new(Device::Cpu);
    let mlp = Mlp::new(&vs.root(), &MlpConfig { genes: 8, hidden: 4, layers: 1, classes: 2 }).unwrap();
    let batch = dense(&ROWS);
    let message = mlp.forward(&ArrayInputs::of(&batch, Device::Cpu).unwrap()).unwrap_err().to_string();
    assert!(message.contains("rows of 8 genes, not of 7"), "{message}");
    assert!(Mlp::new(&vs.root(), &MlpConfig { genes: 8, hidden: 4, layers: 1, classes: 0 }).is_err());
    let sizes = TransformerConfig { genes: 7, hidden: 6, heads: 4, layers: 1, tokens: 4, classes: 2 };
    assert!(Transformer::new(&vs.root(), &sizes).unwrap_err().to_string().contains("multiple of heads"));
}
