//! `NativeSampler` turns the arguments of a Python program into a `cell_loader::RowSampler`, which draws the rows (cells) of files and the samples
//! of a graph alike.

use std::sync::Arc;

use anndata_io::ArrayStore;
use cell_loader::{CellError, Draw, RowSampler, Sharding};
use expctl_settings::SamplerPreset;
use pyo3::prelude::*;

use crate::dataset::NativeDataset;
use crate::error::{BindingError, cell_error};
use crate::fork::Running;
use crate::graph_dataset::{NativeGraphDataset, SampleRows};

/// Draws the rows of each batch: `cell_loader::RowSampler`.
#[pyclass(name = "Sampler", module = "expctl._native", frozen)]
pub struct NativeSampler {
    pub sampler: Arc<RowSampler>,
}

/// What rows or samples are drawn of.
#[derive(FromPyObject)]
enum Drawn<'py> {
    Rows(PyRef<'py, NativeDataset>),
    Samples(PyRef<'py, NativeGraphDataset>),
}

const ROW: &str = "row";
const SAMPLE: &str = "sample";

impl Drawn<'_> {
    /// What a number stands for.
    fn item(&self) -> &'static str {
        match self {
            Self::Rows(_) => ROW,
            Self::Samples(_) => SAMPLE,
        }
    }

    fn store(&self) -> Arc<dyn ArrayStore> {
        match self {
            Self::Rows(dataset) => Arc::clone(&dataset.store),
            Self::Samples(dataset) => Arc::new(SampleRows::of(dataset)),
        }
    }
}

/// Numbers of rows or samples (`item`) from the bytes of int64 numbers in the order of this machine.
fn rows_of(bytes: &[u8], item: &'static str) -> Result<Arc<[u64]>, BindingError> {
    let (rows, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(BindingError::RowBytes { bytes: bytes.len() });
    }
    rows.iter()
        .map(|row| {
            let row = i64::from_ne_bytes(*row);
            u64::try_from(row).map_err(|_| BindingError::NegativeRow { item, row })
        })
        .collect()
}

/// How known systems draw by chunks: of each its name, the rows of a chunk (0: as many as the files store together), and the chunks that are
/// shuffled together.
#[pyfunction]
pub fn chunk_presets() -> Vec<(&'static str, u64, u64)> {
    let of = |preset: SamplerPreset| {
        let (rows, chunks) = preset.chunks();
        (preset.name(), rows, chunks)
    };
    SamplerPreset::ALL.into_iter().map(of).collect()
}

#[pymethods]
impl NativeSampler {
    /// A sampler of the rows or samples of a data set. `listed` and `ends` are the bytes of int64 numbers.
    #[new]
    #[pyo3(signature = (
        dataset, kind, *, batch_size, drop_last, seed, rank, world_size, column="", rows=0, chunk_rows=0, chunks=0,
        listed=None, ends=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "named arguments of Python")]
    fn new(
        py: Python<'_>,
        dataset: Drawn<'_>,
        kind: &str,
        batch_size: u64,
        drop_last: bool,
        seed: u64,
        rank: u32,
        world_size: u32,
        column: &str,
        rows: u64,
        chunk_rows: u64,
        chunks: u64,
        listed: Option<&[u8]>,
        ends: Option<&[u8]>,
    ) -> PyResult<Self> {
        let column = column.to_owned();
        let item = dataset.item();
        let listed = || rows_of(listed.unwrap_or_default(), item);
        let draw = match kind {
            "sequential" => Draw::Sequential { chunk_rows },
            "uniform" => Draw::Uniform,
            "weighted" => Draw::Weighted { column, rows },
            "balanced" => Draw::Balanced { column, rows },
            "chunked" => Draw::Chunked { chunk_rows, chunks },
            "listed chunks" => Draw::ListedChunks { rows: listed()?, chunk_rows, chunks },
            "listed" => Draw::Listed { rows: listed()?, shuffle: false },
            "shuffled" => Draw::Listed { rows: listed()?, shuffle: true },
            "batches" => Draw::Batches { rows: listed()?, ends: rows_of(ends.unwrap_or_default(), item)? },
            _ => return Err(BindingError::UnknownDraw { kind: kind.to_owned() }.into()),
        };
        let sharding = Sharding { seed, rank, world_size, batch_size, drop_last };
        let running = Running::begin()?;
        let store = dataset.store();
        drop(dataset);
        // Columns of weights and classes are read here.
        let sampler =
            py.detach(|| RowSampler::new(&draw, store.as_ref(), sharding, None)).map_err(|error| match error {
                CellError::ListedRow { row, rows } if item == SAMPLE => {
                    BindingError::ListedSample { sample: row, samples: rows }.into()
                }
                other => cell_error(other),
            })?;
        drop(running);
        Ok(Self { sampler: Arc::new(sampler) })
    }

    /// Batches of an epoch, on this rank.
    #[getter]
    fn batches_per_epoch(&self) -> u64 {
        self.sampler.batches_per_epoch()
    }

    /// Rows that are never drawn because they have no class.
    #[getter]
    fn left_out(&self) -> u64 {
        self.sampler.left_out()
    }

    /// The rows of the batch of a step, counted from 0 over all epochs.
    fn batch(&self, step: u64) -> Vec<u64> {
        let mut rows = Vec::new();
        self.sampler.batch(step, &mut rows);
        rows
    }
}
