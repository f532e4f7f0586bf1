//! `LentArrays` lends the buffers of a batch to Python without a copy.
//! Invariant: a buffer goes back to its stream when the last array of its batch is freed, and not before; in a forked child it is freed instead.

use std::fmt::Write as _;
use std::sync::Arc;

use loader_core::{Batcher, Dataset, Loaded, Recycler, Stage, StageTimes};
use pyo3::prelude::*;

use crate::dlpack::{ArrayView, NativeTensor, Owner};
use crate::error::BindingError;

/// A batcher whose batches are lent to Python.
pub trait LendBatches: Batcher<Batch: Sync, Dataset: Dataset<Reader<'static>: Send> + Send + Sync> {
    /// Rows or samples of a batch.
    fn items(batch: &Self::Batch) -> usize;

    /// The object that a program sees.
    ///
    /// # Errors
    /// Python has no memory for it.
    fn lend(py: Python<'_>, loaded: Loaded<Self::Batch>, recycler: Recycler<Self>) -> PyResult<Py<PyAny>>;

    /// The exception for an error of the batcher.
    fn exception(error: Self::Error) -> PyErr;
}

/// The buffers of a batch. When the last array of them is freed, they go back to the threads of their stream.
struct LentBuffers<B: Batcher> {
    /// `None` after it was given back.
    batch: Option<B::Batch>,
    recycler: Recycler<B>,
    process: u32,
}

impl<B: Batcher> Drop for LentBuffers<B> {
    fn drop(&mut self) {
        let Some(batch) = self.batch.take() else { return };
        if self.process == std::process::id() {
            self.recycler.recycle(batch);
        }
        // In a forked child a thread that is not there may hold the lock of the pool: the memory is freed instead.
    }
}

/// The arrays of a batch, in the memory that a loader thread wrote them to, and what the batch cost.
#[pyclass(name = "LentArrays", module = "expctl._native", frozen, subclass)]
pub struct LentArrays {
    arrays: Vec<ArrayView>,
    owner: Owner,
    /// The epoch of the batch.
    #[pyo3(get)]
    epoch: u64,
    /// The step of the batch, counted over all epochs.
    #[pyo3(get)]
    step: u64,
    /// Bytes that were read for it from the files.
    #[pyo3(get)]
    bytes_read: u64,
    /// Bytes of all arrays but the row or sample numbers.
    #[pyo3(get)]
    nbytes: u64,
    items: usize,
    busy: StageTimes,
    exposed: StageTimes,
}

impl LentArrays {
    /// Lend the arrays that `views` finds in a batch.
    pub fn new<B: LendBatches>(
        loaded: Loaded<B::Batch>,
        recycler: Recycler<B>,
        views: impl FnOnce(&mut B::Batch) -> Vec<ArrayView>,
    ) -> Self {
        let (busy, nbytes, items) = (loaded.busy(), B::bytes(&loaded.batch), B::items(&loaded.batch));
        let Loaded { mut batch, epoch, step, bytes_read, exposed, .. } = loaded;
        let arrays = views(&mut batch);
        // The vectors are not touched again before they are given back, so what the views point to does not move.
        let owner = Arc::new(LentBuffers { batch: Some(batch), recycler, process: std::process::id() });
        Self { arrays, owner, epoch, step, bytes_read, nbytes, items, busy, exposed }
    }

    /// # Errors
    /// [`BindingError::NoArray`].
    pub fn array(&self, index: usize) -> Result<&ArrayView, BindingError> {
        self.arrays.get(index).ok_or(BindingError::NoArray { index, arrays: self.arrays.len() })
    }
}

#[pymethods]
impl LentArrays {
    /// A DLPack capsule of an array, to be taken once.
    fn capsule<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        self.array(index)?.capsule(py, Arc::clone(&self.owner), false)
    }

    /// An array, for `from_dlpack`.
    fn tensor(&self, index: usize) -> PyResult<NativeTensor> {
        Ok(NativeTensor::new(*self.array(index)?, Arc::clone(&self.owner)))
    }

    /// For each stage, in order: its name, the time that threads worked on it for this batch, summed over threads, and the time that
    /// the program waited for it, in ns.
    fn stages(&self) -> Vec<(&'static str, u64, u64)> {
        Stage::ALL.iter().map(|stage| (stage.name(), self.busy[*stage], self.exposed[*stage])).collect()
    }

    /// What loading the batch cost, as a step of the program records it: the members `busy` and `exposed` of a JSON object, ns of each
    /// stage that has any; rows or samples; bytes read; bytes of its arrays. `waited` is how long the step waited for the batch, ns: what
    /// the stages do not explain of it is *other*.
    fn record(&self, waited: u64) -> (String, usize, u64, u64) {
        let mut exposed = self.exposed;
        exposed[Stage::Other] += waited.saturating_sub(exposed.total());
        let times = format!(r#""busy":{},"exposed":{}"#, json(&self.busy), json(&exposed));
        (times, self.items, self.bytes_read, self.nbytes)
    }
}

/// A JSON object of the stages that took any time, ns.
fn json(times: &StageTimes) -> String {
    let mut text = String::from("{");
    for (stage, ns) in times.iter().filter(|(_, ns)| *ns > 0) {
        let comma = if text.len() > 1 { "," } else { "" };
        // Writing into a string does not fail.
        let _ = write!(text, r#"{comma}"{}":{ns}"#, stage.name());
    }
    text.push('}');
    text
}
