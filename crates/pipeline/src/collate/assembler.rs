use std::sync::Arc;

use expctl_record::{Pipeline, Processor};

use super::{Batch, Common, GeneMasks, Layout, RemovedLists, Replicated, replicate_shifted};
use crate::PipelineError;
use crate::graph::{CellGraph, Incidence};
use crate::mask::{RemovedEdges, fill_edge_mask, fill_gene_masks};
use crate::store::Sample;

/// Makes batches of one layout. Invariant: [`Assembler::mask`] then [`Assembler::collate`] overwrite every element of
/// the batch they are given, whatever it held before.
#[derive(Clone, Debug)]
pub struct Assembler {
    processor: Processor,
    graph: Arc<CellGraph>,
    incidence: Arc<Vec<Incidence>>,
    removed: RemovedEdges,
}

impl Assembler {
    /// An assembler over a shared graph. The incidence is built here, once; clones share it.
    ///
    /// # Errors
    /// Settings that contradict each other or the graph.
    pub fn new(pipeline: &Pipeline, graph: Arc<CellGraph>) -> Result<Self, PipelineError> {
        let processor = pipeline.processor;
        let incidence = match processor {
            Processor::Lazy | Processor::Shared => {
                graph.edge_types.iter().map(|e| Incidence::build(e, graph.num_genes())).collect()
            }
            Processor::Perturbation | Processor::Ids => Vec::new(),
            _ => return Err(PipelineError::Invalid("not there yet".into())),
        };
        Ok(Self { processor, graph, incidence: Arc::new(incidence), removed: RemovedEdges::default() })
    }

    /// A batch without samples, to be filled.
    pub fn empty(&self) -> Batch {
        let types = self.graph.edge_types.len();
        let layout = match self.processor {
            Processor::Lazy => Layout::Lazy { nodes: GeneMasks::default(), edges: vec![Replicated::default(); types] },
            Processor::Perturbation => Layout::Perturbation { nodes: GeneMasks::default() },
            Processor::Shared => Layout::Shared { removed: vec![RemovedLists::default(); types] },
            _ => Layout::Ids,
        };
        Batch { common: Common::default(), layout }
    }

    /// Stage *mask*: what each sample removes, straight into its place in the batch. `bytes` are the records of the batch,
    /// which hold the masks of stores that have them.
    pub fn mask(&mut self, samples: &[Sample], _bytes: &[u8], batch: &mut Batch) {
        match &mut batch.layout {
            Layout::Lazy { nodes, edges } => {
                mask_nodes(samples, self.graph.num_genes(), nodes);
                for (incidence, edges) in self.incidence.iter().zip(edges) {
                    let e = incidence.num_edges();
                    edges.mask.resize(samples.len() * e, 0);
                    for (sample, mask) in samples.iter().zip(edges.mask.chunks_exact_mut(e.max(1))) {
                        fill_edge_mask(incidence, &sample.genes, mask);
                    }
                }
            }
            Layout::Perturbation { nodes } => mask_nodes(samples, self.graph.num_genes(), nodes),
            Layout::Shared { removed } => {
                for (incidence, lists) in self.incidence.iter().zip(removed) {
                    lists.positions.clear();
                    lists.ptr.clear();
                    lists.ptr.push(0);
                    for sample in samples {
                        // Positions are below 2^31: an edge index of more would not fit this layout's int32.
                        let positions = self.removed.of(incidence, &sample.genes);
                        lists.positions.extend(positions.iter().map(|p| *p as i32));
                        lists.ptr.push(lists.positions.len() as i64);
                    }
                }
            }
            Layout::Ids => {}
        }
    }

    /// Stage *collate*: all else, from the samples and the graph.
    pub fn collate(&self, samples: &[Sample], batch: &mut Batch) {
        collate_common(samples, &mut batch.common);
        let genes = self.graph.num_genes();
        match &mut batch.layout {
            Layout::Lazy { nodes, edges } => {
                collate_nodes(samples.len(), genes, nodes);
                for (edge_type, edges) in self.graph.edge_types.iter().zip(edges) {
                    let e = edge_type.num_edges();
                    edges.edge_index.resize(2 * samples.len() * e, 0);
                    let (sources, targets) = edges.edge_index.split_at_mut(samples.len() * e);
                    replicate_shifted(edge_type.sources(), samples.len(), genes as i64, sources);
                    replicate_shifted(edge_type.targets(), samples.len(), genes as i64, targets);
                    edges.num_edges.clear();
                    edges.num_edges.resize(samples.len(), e as i64);
                }
            }
            Layout::Perturbation { nodes } => collate_nodes(samples.len(), genes, nodes),
            Layout::Shared { .. } | Layout::Ids => {}
        }
    }
}

fn mask_nodes(samples: &[Sample], genes: usize, nodes: &mut GeneMasks) {
    nodes.kept.resize(samples.len() * genes, 0);
    nodes.perturbed.resize(samples.len() * genes, 0);
    let kept = nodes.kept.chunks_exact_mut(genes.max(1));
    let perturbed = nodes.perturbed.chunks_exact_mut(genes.max(1));
    for (sample, (kept, perturbed)) in samples.iter().zip(kept.zip(perturbed)) {
        fill_gene_masks(&sample.genes, kept, perturbed);
    }
}

fn collate_nodes(samples: usize, genes: usize, nodes: &mut GeneMasks) {
    nodes.batch.resize(samples * genes, 0);
    for (i, sample) in nodes.batch.chunks_exact_mut(genes.max(1)).enumerate() {
        sample.fill(i as i64);
    }
    nodes.ptr.clear();
    nodes.ptr.extend((0..=samples).map(|i| (i * genes) as i64));
}

fn collate_common(samples: &[Sample], common: &mut Common) {
    let Common { genes, gene_sample, gene_ptr, labels, p_values } = common;
    genes.clear();
    gene_sample.clear();
    gene_ptr.clear();
    labels.clear();
    p_values.clear();
    gene_ptr.push(0);
    for (i, sample) in samples.iter().enumerate() {
        genes.extend_from_slice(&sample.genes);
        gene_sample.resize(genes.len(), i as i64);
        gene_ptr.push(genes.len() as i64);
        labels.push(sample.label);
        p_values.push(sample.p_value);
    }
}
