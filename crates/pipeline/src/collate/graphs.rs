//! The two stages of the processors that make a graph for each sample.

use std::iter::repeat_n;

use expctl_record::Processor;

use super::assembler::{Plan, Shared};
use super::join::{join_kept, join_own};
use super::nodes::{follow, join_nodes, join_phenotype, keep_all, mask_genes};
use super::replicate::replicate;
use super::tensors::{Graphs, MetabolicGraphs, Nodes};
use super::work::Work;
use super::{full, subgraph};
use crate::graph::Metabolism;
use crate::store::Sample;

/// Stage *mask*.
pub(super) fn mask(
    plan: Plan,
    shared: &Shared,
    samples: &[Sample],
    bytes: &[u8],
    work: &mut Work,
    graphs: &mut Graphs,
) {
    let graph = &shared.graph;
    if plan.processor == Processor::Lazy {
        if let Some(sources) = &shared.sources {
            full::mask(graph, sources, samples, bytes, work, graphs);
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
        for (edges, joined) in graph.edge_types.iter().zip(&mut graphs.edges) {
            joined.removed.resize(samples.len() * edges.num_edges(), 0);
        }
    }
    if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
        size_metabolic(metabolism, samples.len(), neighborhood, joined);
    }
    for (at, sample) in samples.iter().enumerate() {
        match (&shared.neighborhoods, &shared.sources) {
            (Some(neighborhoods), _) => neighborhoods.process(graph, sample, at, work, graphs),
            (None, Some(sources)) => subgraph::from_sources(graph, sources, (sample, bytes), at, work, graphs),
            (None, None) => subgraph::scan(graph, sample, at, work, graphs),
        }
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
pub(super) fn join(plan: Plan, shared: &Shared, samples: &[Sample], work: &Work, graphs: &mut Graphs) {
    let graph = &shared.graph;
    let b = samples.len();
    join_phenotype(b, &mut graphs.phenotype);
    if plan.processor == Processor::Lazy {
        join_genes(plan, repeat_n(graph.num_genes(), b), samples, graphs);
        full::join_edges(graph, b, plan.with_index, graphs);
        if let (Some(metabolism), Some(joined)) = (&graph.metabolism, &mut graphs.metabolism) {
            join_nodes(repeat_n(metabolism.reactions, b), plan.with_ptr, &mut joined.reactions);
            join_nodes(repeat_n(metabolism.metabolites, b), plan.with_ptr, &mut joined.metabolites);
        }
        return;
    }
    let neighborhood = plan.processor == Processor::Neighborhood;
    let genes = || work.genes.iter().copied();
    join_genes(plan, genes(), samples, graphs);
    if neighborhood {
        for (own, edges) in work.edges.iter().zip(&mut graphs.edges) {
            join_own(own, genes(), genes(), true, edges);
        }
    } else {
        for ((edge_type, lost), edges) in graph.edge_types.iter().zip(&work.lost).zip(&mut graphs.edges) {
            join_kept(edge_type, lost, samples, graph.num_genes(), edges);
        }
    }
    let (Some(metabolism), Some(joined), [.., gpr, rmr]) = (&graph.metabolism, &mut graphs.metabolism, &work.edges[..])
    else {
        return;
    };
    join_nodes(repeat_n(metabolism.metabolites, b), plan.with_ptr, &mut joined.metabolites);
    let metabolites = repeat_n(metabolism.metabolites, b);
    if neighborhood {
        let reactions = repeat_n(metabolism.reactions, b);
        super::nodes::complement(&joined.reactions.kept, &mut joined.reactions.perturbed);
        join_nodes(reactions.clone(), plan.with_ptr, &mut joined.reactions);
        join_own(gpr, genes(), reactions, true, &mut joined.gpr);
        let stride = (metabolism.reactions as i64, metabolism.metabolites as i64);
        full::join(metabolism.rmr_reactions(), metabolism.rmr_metabolites(), stride, b, true, &mut joined.rmr);
        replicate(&metabolism.stoichiometry, b, &mut joined.stoichiometry);
    } else {
        let removed = joined.reactions.perturbed.chunks(metabolism.reactions.max(1));
        let kept = |removed: &[u8]| removed.iter().filter(|removed| **removed == 0).count();
        let mut reactions: Vec<usize> = removed.map(kept).collect();
        // Without any reaction there are no rows to count.
        reactions.resize(b, 0);
        join_nodes(reactions.iter().copied(), plan.with_ptr, &mut joined.reactions);
        join_own(gpr, genes(), reactions.iter().copied(), false, &mut joined.gpr);
        join_own(rmr, reactions.iter().copied(), metabolites, false, &mut joined.rmr);
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
