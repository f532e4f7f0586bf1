//! `SampleBatcher` builds the batches of a graph on the threads of a stream; `NativeGraphBatch` is one of them as a Python program gets it.

use std::sync::Arc;
use std::time::Instant;

use cell_loader::RowSampler;
use graph_loader::{CellGraph, GraphBatcher, GraphError, Records};
use loader_core::{Batcher, Loaded, LoaderOptions, Reader, Recycler};
use pyo3::prelude::*;

use crate::batcher::mapped;
use crate::error::graph_error;
use crate::graph_form::{GraphForm, NativeGraphForm, SampleBatch};
use crate::lent::{LendBatches, LentArrays};

/// Builds the batches of a [`GraphBatcher`], with the numbers of their samples.
#[derive(Clone)]
pub struct SampleBatcher {
    graphs: GraphBatcher,
    sampler: Arc<RowSampler>,
    form: GraphForm,
    graph: Arc<CellGraph>,
}

impl SampleBatcher {
    pub fn new(records: Arc<dyn Records>, form: &NativeGraphForm, sampler: Arc<RowSampler>) -> Self {
        let graphs = GraphBatcher::new(records, Arc::clone(&sampler), form.assembler.clone());
        Self { graphs, sampler, form: form.form, graph: Arc::clone(&form.graph) }
    }
}

impl Batcher for SampleBatcher {
    type Dataset = dyn Records;
    type Batch = SampleBatch;
    type Error = GraphError;

    fn dataset(&self) -> Arc<dyn Records> {
        self.graphs.dataset()
    }

    fn empty(&self) -> SampleBatch {
        let graph = Arc::clone(&self.graph);
        SampleBatch { batch: self.graphs.empty(), index: Vec::new(), form: self.form, graph }
    }

    fn clock(&self) -> Instant {
        self.graphs.clock()
    }

    fn bytes(batch: &SampleBatch) -> u64 {
        GraphBatcher::bytes(&batch.batch)
    }

    fn starting(&mut self, options: &LoaderOptions) {
        self.graphs.starting(options);
    }

    fn stop(&self, from: u64) {
        self.graphs.stop(from);
    }

    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        batch: SampleBatch,
    ) -> Result<Loaded<SampleBatch>, GraphError> {
        let SampleBatch { batch, mut index, form, graph } = batch;
        let loaded = self.graphs.build(reader, step, batch)?;
        index.clear();
        self.sampler.batch(step, &mut index);
        Ok(mapped(loaded, |batch| SampleBatch { batch, index, form, graph }))
    }
}

impl LendBatches for SampleBatcher {
    fn items(batch: &SampleBatch) -> usize {
        batch.index.len()
    }

    fn lend(py: Python<'_>, loaded: Loaded<SampleBatch>, recycler: Recycler<Self>) -> PyResult<Py<PyAny>> {
        let batch = NativeGraphBatch { samples: loaded.batch.index.len() };
        let lent = LentArrays::new(loaded, recycler, |batch| {
            let (form, graph) = (batch.form, Arc::clone(&batch.graph));
            let mut arrays = Vec::new();
            form.each_array(&graph, batch, |_, array| arrays.push(array));
            arrays
        });
        Ok(Py::new(py, PyClassInitializer::from(lent).add_subclass(batch))?.into_any())
    }

    fn exception(error: GraphError) -> PyErr {
        graph_error(error)
    }
}

/// A batch of B samples of a graph, in the memory that a loader thread wrote it to. Its arrays are those of its
/// [`NativeGraphForm`], in this order.
#[pyclass(name = "GraphBatch", module = "expctl._native", frozen, extends = LentArrays)]
pub struct NativeGraphBatch {
    /// Number of samples, B.
    #[pyo3(get)]
    samples: usize,
}

#[pymethods]
impl NativeGraphBatch {
    fn __len__(&self) -> usize {
        self.samples
    }
}
