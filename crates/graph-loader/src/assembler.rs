//! `Assembler` turns the decoded samples of one batch into tensors, in two stages: *mask*, what each sample removes from the graph, and *collate*,
//! the layout of the batch. Each loader thread has a clone with scratch memory of its own; the graph and the lookup tables are shared.

use std::sync::Arc;

use loader_core::StageOperation;

use crate::batch::{Batch, BitMasks, Common, Graphs, Layout, Nodes, Phenotype, RemovedLists};
use crate::cell_graph::CellGraph;
use crate::incidence::RemovedMetabolism;
use crate::mask::SortedUnion;
use crate::mask_sources::{EdgeSampling, MaskSources};
use crate::neighborhood::{Neighborhoods, Visited};
use crate::operations::{Marker, Operand, Unmarked};
use crate::options::{Collation, GraphBatchOptions, MaskSource, Processor};
use crate::records::Sample;
use crate::sample_graphs::{mask_genes, refill};
use crate::subgraph::RelabeledEdges;
use crate::{GraphError, sample_graphs};

/// Makes batches of one layout. Invariant: [`Assembler::mask`] then [`Assembler::collate`] overwrite every element of
/// the batch they are given, whatever it held before.
///
/// The processors `lazy`, `packed`, `shared` and `incidence_subgraph` use the masks of a store's records if there are any,
/// and do not compare them with the sample's genes. The other processors go by the genes.
#[derive(Clone, Debug)]
pub struct Assembler {
    plan: AssemblyPlan,
    shared: Arc<SharedGraph>,
    scratch: Scratch,
}

/// The parts of a batch that the options ask for.
#[derive(Clone, Copy, Debug)]
pub struct AssemblyPlan {
    pub processor: Processor,
    /// Edge indices and stoichiometry go into the batch.
    pub with_index: bool,
    /// `ptr` of each kind of node goes into the batch.
    pub with_ptr: bool,
    /// The sample of each row of `x` goes into the batch.
    pub follow_x: bool,
    /// The sample of each row of `x_pert` goes into the batch.
    pub follow_x_pert: bool,
}

/// The graph and the lookup tables over it; all loader threads share them.
#[derive(Debug)]
pub struct SharedGraph {
    pub graph: Arc<CellGraph>,
    pub sources: Option<MaskSources>,
    pub neighborhoods: Option<Neighborhoods>,
}

impl Assembler {
    /// An assembler over a shared graph. What processors look up is built here, once; clones share it.
    ///
    /// # Errors
    /// [`GraphError::Options`]; [`GraphError::GeneMasksTooLarge`].
    pub fn new(options: &GraphBatchOptions, graph: Arc<CellGraph>) -> Result<Self, GraphError> {
        options.check()?;
        let processor = options.processor;
        let plan = AssemblyPlan::new(options);
        let sources = match processor {
            Processor::Lazy | Processor::IncidenceSubgraph | Processor::Shared | Processor::Packed => {
                let sampling = EdgeSampling::new(options.mask_fraction, options.mask_seed);
                let sources = MaskSources::build(&graph).sampled(sampling);
                Some(match options.mask_source {
                    MaskSource::Incidence => sources,
                    MaskSource::GeneMasks => sources.with_gene_masks(options.gene_mask_bytes)?,
                })
            }
            Processor::Subgraph | Processor::Neighborhood | Processor::Perturbation | Processor::Ids => None,
        };
        let neighborhoods =
            (processor == Processor::Neighborhood).then(|| Neighborhoods::build(&graph, options.walk, options.hops));
        Ok(Self { plan, shared: Arc::new(SharedGraph { graph, sources, neighborhoods }), scratch: Scratch::default() })
    }

    /// Names of the edge types, in the order of the graph.
    pub fn edge_types(&self) -> impl Iterator<Item = &str> {
        self.shared.graph.edge_types.iter().map(|edges| edges.name.as_str())
    }

    /// Bytes of scratch memory: 9 for each edge of the largest batch of a neighborhood, little for other processors.
    pub fn work_bytes(&self) -> u64 {
        self.scratch.own_bytes() as u64
    }

    /// A batch without samples, to be filled.
    pub fn empty(&self) -> Batch {
        let graph = &self.shared.graph;
        let masks = self.shared.sources.as_ref().map_or(0, |sources| sources.entries().len());
        let layout = match self.plan.processor {
            Processor::Lazy | Processor::Subgraph | Processor::IncidenceSubgraph | Processor::Neighborhood => {
                Layout::Graphs(Box::new(Graphs {
                    edges: vec![Default::default(); graph.edge_types.len()],
                    metabolism: graph.metabolism.as_ref().map(|_| Default::default()),
                    ..Graphs::default()
                }))
            }
            Processor::Perturbation => {
                Layout::Perturbation { genes: Nodes::default(), phenotype: Phenotype::default() }
            }
            Processor::Shared => Layout::Shared { removed: vec![RemovedLists::default(); masks] },
            Processor::Packed => Layout::Packed { masks: vec![BitMasks::default(); masks] },
            Processor::Ids => Layout::Ids,
        };
        Batch { common: Common::default(), layout }
    }

    /// Stage *mask*: process each sample, into its place in the batch if that is known already. `bytes` are the records of
    /// the batch, which hold the masks of stores that have them.
    ///
    /// # Panics
    /// If `batch` is of another assembler, or a stored mask does not fit the graph, which decoding has checked.
    pub fn mask(&mut self, samples: &[Sample], bytes: &[u8], batch: &mut Batch) {
        self.mask_marked(samples, bytes, batch, &mut Unmarked);
    }

    /// As [`Assembler::mask`], with a mark behind each operation.
    ///
    /// # Panics
    /// As [`Assembler::mask`].
    pub fn mask_marked<M: Marker>(&mut self, samples: &[Sample], bytes: &[u8], batch: &mut Batch, marks: &mut M) {
        let Self { plan, shared, scratch } = self;
        match (&mut batch.layout, &shared.sources) {
            (Layout::Graphs(graphs), _) => {
                sample_graphs::mask_graphs(*plan, shared, samples, bytes, scratch, graphs, marks)
            }
            (Layout::Perturbation { genes, .. }, _) => {
                mask_genes(samples, shared.graph.num_genes(), genes);
                marks.mark(StageOperation::Fill, Operand::Genes);
            }
            (Layout::Shared { removed: lists }, Some(sources)) => {
                lists.iter_mut().for_each(RemovedLists::clear);
                sources.for_each(samples, bytes, &mut scratch.removed, marks, |mask, _, source| {
                    let list = &mut lists[mask];
                    source.append_removed(sources.entries()[mask], &mut scratch.union, &mut list.positions);
                    list.ptr.push(list.positions.len() as i64);
                });
            }
            (Layout::Packed { masks }, Some(sources)) => {
                for (number, (mask, entries)) in masks.iter_mut().zip(sources.entries()).enumerate() {
                    mask.entries = *entries;
                    mask.words.resize(samples.len() * entries.div_ceil(64), 0);
                    marks.mark(StageOperation::Allocate, sources.operand(number));
                }
                sources.for_each(samples, bytes, &mut scratch.removed, marks, |mask, at, source| {
                    let entries = sources.entries()[mask];
                    let row = entries.div_ceil(64);
                    source.to_bits(entries, &mut masks[mask].words[at * row..(at + 1) * row]);
                });
            }
            (Layout::Shared { .. } | Layout::Packed { .. } | Layout::Ids, _) => {}
        }
    }

    /// Stage *collate*: fill the rest of the batch from the samples and the graph.
    ///
    /// # Panics
    /// If `batch` is of another assembler.
    pub fn collate(&self, samples: &[Sample], batch: &mut Batch) {
        self.collate_marked(samples, batch, &mut Unmarked);
    }

    /// As [`Assembler::collate`], with a mark behind each operation.
    ///
    /// # Panics
    /// As [`Assembler::collate`].
    pub fn collate_marked<M: Marker>(&self, samples: &[Sample], batch: &mut Batch, marks: &mut M) {
        collate_common(samples, &mut batch.common);
        marks.mark(StageOperation::Copy, Operand::Labels);
        match &mut batch.layout {
            Layout::Graphs(graphs) => {
                sample_graphs::join_graphs(self.plan, &self.shared, samples, &self.scratch, graphs, marks)
            }
            Layout::Perturbation { genes, phenotype } => {
                let counts = std::iter::repeat_n(self.shared.graph.num_genes(), samples.len());
                sample_graphs::join_nodes(counts, self.plan.with_ptr, genes);
                marks.mark(StageOperation::Copy, Operand::Genes);
                sample_graphs::join_phenotype(samples.len(), phenotype);
                marks.mark(StageOperation::Copy, Operand::Labels);
            }
            Layout::Shared { .. } | Layout::Packed { .. } | Layout::Ids => {}
        }
    }
}

impl AssemblyPlan {
    /// `options` have been checked.
    fn new(options: &GraphBatchOptions) -> Self {
        let own_edges = options.processor.has_own_edges();
        Self {
            processor: options.processor,
            with_index: options.collation != Collation::SharedIndex,
            with_ptr: options.collation != Collation::LazyCollater,
            follow_x: options.follows("x") && (own_edges || options.processor == Processor::Lazy),
            follow_x_pert: options.follows("x_pert") && own_edges,
        }
    }
}

fn collate_common(samples: &[Sample], common: &mut Common) {
    let Common { genes, gene_sample, gene_ptr, labels, p_values } = common;
    genes.clear();
    gene_sample.clear();
    labels.clear();
    p_values.clear();
    refill(gene_ptr, 1, 0);
    for (i, sample) in samples.iter().enumerate() {
        genes.extend_from_slice(&sample.genes);
        gene_sample.resize(genes.len(), i as i64);
        gene_ptr.push(genes.len() as i64);
        labels.push(sample.label);
        p_values.push(sample.p_value);
    }
}

impl Assembler {
    /// Bytes of a batch of `samples` samples with `perturbed` perturbed genes in all, where they do not depend on which
    /// genes these are; `None` where they do. What [`crate::batch::Batch::bytes`] counts, without making the batch.
    pub fn fixed_bytes(&self, samples: usize, perturbed: usize) -> Option<u64> {
        let (plan, graph) = (self.plan, &self.shared.graph);
        let ptr = 8 * (samples + 1);
        let nodes = |count: usize| samples * count * (1 + 1 + 8) + if plan.with_ptr { ptr } else { 0 };
        let edges = |count: usize| samples * (count * if plan.with_index { 16 + 1 } else { 1 } + 8);
        let phenotype = 4 * 8 * samples;
        let common = 2 * 8 * perturbed + ptr + 2 * 4 * samples;
        let genes = graph.num_genes();
        let rest = match plan.processor {
            Processor::Lazy => {
                let types: usize = graph.edge_types.iter().map(|e| edges(e.num_edges())).sum();
                let followed = if plan.follow_x { 8 * samples * genes + ptr } else { 0 };
                let metabolism = graph.metabolism.as_ref().map_or(0, |m| {
                    let stoichiometry = if plan.with_index { 4 * samples * m.num_rmr() } else { 0 };
                    let w_growth = 4 * samples * m.reactions;
                    let ends = edges(m.num_gpr()) + edges(m.num_rmr());
                    nodes(m.reactions) + w_growth + nodes(m.metabolites) + ends + stoichiometry
                });
                nodes(genes) + followed + phenotype + types + metabolism
            }
            Processor::Perturbation => nodes(genes) + phenotype,
            Processor::Packed => {
                let entries = self.shared.sources.iter().flat_map(|sources| sources.entries());
                entries.map(|entries| 8 * samples * entries.div_ceil(64)).sum()
            }
            Processor::Ids => 0,
            Processor::Subgraph | Processor::IncidenceSubgraph | Processor::Neighborhood | Processor::Shared => {
                return None;
            }
        };
        Some((common + rest) as u64)
    }
}

/// Buffers of one thread. They hold nothing between batches, so a clone starts empty.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Removed reactions and edges of each sample.
    pub removed: Vec<RemovedMetabolism>,
    pub union: SortedUnion,
    pub positions: Vec<i32>,
    pub visited: Visited,
    pub found: Vec<u32>,
    pub gone: Vec<u8>,
    /// New number of each gene in the sample at hand.
    pub table: Vec<u32>,
    /// New number of each reaction.
    pub reaction_table: Vec<u32>,
    /// Genes of each sample.
    pub genes: Vec<usize>,
    /// Edges of each type that the samples lose.
    pub lost: Vec<RemovedLists>,
    /// Edge types and, with metabolism, gpr and rmr; of the subgraph processors only the latter.
    pub edges: Vec<RelabeledEdges>,
}

impl Scratch {
    /// Forget the samples of the last batch.
    pub fn clear(&mut self, edge_types: usize, metabolism: bool) {
        self.genes.clear();
        self.lost.resize_with(edge_types, RemovedLists::default);
        self.lost.iter_mut().for_each(RemovedLists::clear);
        self.edges.resize_with(edge_types + if metabolism { 2 } else { 0 }, RelabeledEdges::default);
        self.edges.iter_mut().for_each(RelabeledEdges::clear);
    }

    /// Bytes of the edges and tables that a thread holds for itself. What is left out is a few tables of the graph's genes.
    fn own_bytes(&self) -> usize {
        let edges: usize = self.edges.iter().map(RelabeledEdges::capacity_bytes).sum();
        let lost: usize = self.lost.iter().map(|lost| 4 * lost.positions.capacity()).sum();
        edges + lost + 4 * (self.table.capacity() + self.reaction_table.capacity() + self.positions.capacity())
    }
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell_graph::EdgeType;

    #[test]
    fn clones_share_what_is_large() {
        let edges = EdgeType { name: "e".into(), edge_index: vec![0, 1, 2, /* to */ 1, 2, 0] };
        let genes = vec![String::new(); 3];
        let graph = Arc::new(CellGraph { genes, edge_types: vec![edges; 4], metabolism: None });
        for processor in [Processor::Lazy, Processor::IncidenceSubgraph, Processor::Neighborhood] {
            let options = GraphBatchOptions::new(processor);
            let mut first = Assembler::new(&options, Arc::clone(&graph)).unwrap();
            let sample = Sample { genes: vec![1], ..Sample::default() };
            let mut batch = first.empty();
            first.mask(&[sample], &[], &mut batch);
            let second = first.clone();
            assert!(Arc::ptr_eq(&first.shared, &second.shared));
            assert!(Arc::ptr_eq(&graph, &second.shared.graph));
            // A clone has its own struct and scratch buffers; all else is shared.
            assert!(size_of::<Assembler>() < 1024);
            assert_eq!(second.scratch.own_bytes(), 0);
            assert_eq!(first.scratch.own_bytes() == 0, processor == Processor::Lazy);
        }
    }
}
