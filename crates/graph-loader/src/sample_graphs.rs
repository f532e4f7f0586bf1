//! The two stages of the processors that make a graph for each sample.

use std::iter::repeat_n;

use expctl_record::{Operation, Processor};

use super::assembler::{Plan, Shared};
use super::join::{join_kept, join_own};
use super::nodes::{follow, join_nodes, join_phenotype, keep_all, mask_genes};
use super::replicate::replicate;
use super::tensors::{Graphs, MetabolicGraphs, Nodes};
use super::work::Work;
use super::{full, subgraph};
use crate::graph::Metabolism;
use crate::marks::{Marker, Operand};
use crate::store::Sample;

/// Stage *mask*.
pub(super) fn mask<M: Marker>(
    plan: Plan,
    shared: &Shared,
    samples: &[Sample],
    bytes: &[u8],
    work: &mut Work,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let graph = &shared.graph;
    if plan.processor == Processor::Lazy {
        if let Some(sources) = &shared.sources {
            full::mask(graph, sources, samples, bytes, work, graphs, marks);
        }
        return;
    }
    work.clear(graph.edge_types.len(), graph.metabolism.is_some());
    let neighborhood = plan.processor == Processor::Neighborhood;
    if neighborhood {
        let Nodes { kept, perturbed, original, .. } = &mut graphs.genes;
        kept.clear();
        perturbed.clear();
        original.clear();
    } else {
        // Of the genes only `pert_mask` is published, over the whole graph.
        mask_genes(samples, graph.num_genes(), &mut graphs.genes);
        graphs.genes.kept.clear();
        marks.mark(Operation::Fill, Operand::Genes);
        for (index, (edges, joined)) in graph.edge_types.iter().zip(&mut graphs.edges).enumerate() {
            joined.removed.resize(samples.len() * edges.num_edges(), 0);
            marks.mark(Operation::Allocate, Operand::EdgeType(index));
        }
    }
    if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
        size_metabolic(metabolism, samples.len(), neighborhood, joined);
        marks.mark(Operation::Allocate, Operand::Metabolism);
    }
    match (&shared.neighborhoods, &shared.sources) {
        (Some(neighborhoods), _) => {
            for (at, sample) in samples.iter().enumerate() {
                neighborhoods.process(graph, sample, at, work, graphs, marks);
            }
        }
        (None, Some(sources)) => subgraph::from_sources(graph, sources, samples, bytes, work, graphs, marks),
        (None, None) => subgraph::scan(graph, samples, work, graphs, marks),
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
pub(super) fn join<M: Marker>(
    plan: Plan,
    shared: &Shared,
    samples: &[Sample],
    work: &Work,
    graphs: &mut Graphs,
    marks: &mut M,
) {
    let graph = &shared.graph;
    let b = samples.len();
    join_phenotype(b, &mut graphs.phenotype);
    marks.mark(Operation::Copy, Operand::Labels);
    if plan.processor == Processor::Lazy {
        join_genes(plan, repeat_n(graph.num_genes(), b), samples, graphs);
        marks.mark(Operation::Copy, Operand::Genes);
        full::join_edges(graph, b, plan.with_index, graphs, marks);
        if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
            join_nodes(repeat_n(metabolism.reactions, b), plan.with_ptr, &mut joined.reactions);
            join_nodes(repeat_n(metabolism.metabolites, b), plan.with_ptr, &mut joined.metabolites);
            marks.mark(Operation::Copy, Operand::Metabolism);
        }
        return;
    }
    let neighborhood = plan.processor == Processor::Neighborhood;
    let genes = || work.genes.iter().copied();
    join_genes(plan, genes(), samples, graphs);
    marks.mark(Operation::Copy, Operand::Genes);
    if neighborhood {
        for (index, (own, edges)) in work.edges.iter().zip(&mut graphs.edges).enumerate() {
            join_own(own, genes(), genes(), true, edges, Operand::EdgeType(index), marks);
        }
    } else {
        let types = graph.edge_types.iter().zip(&work.lost).zip(&mut graphs.edges);
        for (index, ((edge_type, lost), edges)) in types.enumerate() {
            join_kept(edge_type, lost, samples, graph.num_genes(), edges, Operand::EdgeType(index), marks);
        }
    }
    let (Some(metabolism), Some(joined), [.., gpr, rmr]) = (&graph.metabolism, &mut graphs.metabolism, &work.edges[..])
    else {
        return;
    };
    join_nodes(repeat_n(metabolism.metabolites, b), plan.with_ptr, &mut joined.metabolites);
    let (operand, metabolites) = (Operand::Metabolism, repeat_n(metabolism.metabolites, b));
    if neighborhood {
        let reactions = repeat_n(metabolism.reactions, b);
        super::nodes::complement(&joined.reactions.kept, &mut joined.reactions.perturbed);
        join_nodes(reactions.clone(), plan.with_ptr, &mut joined.reactions);
        marks.mark(Operation::Copy, operand);
        join_own(gpr, genes(), reactions, true, &mut joined.gpr, operand, marks);
        let stride = (metabolism.reactions as i64, metabolism.metabolites as i64);
        let rmr = (metabolism.rmr_reactions(), metabolism.rmr_metabolites());
        full::join(rmr, stride, b, true, &mut joined.rmr, operand, marks);
        replicate(&metabolism.stoichiometry, b, &mut joined.stoichiometry);
        marks.mark(Operation::Copy, operand);
    } else {
        let removed = joined.reactions.perturbed.chunks(metabolism.reactions.max(1));
        let kept = |removed: &[u8]| removed.iter().filter(|removed| **removed == 0).count();
        let mut reactions: Vec<usize> = removed.map(kept).collect();
        // Without any reaction there are no rows to count.
        reactions.resize(b, 0);
        join_nodes(reactions.iter().copied(), plan.with_ptr, &mut joined.reactions);
        marks.mark(Operation::Copy, operand);
        join_own(gpr, genes(), reactions.iter().copied(), false, &mut joined.gpr, operand, marks);
        join_own(rmr, reactions.iter().copied(), metabolites, false, &mut joined.rmr, operand, marks);
    }
}

fn join_genes(plan: Plan, genes: impl Iterator<Item = usize> + Clone, samples: &[Sample], graphs: &mut Graphs) {
    join_nodes(genes.clone(), plan.with_ptr, &mut graphs.genes);
    if plan.follow_x {
        follow(genes.clone(), &mut graphs.x);
    }
    if plan.follow_x_pert {
        // The neighborhood's is as long as `x`, the others' has a row for each perturbed gene.
        if plan.processor == Processor::Neighborhood {
            follow(genes, &mut graphs.x_pert);
        } else {
            follow(samples.iter().map(|sample| sample.genes.len()), &mut graphs.x_pert);
        }
    }
}
