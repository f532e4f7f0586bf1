//! The loaders of rows (cells) and of graphs as a Python module: `expctl._native`, on which the package `expctl.data` in `python/`
//! stands.
//!
//! This crate only binds. What a batch of rows is, and in which order batches come, is decided in `cell-loader`; how rows are read, in
//! `anndata-io`; what a batch of a graph is, in `graph-loader`; what a data set of a graph is, in `datasets`. What a Python program
//! sees (names, defaults, `torch` and `numpy` arrays, `state_dict`) is decided in Python.
//!
//! ```text
//! NativeDataset   files, opened and joined        ──┐
//! NativeSampler   the rows of each batch          ──┼──► NativeStream: threads that build batches ──► NativeBatch ──► DLPack
//! ObsColumns      columns of obs that batches have ─┘                                                      │
//!                                                                                                          │
//! NativeGraphDataset   a store and a graph        ──┐                                                      │
//! NativeSampler        the samples of each batch  ──┼──► NativeStream ──► NativeGraphBatch ──► DLPack      │
//! NativeGraphForm      what a batch holds         ──┘                                          │           │
//!                                   buffers go back to the threads when Python has freed all arrays  ◄─────────┴───────────┘
//! ```
//!
//! Invariants: the GIL is released while anything is read or waited for. No thread of a stream ever takes the GIL. Arrays are not
//! copied: they are the buffers that a loader thread wrote, lent as DLPack capsules. No libtorch is linked.

mod batch;
mod batcher;
mod dataset;
mod dlpack;
mod error;
mod fork;
mod graph_batch;
mod graph_dataset;
mod graph_form;
mod interruptible;
mod lent;
mod obs;
mod sampler;
mod stream;
mod warnings;

use pyo3::prelude::*;

/// The native part of `expctl.data`.
#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    warnings::collect();
    module.add("DataError", module.py().get_type::<error::DataError>())?;
    module.add_class::<lent::LentArrays>()?;
    module.add_class::<batch::NativeBatch>()?;
    module.add_class::<dlpack::NativeTensor>()?;
    module.add_class::<dataset::NativeDataset>()?;
    module.add_class::<graph_batch::NativeGraphBatch>()?;
    module.add_class::<graph_dataset::NativeGraphDataset>()?;
    module.add_class::<graph_form::NativeGraphForm>()?;
    module.add_class::<obs::ObsColumns>()?;
    module.add_class::<sampler::NativeSampler>()?;
    module.add_class::<stream::NativeStream>()?;
    module.add_function(wrap_pyfunction!(dataset::configure_remote, module)?)?;
    module.add_function(wrap_pyfunction!(fork::after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(sampler::chunk_presets, module)?)?;
    Ok(())
}
