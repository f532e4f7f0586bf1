//! The two stages of the processors that make a graph for each sample.

use std::iter::repeat_n;

use loader_core::StageOperation;

use crate::assembler::{AssemblyPlan, Scratch, SharedGraph};
use crate::batch::{Edges, Followed, Graphs, MetabolicGraphs, Nodes, Phenotype};
use crate::cell_graph::{CellGraph, Metabolism};
use crate::mask::fill_gene_masks;
use crate::mask_sources::MaskSources;
use crate::operations::{Marker, Operand};
use crate::options::Processor;
use crate::records::Sample;
use crate::stream::{replicate, replicate_shifted};
use crate::subgraph;
use crate::subgraph::{join_kept, join_own};

/// Stage *mask*.
pub fn mask_graphs<M: Marker>(
    plan: AssemblyPlan,
    shared: &SharedGraph,
    samples: &[Sample],
    bytes: &[u8],
    scratch: &mut Scratch,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let graph = &shared.graph;
    if plan.processor == Processor::Lazy {
        if let Some(sources) = &shared.sources {
            mask_whole_graphs(graph, sources, samples, bytes, scratch, graphs, marks);
        }
        return;
    }
    scratch.clear(graph.edge_types.len(), graph.metabolism.is_some());
    let neighborhood = plan.processor == Processor::Neighborhood;
    if neighborhood {
        let Nodes { kept, perturbed, original, .. } = &mut graphs.genes;
        kept.clear();
        perturbed.clear();
        original.clear();
    } else {
        // Only `pert_mask` of the genes is published, over the whole graph.
        mask_genes(samples, graph.num_genes(), &mut graphs.genes);
        graphs.genes.kept.clear();
        marks.mark(StageOperation::Fill, Operand::Genes);
        for (index, (edges, joined)) in graph.edge_types.iter().zip(&mut graphs.edges).enumerate() {
            joined.removed.resize(samples.len() * edges.num_edges(), 0);
            marks.mark(StageOperation::Allocate, Operand::EdgeType(index));
        }
    }
    if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
        size_metabolic(metabolism, samples.len(), neighborhood, joined);
        marks.mark(StageOperation::Allocate, Operand::Metabolism);
    }
    match (&shared.neighborhoods, &shared.sources) {
        (Some(neighborhoods), _) => {
            for (at, sample) in samples.iter().enumerate() {
                neighborhoods.process(graph, sample, at, scratch, graphs, marks);
            }
        }
        (None, Some(sources)) => subgraph::from_sources(graph, sources, samples, bytes, scratch, graphs, marks),
        (None, None) => subgraph::scan(graph, samples, scratch, graphs, marks),
    }
}

/// Rows for the masks of whole reactions, gpr and rmr; metabolites are all kept.
fn size_metabolic(metabolism: &Metabolism, samples: usize, neighborhood: bool, joined: &mut MetabolicGraphs) {
    joined.stoichiometry.clear();
    keep_all(samples, metabolism.metabolites, &mut joined.metabolites);
    if neighborhood {
        joined.reactions.kept.resize(samples * metabolism.reactions, 0);
        joined.rmr.mask.resize(samples * metabolism.num_rmr(), 0);
    } else {
        joined.metabolites.kept.clear();
        joined.reactions.perturbed.resize(samples * metabolism.reactions, 0);
        joined.gpr.removed.resize(samples * metabolism.num_gpr(), 0);
    }
}

/// Stage *collate*.
pub fn join_graphs<M: Marker>(
    plan: AssemblyPlan,
    shared: &SharedGraph,
    samples: &[Sample],
    scratch: &Scratch,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let graph = &shared.graph;
    let b = samples.len();
    join_phenotype(b, &mut graphs.phenotype);
    marks.mark(StageOperation::Copy, Operand::Labels);
    if plan.processor == Processor::Lazy {
        join_genes(plan, repeat_n(graph.num_genes(), b), samples, graphs);
        marks.mark(StageOperation::Copy, Operand::Genes);
        join_whole_edges(graph, b, plan.with_index, graphs, marks);
        if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
            join_nodes(repeat_n(metabolism.reactions, b), plan.with_ptr, &mut joined.reactions);
            join_nodes(repeat_n(metabolism.metabolites, b), plan.with_ptr, &mut joined.metabolites);
            marks.mark(StageOperation::Copy, Operand::Metabolism);
        }
        return;
    }
    let neighborhood = plan.processor == Processor::Neighborhood;
    let genes = || scratch.genes.iter().copied();
    join_genes(plan, genes(), samples, graphs);
    marks.mark(StageOperation::Copy, Operand::Genes);
    if neighborhood {
        for (index, (own, edges)) in scratch.edges.iter().zip(&mut graphs.edges).enumerate() {
            join_own(own, genes(), genes(), true, edges, Operand::EdgeType(index), marks);
        }
    } else {
        let types = graph.edge_types.iter().zip(&scratch.lost).zip(&mut graphs.edges);
        for (index, ((edge_type, lost), edges)) in types.enumerate() {
            join_kept(edge_type, lost, samples, graph.num_genes(), edges, Operand::EdgeType(index), marks);
        }
    }
    let (Some(metabolism), Some(joined), [.., gpr, rmr]) =
        (&graph.metabolism, &mut graphs.metabolism, &scratch.edges[..])
    else {
        return;
    };
    join_nodes(repeat_n(metabolism.metabolites, b), plan.with_ptr, &mut joined.metabolites);
    let (operand, metabolites) = (Operand::Metabolism, repeat_n(metabolism.metabolites, b));
    if neighborhood {
        let reactions = repeat_n(metabolism.reactions, b);
        complement(&joined.reactions.kept, &mut joined.reactions.perturbed);
        join_nodes(reactions.clone(), plan.with_ptr, &mut joined.reactions);
        marks.mark(StageOperation::Copy, operand);
        join_own(gpr, genes(), reactions, true, &mut joined.gpr, operand, marks);
        let stride = (metabolism.reactions as i64, metabolism.metabolites as i64);
        let rmr = (metabolism.rmr_reactions(), metabolism.rmr_metabolites());
        join_edge_type(rmr, stride, b, true, &mut joined.rmr, operand, marks);
        replicate(&metabolism.stoichiometry, b, &mut joined.stoichiometry);
        marks.mark(StageOperation::Copy, operand);
    } else {
        let removed = joined.reactions.perturbed.chunks(metabolism.reactions.max(1));
        let kept = |removed: &[u8]| removed.iter().filter(|removed| **removed == 0).count();
        let mut reactions: Vec<usize> = removed.map(kept).collect();
        // Without any reaction there are no rows to count.
        reactions.resize(b, 0);
        join_nodes(reactions.iter().copied(), plan.with_ptr, &mut joined.reactions);
        marks.mark(StageOperation::Copy, operand);
        join_own(gpr, genes(), reactions.iter().copied(), false, &mut joined.gpr, operand, marks);
        join_own(rmr, reactions.iter().copied(), metabolites, false, &mut joined.rmr, operand, marks);
    }
}

fn join_genes(plan: AssemblyPlan, genes: impl Iterator<Item = usize> + Clone, samples: &[Sample], graphs: &mut Graphs) {
    join_nodes(genes.clone(), plan.with_ptr, &mut graphs.genes);
    if plan.follow_x {
        follow(genes.clone(), &mut graphs.x);
    }
    if plan.follow_x_pert {
        // `x_pert` of the neighborhood is as long as `x`; of the other processors it has a row for each perturbed gene.
        if plan.processor == Processor::Neighborhood {
            follow(genes, &mut graphs.x_pert);
        } else {
            follow(samples.iter().map(|sample| sample.genes.len()), &mut graphs.x_pert);
        }
    }
}

/// Write the masks of all samples into the batch.
fn mask_whole_graphs<M: Marker>(
    graph: &CellGraph,
    sources: &MaskSources,
    samples: &[Sample],
    bytes: &[u8],
    scratch: &mut Scratch,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    mask_genes(samples, graph.num_genes(), &mut graphs.genes);
    marks.mark(StageOperation::Fill, Operand::Genes);
    let mut masks: Vec<&mut Vec<u8>> = graphs.edges.iter_mut().map(|edges| &mut edges.mask).collect();
    if let Some(joined) = &mut graphs.metabolism {
        masks.extend([&mut joined.reactions.kept, &mut joined.gpr.mask, &mut joined.rmr.mask]);
    }
    for (number, (mask, entries)) in masks.iter_mut().zip(sources.entries()).enumerate() {
        mask.resize(samples.len() * entries, 0);
        marks.mark(StageOperation::Allocate, sources.operand(number));
    }
    sources.for_each(samples, bytes, &mut scratch.removed, marks, |mask, at, source| {
        let entries = sources.entries()[mask];
        source.to_bytes(&mut masks[mask][at * entries..(at + 1) * entries]);
    });
    if let (Some(joined), Some(metabolism)) = (&mut graphs.metabolism, &graph.metabolism) {
        complement(&joined.reactions.kept, &mut joined.reactions.perturbed);
        keep_all(samples.len(), metabolism.metabolites, &mut joined.metabolites);
        refill(&mut joined.w_growth, samples.len() * metabolism.reactions, 0.0);
        marks.mark(StageOperation::Fill, Operand::Metabolism);
    }
}

/// Edge indices of all samples, and the stoichiometry; nothing but the counts if the index stays with the graph.
fn join_whole_edges<M: Marker>(
    graph: &CellGraph,
    samples: usize,
    with_index: bool,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let genes = graph.num_genes() as i64;
    for (index, (edge_type, edges)) in graph.edge_types.iter().zip(&mut graphs.edges).enumerate() {
        let ends = (edge_type.sources(), edge_type.targets());
        join_edge_type(ends, (genes, genes), samples, with_index, edges, Operand::EdgeType(index), marks);
    }
    if let (Some(joined), Some(metabolism)) = (&mut graphs.metabolism, &graph.metabolism) {
        let (reactions, metabolites) = (metabolism.reactions as i64, metabolism.metabolites as i64);
        let gpr = (metabolism.gpr_genes(), metabolism.gpr_reactions());
        join_edge_type(gpr, (genes, reactions), samples, with_index, &mut joined.gpr, Operand::Metabolism, marks);
        let rmr = (metabolism.rmr_reactions(), metabolism.rmr_metabolites());
        join_edge_type(rmr, (reactions, metabolites), samples, with_index, &mut joined.rmr, Operand::Metabolism, marks);
        if with_index {
            replicate(&metabolism.stoichiometry, samples, &mut joined.stoichiometry);
            marks.mark(StageOperation::Copy, Operand::Metabolism);
        }
    }
}

/// One edge type, once per sample: `(sources, targets)`, each shifted by its stride from one sample to the next.
fn join_edge_type<M: Marker>(
    (sources, targets): (&[i64], &[i64]),
    stride: (i64, i64),
    samples: usize,
    with_index: bool,
    edges: &mut Edges,
    operand: Operand,
    marks: &mut M,
) {
    refill(&mut edges.num_edges, samples, sources.len() as i64);
    if with_index {
        let all = samples * sources.len();
        edges.edge_index.resize(2 * all, 0);
        marks.mark(StageOperation::Allocate, operand);
        let (to_sources, to_targets) = edges.edge_index.split_at_mut(all);
        replicate_shifted(sources, samples, stride.0, to_sources);
        replicate_shifted(targets, samples, stride.1, to_targets);
    }
    marks.mark(StageOperation::Copy, operand);
}

/// Gene masks of all samples over the whole graph.
pub fn mask_genes(samples: &[Sample], genes: usize, nodes: &mut Nodes) {
    nodes.kept.resize(samples.len() * genes, 0);
    nodes.perturbed.resize(samples.len() * genes, 0);
    let kept = nodes.kept.chunks_exact_mut(genes.max(1));
    let perturbed = nodes.perturbed.chunks_exact_mut(genes.max(1));
    for (sample, (kept, perturbed)) in samples.iter().zip(kept.zip(perturbed)) {
        fill_gene_masks(&sample.genes, kept, perturbed);
    }
}

/// Every node of every sample is kept: metabolites.
fn keep_all(samples: usize, per_sample: usize, nodes: &mut Nodes) {
    refill(&mut nodes.kept, samples * per_sample, 1);
    refill(&mut nodes.perturbed, samples * per_sample, 0);
}

/// The complement of a byte mask.
fn complement(mask: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend(mask.iter().map(|kept| u8::from(*kept == 0)));
}

/// `vec` of `len` times `value`, in the same buffer.
pub fn refill<T: Copy>(vec: &mut Vec<T>, len: usize, value: T) {
    vec.clear();
    vec.resize(len, value);
}

/// The sample of each row, of which the samples have `counts`.
fn sample_of_rows(counts: impl Iterator<Item = usize>, out: &mut Vec<i64>) {
    out.clear();
    for (sample, count) in counts.enumerate() {
        out.resize(out.len() + count, sample as i64);
    }
}

/// Position of each sample's first row, and the end.
fn starts_of_rows(counts: impl Iterator<Item = usize>, out: &mut Vec<i64>) {
    out.clear();
    out.push(0);
    let mut end = 0;
    out.extend(counts.map(|count| {
        end += count as i64;
        end
    }));
}

/// `batch` of one kind of node and, where the collation makes it, `ptr`.
pub fn join_nodes(counts: impl Iterator<Item = usize> + Clone, with_ptr: bool, nodes: &mut Nodes) {
    sample_of_rows(counts.clone(), &mut nodes.batch);
    if with_ptr {
        starts_of_rows(counts, &mut nodes.ptr);
    }
}

/// Vectors of a followed field.
fn follow(counts: impl Iterator<Item = usize> + Clone, field: &mut Followed) {
    sample_of_rows(counts.clone(), &mut field.batch);
    starts_of_rows(counts, &mut field.ptr);
}

/// Coordinates of one label and one p-value per sample.
pub fn join_phenotype(samples: usize, phenotype: &mut Phenotype) {
    let Phenotype { type_indices, sample_indices, stat_type_indices, stat_sample_indices } = phenotype;
    for indices in [type_indices, sample_indices, stat_type_indices, stat_sample_indices] {
        refill(indices, samples, 0);
    }
}
