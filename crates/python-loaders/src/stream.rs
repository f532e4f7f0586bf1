//! `NativeStream` is the iterator behind a Python loop: it starts the threads, waits for the next batch, and ends the threads.
//! Invariant: the GIL is released during every wait, Ctrl-C ends the wait, and a forked child never touches the threads of its parent.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anndata_io::Form;
use cell_loader::{CellBatchOptions, CellBatcher};
use loader_core::{Loaded, Loader, LoaderOptions, NextBatch, Recycler, Stage, StageTimes};
use pyo3::prelude::*;

use crate::batcher::LoaderBatcher;
use crate::dataset::NativeDataset;
use crate::error::BindingError;
use crate::fork::Running;
use crate::graph_batch::SampleBatcher;
use crate::graph_dataset::NativeGraphDataset;
use crate::graph_form::NativeGraphForm;
use crate::interruptible::SIGNAL_INTERVAL;
use crate::lent::LendBatches;
use crate::obs::ObsColumns;
use crate::sampler::NativeSampler;
use crate::warnings;

/// Batches that a thread may be ahead where the program does not say how many.
const PREFETCH: u32 = 2;
/// Maximum bytes of the batches that are ahead then, but for one for each thread and one more. Sparse batches of some hundred rows are far below
/// it; dense ones of 20,000 genes have 10 MB, and are built in a millisecond.
const AHEAD_BYTES: u64 = 32 << 20;
/// How long the end of the threads is waited for. One that waits for a server ends later, by itself.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// The batches of some steps, in order, built by threads.
#[pyclass(name = "Stream", module = "expctl._native", frozen)]
pub struct NativeStream(Box<dyn Stream>);

/// A [`BatchStream`] of any batches.
trait Stream: Send + Sync {
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>>;
    fn stop(&self, py: Python<'_>);
    fn totals(&self) -> StreamTotals;
}

/// A loader and what its batches cost.
struct BatchStream<B: LendBatches> {
    /// `None` after the end.
    loader: Mutex<Option<RunningLoader<B>>>,
    recycler: Recycler<B>,
    totals: Mutex<StreamTotals>,
    process: u32,
}

struct RunningLoader<B: LendBatches> {
    loader: Loader<B>,
    _running: Running,
}

/// Sums over the batches of a stream.
#[derive(Clone, Copy, Default)]
struct StreamTotals {
    batches: u64,
    items: u64,
    bytes_read: u64,
    busy: StageTimes,
    exposed: StageTimes,
}

impl StreamTotals {
    fn add<B: LendBatches>(&mut self, loaded: &Loaded<B::Batch>) {
        self.batches += 1;
        self.items += B::items(&loaded.batch) as u64;
        self.bytes_read += loaded.bytes_read;
        let busy = loaded.busy();
        for stage in Stage::ALL {
            self.busy[stage] += busy[stage];
            self.exposed[stage] += loaded.exposed[stage];
        }
    }
}

/// No critical section here panics halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a call of [`BatchStream::poll`] found.
enum Polled<B: LendBatches> {
    Batch(Box<Loaded<B::Batch>>),
    Failed(B::Error),
    Waiting,
    End,
}

impl<B: LendBatches> BatchStream<B> {
    /// Start a loader of the batches that `batcher` makes.
    fn start(
        py: Python<'_>,
        batcher: impl FnOnce() -> Result<B, B::Error> + Send,
        options: LoaderOptions,
    ) -> PyResult<Self> {
        let running = Running::begin()?;
        let loader = py.detach(|| Loader::start(batcher()?, options)).map_err(B::exception)?;
        let recycler = loader.recycler();
        Ok(Self {
            loader: Mutex::new(Some(RunningLoader { loader, _running: running })),
            recycler,
            totals: Mutex::default(),
            process: std::process::id(),
        })
    }

    /// Wait for a batch, but not for long.
    fn poll(&self) -> Polled<B> {
        let mut loader = lock(&self.loader);
        let Some(running) = loader.as_mut() else { return Polled::End };
        match running.loader.poll_batch(SIGNAL_INTERVAL) {
            NextBatch::Batch(loaded) => Polled::Batch(loaded),
            NextBatch::Failed(error) => Polled::Failed(error),
            NextBatch::Waiting => Polled::Waiting,
            NextBatch::End => Polled::End,
        }
    }

    /// # Errors
    /// [`BindingError::Forked`].
    fn check_process(&self) -> Result<(), BindingError> {
        let here = std::process::id();
        if here == self.process { Ok(()) } else { Err(BindingError::Forked { started: self.process, here }) }
    }
}

impl<B: LendBatches> Stream for BatchStream<B> {
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.check_process()?;
        // Before a batch is taken, which would be lost with an exception.
        warnings::emit(py)?;
        loop {
            match py.detach(|| self.poll()) {
                Polled::Batch(loaded) => {
                    lock(&self.totals).add::<B>(&loaded);
                    return B::lend(py, *loaded, self.recycler.clone()).map(Some);
                }
                Polled::Failed(error) => return Err(B::exception(error)),
                Polled::End => return Ok(None),
                Polled::Waiting => py.check_signals()?,
            }
        }
    }

    fn stop(&self, py: Python<'_>) {
        if self.process != std::process::id() {
            return;
        }
        py.detach(|| {
            let loader = lock(&self.loader).take();
            if let Some(loader) = loader {
                end(loader);
            }
        });
    }

    fn totals(&self) -> StreamTotals {
        *lock(&self.totals)
    }
}

impl<B: LendBatches> Drop for BatchStream<B> {
    fn drop(&mut self) {
        // In a forked child a thread that is not there may hold the lock.
        let loader = self.loader.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(loader) = loader else { return };
        if self.process == std::process::id() {
            end(loader);
        } else {
            // Its threads are not there to be waited for, and its locks may be held for ever.
            std::mem::forget(loader);
        }
    }
}

/// End the threads of a loader. Waits for them up to [`STOP_LIMIT`].
fn end<B: LendBatches>(loader: RunningLoader<B>) {
    let (done, is_done) = channel();
    let end = move || {
        drop(loader);
        // Nobody waits any more after the limit.
        let _ = done.send(());
    };
    // Without a thread the closure, and the loader with it, is dropped here.
    if std::thread::Builder::new().name("loader-end".to_owned()).spawn(end).is_ok() {
        let _ = is_done.recv_timeout(STOP_LIMIT);
    }
}

#[pymethods]
impl NativeStream {
    /// Start `threads` threads (0 builds each batch when it is asked for) that build the batches of rows of the steps from `first` up
    /// to `steps`, each thread `prefetch` of them ahead; without it two, or fewer of large batches. `more` are matrices with the same rows
    /// that a batch has beside the first, and whether they are CSR there.
    #[new]
    #[pyo3(signature = (dataset, sampler, columns, more, *, sparse, normalize, log1p, threads, prefetch, first, steps))]
    #[expect(clippy::too_many_arguments, reason = "named arguments of Python")]
    fn new(
        py: Python<'_>,
        dataset: &NativeDataset,
        sampler: &NativeSampler,
        columns: &ObsColumns,
        more: Vec<(PyRef<'_, NativeDataset>, bool)>,
        sparse: bool,
        normalize: f64,
        log1p: bool,
        threads: u32,
        prefetch: Option<u32>,
        first: u64,
        steps: u64,
    ) -> PyResult<Self> {
        let (labels, numbers) = (Arc::clone(&columns.labels), Arc::clone(&columns.numbers));
        let of_first = CellBatchOptions { normalize, log1p, ..options(dataset, sparse) };
        let (store, sampler) = (Arc::clone(&dataset.store), Arc::clone(&sampler.sampler));
        let more: Vec<_> =
            more.iter().map(|(matrix, sparse)| (Arc::clone(&matrix.store), options(matrix, *sparse))).collect();
        let batcher = || {
            // First, so that its clock is the earliest: times of the other matrices are moved to it.
            let cells = CellBatcher::new(store, Arc::clone(&sampler), &of_first, labels)?;
            let matrix = |(store, options)| CellBatcher::new(store, Arc::clone(&sampler), &options, Arc::default());
            let more = more.into_iter().map(matrix).collect::<Result<_, _>>()?;
            Ok(LoaderBatcher { cells, more, numbers })
        };
        let stream = BatchStream::start(py, batcher, loader_options(threads, prefetch, first, steps))?;
        Ok(Self(Box::new(stream)))
    }

    /// As the constructor, of batches of samples of a graph.
    #[staticmethod]
    #[pyo3(signature = (dataset, form, sampler, *, threads, prefetch, first, steps))]
    #[expect(clippy::too_many_arguments, reason = "named arguments of Python")]
    fn of_graphs(
        py: Python<'_>,
        dataset: &NativeGraphDataset,
        form: &NativeGraphForm,
        sampler: &NativeSampler,
        threads: u32,
        prefetch: Option<u32>,
        first: u64,
        steps: u64,
    ) -> PyResult<Self> {
        let batcher = SampleBatcher::new(Arc::clone(&dataset.records), form, Arc::clone(&sampler.sampler));
        let stream = BatchStream::start(py, || Ok(batcher), loader_options(threads, prefetch, first, steps))?;
        Ok(Self(Box::new(stream)))
    }

    /// The next batch; `None` after the last. The GIL is released while it is waited for, and Ctrl-C ends the wait.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.0.next(py)
    }

    /// End the threads.
    fn stop(&self, py: Python<'_>) {
        self.0.stop(py);
    }

    /// Batches, rows or samples, and bytes read so far.
    fn counts(&self) -> (u64, u64, u64) {
        let totals = self.0.totals();
        (totals.batches, totals.items, totals.bytes_read)
    }

    /// For each stage, in order: its name, the time that threads worked on it, summed over threads, and the time that the program
    /// waited for it, in ns.
    fn stages(&self) -> Vec<(&'static str, u64, u64)> {
        let totals = self.0.totals();
        Stage::ALL.iter().map(|stage| (stage.name(), totals.busy[*stage], totals.exposed[*stage])).collect()
    }
}

/// A matrix as it is stored.
fn options(dataset: &NativeDataset, sparse: bool) -> CellBatchOptions {
    let output = if sparse { Form::Sparse } else { Form::Dense };
    CellBatchOptions { genes: dataset.genes.clone(), output, ..CellBatchOptions::default() }
}

fn loader_options(threads: u32, prefetch: Option<u32>, first: u64, steps: u64) -> LoaderOptions {
    let (prefetch_factor, ahead_bytes) = prefetch.map_or((PREFETCH, AHEAD_BYTES), |prefetch| (prefetch, 0));
    LoaderOptions { workers: threads, prefetch_factor, first, steps, ahead_bytes, ..LoaderOptions::default() }
}
