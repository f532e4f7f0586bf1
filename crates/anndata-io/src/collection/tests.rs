//! Collections of stores whose values are computed: rows, labels and errors, compared with a lookup of each row in its store.

use std::cell::Cell;
use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use crate::collection::reader::CollectionReader;
use crate::{
    AnnDataError, Annotation, ArrayStore, Collection, CsrRows, DenseRows, Form, GeneJoin, LabelKind, Labels,
    MemoryStore, ReadRows, RowSelection, Rows, RowsView,
};

/// A store whose values say which file, row and gene they are of.
#[derive(Debug)]
struct Made {
    number: usize,
    rows: usize,
    genes: Vec<String>,
    form: Form,
    /// Whether rows come only when they are decoded, not when they are fetched.
    late: bool,
}

impl Made {
    /// The value of a gene in a row; a third is not stored.
    fn value(&self, row: usize, gene: &str) -> f32 {
        let letter = gene.bytes().next().map_or(0, usize::from);
        let value = self.number * 10_000 + row * 100 + letter;
        if value.is_multiple_of(3) { 0.0 } else { value as f32 }
    }
}

impl ArrayStore for Made {
    fn len(&self) -> u64 {
        self.rows as u64
    }
    fn genes(&self) -> &[String] {
        &self.genes
    }
    fn form(&self) -> Form {
        self.form
    }
    fn stored_bytes(&self) -> u64 {
        1
    }
    fn max_values(&self) -> Option<u64> {
        (!self.late).then_some((self.rows * self.genes.len()) as u64)
    }
    fn name(&self) -> String {
        format!("file {}", self.number)
    }
    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        if column == "mixed" && self.number == 1 {
            let categories = vec!["1.0".to_owned()];
            return Ok(Labels { categories, kind: LabelKind::Float, codes: vec![0; self.rows] });
        }
        let categories = vec![format!("own {}", self.number), "common".to_owned()];
        Ok(Labels { categories, codes: (0..self.rows as i32).map(|row| row % 3 - 1).collect(), ..Labels::default() })
    }
    fn columns(&self) -> Result<Vec<String>, AnnDataError> {
        Ok(vec!["kind".to_owned(), format!("only in {}", self.number)])
    }
    fn numbers(&self, _: &str) -> Result<Vec<f64>, AnnDataError> {
        Ok((0..self.rows).map(|row| (self.number * 100 + row) as f64).collect())
    }
    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(Box::new(MadeReader { store: self, wanted: Vec::new(), before: 0, seen: Cell::new(true) }))
    }
}

struct MadeReader<'m> {
    store: &'m Made,
    wanted: Vec<u64>,
    before: usize,
    seen: Cell<bool>,
}

impl MadeReader<'_> {
    fn add(&mut self, out: &mut Rows) {
        let genes = &self.store.genes;
        match out {
            Rows::Sparse(out) => {
                assert_eq!(out.indices.len(), self.before, "nothing was added since the fetch");
                for row in self.wanted.drain(..) {
                    for (gene, name) in genes.iter().enumerate() {
                        let value = self.store.value(row as usize, name);
                        if value != 0.0 {
                            out.indices.push(gene as i32);
                            out.data.push(value);
                        }
                    }
                    out.indptr.push(out.data.len() as u64);
                }
            }
            Rows::Dense(out) => {
                assert_eq!(out.data.len(), self.before, "nothing was added since the fetch");
                out.columns = genes.len();
                for row in self.wanted.drain(..) {
                    out.data.extend(genes.iter().map(|name| self.store.value(row as usize, name)));
                }
            }
        }
    }
}

impl ReadRows for MadeReader<'_> {
    fn fetch(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        assert!(self.wanted.is_empty(), "a fetch comes after the decode of the one before");
        self.wanted = match wanted {
            RowSelection::Rows(rows) => rows.to_vec(),
            RowSelection::Range(range) => range.clone().collect(),
        };
        assert!(self.wanted.iter().all(|row| *row < self.store.len()));
        self.before = match out {
            Rows::Sparse(out) => out.indices.len(),
            Rows::Dense(out) => out.data.len(),
        };
        self.seen.set(false);
        let count = self.wanted.len() as u64;
        if !self.store.late {
            self.add(out);
        }
        Ok(count)
    }
    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        self.add_late(out);
        Ok(())
    }
    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.seen.set(true);
        Ok(())
    }
    fn work_bytes(&self) -> u64 {
        500
    }
}

impl MadeReader<'_> {
    fn add_late(&mut self, out: &mut Rows) {
        if self.store.late {
            self.add(out);
        }
    }
}

impl Drop for MadeReader<'_> {
    fn drop(&mut self) {
        // A reader is closed only after its file was checked for changes.
        assert!(self.seen.get() || std::thread::panicking());
    }
}

fn genes() -> impl Strategy<Value = Vec<String>> {
    let letters: Vec<String> = ('a'..='l').map(String::from).collect();
    subsequence(letters, 0..=12).prop_shuffle()
}

fn store(number: usize, rows: usize, genes: Vec<String>, dense: bool, late: bool) -> Made {
    Made { number, rows, genes, form: if dense { Form::Dense } else { Form::Sparse }, late }
}

/// The expected values of a row, for these genes.
fn expected(stores: &[(usize, usize, Vec<String>, bool, bool)], genes: &[String], row: u64) -> Vec<f32> {
    let mut row = row as usize;
    for (number, rows, own, dense, late) in stores {
        if row < *rows {
            let made = store(*number, *rows, own.clone(), *dense, *late);
            return genes.iter().map(|gene| if own.contains(gene) { made.value(row, gene) } else { 0.0 }).collect();
        }
        row -= rows;
    }
    panic!("row beyond the end")
}

fn dense(rows: &Rows, count: usize, columns: usize) -> Vec<Vec<f32>> {
    match rows.view() {
        RowsView::Sparse(rows) => {
            assert_eq!(rows.indptr.len(), count + 1);
            (0..count)
                .map(|row| {
                    let (indices, data) = rows.row(row);
                    assert!(indices.is_sorted_by(|a, b| a < b));
                    let mut dense = vec![0.0; columns];
                    indices.iter().zip(data).for_each(|(index, value)| dense[*index as usize] = *value);
                    dense
                })
                .collect()
        }
        RowsView::Dense { columns, data } => {
            assert_eq!(data.len(), count * columns);
            (0..count).map(|row| data[row * columns..(row + 1) * columns].to_vec()).collect()
        }
    }
}

fn empty(form: Form) -> Rows {
    match form {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows::default()),
    }
}

proptest! {
    #[test]
    fn rows_are_those_of_the_files(
        parts in vec((0..5_usize, genes(), any::<bool>(), any::<bool>()), 1..6),
        same in any::<bool>(),
        all_dense in any::<bool>(),
        outer in any::<bool>(),
        some in vec(any::<Index>(), 0..6),
        calls in vec((any::<bool>(), vec(any::<Index>(), 0..20)), 1..6),
        kept in 1..5_usize,
        most_bytes in prop_oneof![Just(u64::MAX), 0..2000_u64],
    ) {
        let parts: Vec<_> = parts
            .iter()
            .enumerate()
            .map(|(number, (rows, genes, dense, late))| {
                (number, *rows, if same { parts[0].1.clone() } else { genes.clone() }, *dense || all_dense, *late)
            })
            .collect();
        let boxed = || -> Vec<Box<dyn ArrayStore>> {
            parts
                .iter()
                .map(|(number, rows, genes, dense, late)| -> Box<dyn ArrayStore> {
                    Box::new(store(*number, *rows, genes.clone(), *dense, *late))
                })
                .collect()
        };
        let join = if outer { GeneJoin::Outer } else { GeneJoin::Inner };
        let mut collection = Collection::new(boxed(), join, &[]).unwrap();
        // Some of its genes, in any order.
        let mut asked: Vec<String> = Vec::new();
        for index in &some {
            if !collection.genes().is_empty() {
                let gene = index.get(collection.genes());
                if !asked.contains(gene) {
                    asked.push(gene.clone());
                }
            }
        }
        if !asked.is_empty() {
            collection = Collection::new(boxed(), join, &asked).unwrap();
            prop_assert_eq!(collection.genes(), asked.as_slice());
        }
        let genes = collection.genes().to_vec();
        let memory = MemoryStore::read(Box::new(Collection::new(boxed(), join, &genes).unwrap()), 2, u64::MAX);
        let mut reader = CollectionReader::new(&collection, kept, most_bytes);
        let mut all = empty(collection.form());
        let mut wanted_so_far = Vec::new();
        for (range, rows) in &calls {
            if collection.is_empty() {
                break;
            }
            let rows: Vec<u64> = rows.iter().map(|row| row.index(collection.len() as usize) as u64).collect();
            let wanted = match (range, rows.as_slice()) {
                (true, [a, b, ..]) => {
                    let range = *a.min(b)..*a.max(b) + 1;
                    wanted_so_far.extend(range.clone());
                    RowSelection::Range(range)
                }
                _ => {
                    wanted_so_far.extend(&rows);
                    RowSelection::Rows(&rows)
                }
            };
            reader.fetch(&wanted, &mut all).unwrap();
            reader.decode(&mut all).unwrap();
            reader.unchanged().unwrap();
        }
        let expected: Vec<Vec<f32>> = wanted_so_far.iter().map(|row| expected(&parts, &genes, *row)).collect();
        prop_assert_eq!(dense(&all, wanted_so_far.len(), genes.len()), expected.clone());
        // The same from memory.
        if !genes.is_empty() {
            let memory = memory.unwrap();
            prop_assert!(memory.resident().is_some());
            let mut rows = Rows::Sparse(CsrRows::default());
            let mut reader = memory.reader().unwrap();
            reader.fetch(&RowSelection::Rows(&wanted_so_far), &mut rows).unwrap();
            prop_assert_eq!(dense(&rows, wanted_so_far.len(), genes.len()), expected);
        }
    }
}

fn three() -> Vec<Box<dyn ArrayStore>> {
    let genes = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    vec![
        Box::new(store(0, 4, genes("CD3E CD19 GAPDH"), false, true)),
        Box::new(store(1, 2, genes("CD19 CD3E MALAT1"), false, false)),
        Box::new(store(2, 3, genes("MALAT1 CD19 CD3E"), true, false)),
    ]
}

#[test]
fn labels_are_joined_by_name() {
    let collection = Collection::new(three(), GeneJoin::Inner, &[]).unwrap();
    let labels = collection.labels("kind").unwrap();
    assert_eq!(labels.categories, ["own 0", "common", "own 1", "own 2"]);
    assert_eq!(labels.codes, [-1, 0, 1, -1, -1, 2, -1, 3, 1]);
    let e = collection.labels("mixed").unwrap_err().to_string();
    assert!(e.starts_with("classes of \"mixed\" are text in file 0, but floats in file 1"), "{e}");
    assert_eq!(collection.numbers("depth").unwrap(), [0.0, 1.0, 2.0, 3.0, 100.0, 101.0, 200.0, 201.0, 202.0]);
    assert_eq!(collection.annotation("kind").unwrap(), Annotation::Classes(labels));
    assert_eq!((collection.columns().unwrap(), collection.row_names().unwrap()), (vec!["kind".to_owned()], None));
    assert_eq!(collection.starts(), [0, 4, 6, 9]);
    assert_eq!(collection.name(), "file 0 and 2 more");
}

#[test]
fn a_gene_that_is_not_there_is_said_with_its_file() {
    let ask = |join, genes: &[&str]| {
        let genes: Vec<String> = genes.iter().map(|gene| (*gene).to_owned()).collect();
        Collection::new(three(), join, &genes).map(|collection| collection.genes().to_vec()).map_err(|e| e.to_string())
    };
    let e = ask(GeneJoin::Inner, &["CD19", "GAPDH"]).unwrap_err();
    assert!(e.starts_with("file 1 has no gene \"GAPDH\""), "{e}");
    assert!(e.ends_with("the genes are CD19, CD3E, MALAT1"), "{e}");
    let e = ask(GeneJoin::Inner, &["CD3e"]).unwrap_err();
    assert!(e.contains("file 0 has no gene \"CD3e\"; is \"CD3E\" meant?"), "{e}");
    let e = ask(GeneJoin::Outer, &["CD19", "CD4"]).unwrap_err();
    assert!(e.starts_with("no file has a gene \"CD4\""), "{e}");
    let e = ask(GeneJoin::Outer, &["CD19", "CD19"]).unwrap_err();
    assert_eq!(e, "gene \"CD19\" is asked for twice");
    assert_eq!(ask(GeneJoin::Outer, &["MALAT1", "GAPDH"]).unwrap(), ["MALAT1", "GAPDH"]);
    assert_eq!(
        Collection::new(Vec::new(), GeneJoin::Inner, &[]).unwrap_err().to_string(),
        "a collection needs one file at least"
    );
}

#[test]
fn rows_beyond_the_end_are_refused() {
    let collection = Collection::new(three(), GeneJoin::Inner, &[]).unwrap();
    let mut reader = collection.reader().unwrap();
    let mut rows = Rows::Sparse(CsrRows::default());
    for wanted in [RowSelection::Rows(&[3, 9]), RowSelection::Range(5..10), RowSelection::Range(11..11)] {
        let e = reader.fetch(&wanted, &mut rows).unwrap_err().to_string();
        assert!(e.contains("was asked for, and there are 9 rows in file 0 and 2 more"), "{e}");
    }
    let e = reader.fetch(&RowSelection::Rows(&[1]), &mut Rows::Dense(DenseRows::default())).unwrap_err().to_string();
    assert!(e.contains("another form"), "{e}");
    // The reader goes on.
    reader.fetch(&RowSelection::Rows(&[8, 0]), &mut rows).unwrap();
    reader.decode(&mut rows).unwrap();
    reader.unchanged().unwrap();
    let Rows::Sparse(rows) = rows else { panic!() };
    assert_eq!(rows.len(), 2);
    let numbers: HashMap<_, _> = rows.view().row(0).0.iter().zip(rows.view().row(0).1).collect();
    assert!(numbers.values().all(|value| **value >= 20_000.0), "{numbers:?}");
}
