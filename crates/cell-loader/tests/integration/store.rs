use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anndata_io::{AnnDataError, ArrayStore, CsrRows, Form, Labels, ReadRows, Resident, RowSelection, Rows};
use cell_loader::{CellBatchOptions, CellBatcher, CellError, CellValues, RowSampler, Sharding};
use loader_core::{Loader, LoaderOptions};

pub const GENES: usize = 23;

/// The value of a row in a column; 0 in three of four.
pub fn value(row: u64, column: usize) -> f32 {
    let mixed = (row * GENES as u64 + column as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    if mixed.is_multiple_of(4) { (row * 32 + column as u64 + 1) as f32 } else { 0.0 }
}

pub fn dense(row: u64) -> Vec<f32> {
    (0..GENES).map(|column| value(row, column)).collect()
}

/// Class of a row.
pub fn class(row: u64) -> i32 {
    (row % 5) as i32 - 1
}

/// Rows that are worked out. What is read of them is counted.
#[derive(Debug)]
pub struct Derived {
    pub rows: u64,
    pub form: Form,
    pub starts: Vec<u64>,
    pub run_rows: u64,
    pub resident: Option<CsrRows>,
    pub weights: Vec<f64>,
    /// Reading this row is an error, or a panic.
    pub bad: Option<u64>,
    pub panics: bool,
    pub unopenable: bool,
    pub read: Arc<AtomicU64>,
    /// Times that rows were asked for.
    pub fetches: Arc<AtomicU64>,
    /// Readers that were made.
    pub readers: Arc<AtomicU64>,
    pub genes: Vec<String>,
}

impl Derived {
    pub fn new(rows: u64, form: Form) -> Self {
        Self {
            rows,
            form,
            starts: vec![0],
            run_rows: 6,
            resident: None,
            weights: (0..rows).map(|row| (row % 3) as f64).collect(),
            bad: None,
            panics: false,
            unopenable: false,
            read: Arc::default(),
            fetches: Arc::default(),
            readers: Arc::default(),
            genes: (0..GENES).map(|gene| format!("g{gene}")).collect(),
        }
    }

    pub fn resident(rows: u64) -> Self {
        let mut all = Rows::Sparse(CsrRows::default());
        (0..rows).for_each(|row| append(row, &mut all));
        let Rows::Sparse(all) = all else { panic!("not sparse") };
        Self { resident: Some(all), ..Self::new(rows, Form::Sparse) }
    }
}

fn append(row: u64, out: &mut Rows) {
    match out {
        Rows::Sparse(rows) => {
            for column in 0..GENES {
                if value(row, column) != 0.0 {
                    rows.indices.push(column as i32);
                    rows.data.push(value(row, column));
                }
            }
            rows.indptr.push(rows.data.len() as u64);
        }
        Rows::Dense(rows) => rows.data.extend(dense(row)),
    }
}

impl ArrayStore for Derived {
    fn len(&self) -> u64 {
        self.rows
    }

    fn genes(&self) -> &[String] {
        &self.genes
    }

    fn form(&self) -> Form {
        self.form
    }

    fn run_rows(&self) -> u64 {
        self.run_rows
    }

    fn starts(&self) -> Vec<u64> {
        self.starts.clone()
    }

    fn stored_bytes(&self) -> u64 {
        0
    }

    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        if column != "kind" {
            return Err(AnnDataError::Other(format!("no column {column}").into()));
        }
        let categories = (0..4).map(|class| format!("c{class}")).collect();
        Ok(Labels { categories, codes: (0..self.rows).map(class).collect(), ..Labels::default() })
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        if column == "weight" {
            return Ok(self.weights.clone());
        }
        Err(AnnDataError::Other(format!("no column {column}").into()))
    }

    fn resident(&self) -> Option<Resident<'_>> {
        self.resident.as_ref().map(CsrRows::view).map(Resident::Csr)
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        if self.unopenable {
            return Err(AnnDataError::Other("cannot open".into()));
        }
        self.readers.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(DerivedReader { store: self, fetched: Vec::new() }))
    }
}

struct DerivedReader<'s> {
    store: &'s Derived,
    fetched: Vec<u64>,
}

impl ReadRows for DerivedReader<'_> {
    fn fetch(&mut self, wanted: &RowSelection<'_>, _: &mut Rows) -> Result<u64, AnnDataError> {
        self.fetched = match wanted {
            RowSelection::Rows(rows) => rows.to_vec(),
            RowSelection::Range(range) => range.clone().collect(),
        };
        if let Some(row) = self.fetched.iter().find(|row| Some(**row) == self.store.bad || **row >= self.store.rows) {
            assert!(!self.store.panics, "row {row} panics");
            return Err(AnnDataError::Other(format!("row {row} is bad").into()));
        }
        self.store.fetches.fetch_add(1, Ordering::SeqCst);
        self.store.read.fetch_add(self.fetched.len() as u64, Ordering::SeqCst);
        Ok(self.fetched.len() as u64)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        self.fetched.drain(..).for_each(|row| append(row, out));
        Ok(())
    }
}

/// The kinds of [`cell_loader::Draw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawKind {
    Sequential,
    Uniform,
    Weighted,
    Balanced,
    Chunked,
    ListedChunks,
}

/// All that the kinds of [`cell_loader::Draw`] have, so that tests can vary one thing.
#[derive(Clone, Debug)]
pub struct DrawSettings {
    pub draw: DrawKind,
    pub chunk_rows: u64,
    pub chunks: u64,
    pub by: String,
    pub rows: u64,
    /// Rows that are drawn by [`DrawKind::ListedChunks`].
    pub listed: Vec<u64>,
}

impl Default for DrawSettings {
    fn default() -> Self {
        Self { draw: DrawKind::Uniform, chunk_rows: 512, chunks: 32, by: String::new(), rows: 0, listed: Vec::new() }
    }
}

impl From<&DrawSettings> for cell_loader::Draw {
    fn from(sampler: &DrawSettings) -> Self {
        let DrawSettings { draw, chunk_rows, chunks, ref by, rows, ref listed } = *sampler;
        let column = by.clone();
        match draw {
            DrawKind::Sequential => Self::Sequential { chunk_rows },
            DrawKind::Uniform => Self::Uniform,
            DrawKind::Weighted => Self::Weighted { column, rows },
            DrawKind::Balanced => Self::Balanced { column, rows },
            DrawKind::Chunked => Self::Chunked { chunk_rows, chunks },
            DrawKind::ListedChunks => Self::ListedChunks { rows: listed.clone().into(), chunk_rows, chunks },
        }
    }
}

pub fn drawn(draw: DrawKind) -> DrawSettings {
    let by = match draw {
        DrawKind::Weighted => "weight",
        DrawKind::Balanced => "kind",
        _ => "",
    };
    // Gaps of a row, which are read, and of many, which are not.
    let listed = (0..90).filter(|row| row % 5 != 2 && !(30..50).contains(row)).collect();
    DrawSettings { draw, chunk_rows: 4, chunks: 3, by: by.into(), listed, ..DrawSettings::default() }
}

pub fn row_sampler(
    sampler: &DrawSettings,
    store: &dyn ArrayStore,
    sharding: Sharding,
    classes: Option<&Labels>,
) -> Result<RowSampler, CellError> {
    RowSampler::new(&sampler.into(), store, sharding, classes)
}

pub fn alone(batch_size: u64) -> Sharding {
    Sharding { seed: 7, rank: 0, world_size: 1, batch_size, drop_last: false }
}

pub fn settings(output: Form) -> CellBatchOptions {
    CellBatchOptions { output, ..CellBatchOptions::default() }
}

pub fn loader(
    store: Derived,
    sampler: &DrawSettings,
    sharding: Sharding,
    options: &CellBatchOptions,
    loader: LoaderOptions,
) -> Loader<CellBatcher> {
    let sampler = Arc::new(row_sampler(sampler, &store, sharding, None).unwrap());
    let labels = Labels::from_store(&store, &["kind".to_owned()]).unwrap();
    let batcher = CellBatcher::new(Arc::new(store), sampler, options, labels).unwrap();
    Loader::start(batcher, loader).unwrap()
}

pub fn options(workers: u32, steps: std::ops::Range<u64>) -> LoaderOptions {
    LoaderOptions { workers, first: steps.start, steps: steps.end, ..LoaderOptions::default() }
}

/// The values of a batch, a dense row each.
pub fn rows_of(values: &CellValues, columns: usize) -> Vec<Vec<f32>> {
    match values {
        CellValues::Dense(data) => data.chunks(columns).map(<[f32]>::to_vec).collect(),
        CellValues::Sparse { crow, col, values } => {
            assert_eq!((col.len(), values.len()), (values.len(), *crow.last().unwrap() as usize));
            crow.windows(2)
                .map(|row| {
                    let mut dense = vec![0.0; columns];
                    let places = row[0] as usize..row[1] as usize;
                    assert!(col[places.clone()].windows(2).all(|pair| pair[0] < pair[1]), "columns ascend");
                    for place in places {
                        dense[col[place] as usize] = values[place];
                    }
                    dense
                })
                .collect()
        }
    }
}
