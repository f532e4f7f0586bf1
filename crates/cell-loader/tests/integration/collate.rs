use std::sync::Arc;

use anndata_io::{CsrRows, DenseRows, Form, RowView, Rows};
use cell_loader::{CellBatch, CellValues, Collator, GeneMap, Transform, log1p};
use proptest::prelude::*;

use super::store::rows_of;

/// Rows of counts, most of them 0, in both forms.
fn table() -> impl Strategy<Value = Vec<Vec<f32>>> {
    let count = prop_oneof![3 => Just(0.0f32), 1 => (1u32..2000).prop_map(|count| count as f32)];
    (1usize..70, 1usize..20).prop_flat_map(move |(genes, rows)| {
        proptest::collection::vec(proptest::collection::vec(count.clone(), genes), rows)
    })
}

fn forms(table: &[Vec<f32>]) -> [Rows; 2] {
    let mut sparse = CsrRows::default();
    for row in table {
        for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            sparse.indices.push(column as i32);
            sparse.data.push(*value);
        }
        sparse.indptr.push(sparse.data.len() as u64);
    }
    [Rows::Sparse(sparse), Rows::Dense(DenseRows { columns: table[0].len(), data: table.concat() })]
}

/// The same as a naive reader of scanpy's documentation would write it: in float64, value by value.
fn naive(row: &[f32], genes: &[usize], target: f64, log: bool) -> Vec<f64> {
    let sum: f64 = row.iter().map(|value| f64::from(*value)).sum();
    let scale = if target == 0.0 || sum == 0.0 { 1.0 } else { target / sum };
    let change = |value: f32| f64::from(value) * scale;
    genes.iter().map(|gene| if log { change(row[*gene]).ln_1p() } else { change(row[*gene]) }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn batches_are_those_of_a_naive_reference(
        (table, target, log, sparse) in (table(), prop_oneof![Just(0.0), Just(1e4)], any::<bool>(), any::<bool>()),
        (kept, reversed, seed) in (1usize..70, any::<bool>(), any::<u64>()),
    ) {
        let columns = table[0].len();
        let names: Vec<String> = (0..columns).map(|gene| format!("g{gene}")).collect();
        let mut genes: Vec<usize> = (0..columns).filter(|gene| (seed >> (gene % 64)) & 1 == 1).take(kept).collect();
        if genes.is_empty() {
            genes = (0..columns).collect();
        }
        if reversed {
            genes.reverse();
        }
        let wanted: Vec<String> = genes.iter().map(|gene| names[*gene].clone()).collect();
        let output = if sparse { Form::Sparse } else { Form::Dense };
        let map = GeneMap::new(&names, &wanted).unwrap();
        let mut collator = Collator::new(columns, map, Transform::new(target, log).unwrap(), output, Arc::default());
        // The same buffers for both forms, and rows that come more than once.
        let mut batch = collator.empty();
        let rows: Vec<u64> = (0..2 * table.len() as u64).map(|i| (i * 7 + seed % 5) % table.len() as u64).collect();
        for form in forms(&table) {
            let view = form.view();
            collator.collate(&rows, |i| view.row(rows[i] as usize), &mut batch).unwrap();
            prop_assert_eq!((&batch.rows, batch.columns), (&rows, genes.len()));
            for (row, found) in rows.iter().zip(rows_of(&batch.values, genes.len())) {
                for (value, exact) in found.iter().zip(naive(&table[*row as usize], &genes, target, log)) {
                    prop_assert!((f64::from(*value) - exact).abs() <= exact * 4e-7, "{} {}", value, exact);
                }
            }
        }
    }
}

fn collator(columns: usize, output: Form) -> (Collator, CellBatch) {
    let collator = Collator::new(columns, None, Transform::new(0.0, false).unwrap(), output, Arc::default());
    let batch = collator.empty();
    (collator, batch)
}

#[test]
fn a_column_that_is_not_there_is_an_error() {
    for output in [Form::Dense, Form::Sparse] {
        let (mut collator, mut batch) = collator(3, output);
        for columns in [[0, 3], [-1, 2]] {
            let row = |_| RowView::Sparse(&columns, &[1.0, 2.0]);
            let error = collator.collate(&[9], row, &mut batch).unwrap_err().to_string();
            let column = columns.iter().find(|column| !(0..3).contains(*column)).unwrap();
            assert_eq!(error, format!("row 9 has a value in column {column}, and there are 3 genes"));
        }
        let error = collator.collate(&[9], |_| RowView::Dense(&[1.0]), &mut batch).unwrap_err().to_string();
        assert_eq!(error, "row 9 has 1 values for 3 genes");
    }
}

/// A smaller batch behind a larger one keeps its memory and has nothing of it.
#[test]
fn buffers_are_reused() {
    let (mut collator, mut batch) = collator(3, Form::Dense);
    let rows: [&[f32]; 2] = [&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]];
    collator.collate(&[0, 1], |i| RowView::Dense(rows[i]), &mut batch).unwrap();
    let CellValues::Dense(data) = &batch.values else { panic!("not dense") };
    let (place, capacity) = (data.as_ptr(), data.capacity());
    collator.collate(&[5], |_| RowView::Sparse(&[1], &[7.0]), &mut batch).unwrap();
    let CellValues::Dense(data) = &batch.values else { panic!("not dense") };
    assert_eq!((data.as_slice(), data.as_ptr(), data.capacity()), (&[0.0, 7.0, 0.0][..], place, capacity));
}

#[test]
fn the_logarithm_is_that_of_the_standard_library() {
    let mut values: Vec<f32> = (0..100).map(|value| value as f32).collect();
    log1p(&mut values);
    assert!(values.iter().enumerate().all(|(x, y)| (f64::from(*y) - (x as f64).ln_1p()).abs() < 1e-6));
}
