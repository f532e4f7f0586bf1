//! Tests of private items: layers against the scripts that rebuild them in PyTorch, and steps on a GPU, or as on one.

use std::sync::Arc;

use graph_loader::{Assembler, Batch, CellGraph, GraphBatchOptions, Processor, Sample};

mod gpu;
mod layers;

/// A batch of `samples` on `graph`, as the loader makes it.
pub fn collate(processor: Processor, graph: &Arc<CellGraph>, samples: &[Sample]) -> Batch {
    let mut assembler = Assembler::new(&GraphBatchOptions::new(processor), Arc::clone(graph)).unwrap();
    let mut batch = assembler.empty();
    assembler.mask(samples, &[], &mut batch);
    assembler.collate(samples, &mut batch);
    batch
}
