//! What a batch says of each of its samples.

use std::collections::BTreeSet;

use graph_loader::{Batch, CellGraph, Edges, Graphs, Layout, Nodes};

use super::{Edge, Masked, pairs, sorted};

/// The rows of one sample, given how many each has.
fn rows(counts: &[usize], sample: usize) -> std::ops::Range<usize> {
    let start: usize = counts[..sample].iter().sum();
    start..start + counts[sample]
}

/// How many nodes each sample has, by `batch`; checks `ptr` if it is there.
pub fn counts(nodes: &Nodes, samples: usize) -> Vec<usize> {
    assert!(nodes.batch.is_sorted());
    let counts: Vec<usize> =
        (0..samples as i64).map(|i| nodes.batch.iter().filter(|sample| **sample == i).count()).collect();
    if !nodes.ptr.is_empty() {
        let ends = (0..=samples).map(|i| counts[..i].iter().sum::<usize>() as i64);
        assert!(nodes.ptr.iter().copied().eq(ends), "{:?}", nodes.ptr);
    }
    counts
}

/// Edges of one sample in its own numbers, with their place among all edges.
fn own_edges(edges: &Edges, sources: &[usize], targets: &[usize], sample: usize) -> Vec<(usize, Edge)> {
    let per_sample: Vec<usize> = edges.num_edges.iter().map(|n| *n as usize).collect();
    assert_eq!(edges.sources().len(), per_sample.iter().sum::<usize>());
    let (s, t) = (rows(sources, sample), rows(targets, sample));
    rows(&per_sample, sample)
        .map(|at| {
            let (source, target) = (edges.sources()[at] as usize, edges.targets()[at] as usize);
            assert!(s.contains(&source) && t.contains(&target), "edges stay in their sample");
            (at, ((source - s.start) as i64, (target - t.start) as i64))
        })
        .collect()
}

fn kept_nodes(mask: &[u8]) -> BTreeSet<i64> {
    (0..).zip(mask).filter(|(_, kept)| **kept == 1).map(|(node, _)| node).collect()
}

/// Two masks of all nodes, each the complement of the other; which are kept.
fn complementary(nodes: &Nodes, range: std::ops::Range<usize>) -> BTreeSet<i64> {
    let (kept, perturbed) = (&nodes.kept[range.clone()], &nodes.perturbed[range]);
    assert!(kept.iter().zip(perturbed).all(|(k, p)| k + p == 1));
    kept_nodes(kept)
}

/// A sample of the lazy processor; `None` for the index where it stays with the graph.
pub fn lazy(graph: &CellGraph, graphs: &Graphs, samples: usize, sample: usize, with_index: bool) -> Masked {
    let all = |edges: &Edges, ends: (&[i64], &[i64]), nodes: (usize, usize)| -> Vec<(usize, Edge)> {
        let e = ends.0.len();
        assert_eq!((edges.num_edges.as_slice(), edges.mask.len()), (&vec![e as i64; samples][..], samples * e));
        let whole: Vec<(usize, Edge)> = (sample * e..).zip(pairs(ends.0, ends.1)).collect();
        if with_index {
            assert_eq!(own_edges(edges, &vec![nodes.0; samples], &vec![nodes.1; samples], sample), whole);
        } else {
            assert!(edges.edge_index.is_empty());
        }
        whole.into_iter().filter(|(at, _)| edges.mask[*at] == 1).collect()
    };
    let genes = graph.num_genes();
    assert_eq!(counts(&graphs.genes, samples), vec![genes; samples]);
    let mut masked = Masked {
        genes: complementary(&graphs.genes, sample * genes..(sample + 1) * genes),
        edges: graph
            .edge_types
            .iter()
            .zip(&graphs.edges)
            .map(|(e, edges)| sorted(all(edges, (e.sources(), e.targets()), (genes, genes)).iter().map(|e| e.1)))
            .collect(),
        ..Masked::default()
    };
    assert_eq!(graphs.metabolism.is_some(), graph.metabolism.is_some());
    if let (Some(m), Some(joined)) = (&graph.metabolism, &graphs.metabolism) {
        let (r, n) = (m.reactions, m.metabolites);
        assert_eq!(counts(&joined.reactions, samples), vec![r; samples]);
        assert_eq!(counts(&joined.metabolites, samples), vec![n; samples]);
        assert_eq!(joined.w_growth, vec![0.0; samples * r]);
        assert_eq!(complementary(&joined.metabolites, sample * n..(sample + 1) * n).len(), n);
        masked.reactions = complementary(&joined.reactions, sample * r..(sample + 1) * r);
        masked.gpr = sorted(all(&joined.gpr, (m.gpr_genes(), m.gpr_reactions()), (genes, r)).iter().map(|e| e.1));
        let e = m.num_rmr();
        let rmr = all(&joined.rmr, (m.rmr_reactions(), m.rmr_metabolites()), (r, n));
        let stoichiometry = |at: usize| if with_index { joined.stoichiometry[at] } else { m.stoichiometry[at % e] };
        masked.rmr = sorted(rmr.iter().map(|(at, edge)| (*edge, stoichiometry(*at))));
    }
    masked
}

/// A sample of the subgraph processors, back in the numbers of the whole graph.
pub fn subgraph(graph: &CellGraph, graphs: &Graphs, samples: usize, sample: usize) -> Masked {
    let whole = |perturbed: &[u8], per_sample: usize| -> Vec<i64> {
        let row = &perturbed[sample * per_sample..(sample + 1) * per_sample];
        (0..).zip(row).filter(|(_, perturbed)| **perturbed == 0).map(|(node, _)| node).collect()
    };
    let genes = whole(&graphs.genes.perturbed, graph.num_genes());
    let gene_counts = counts(&graphs.genes, samples);
    assert_eq!(gene_counts[sample], genes.len());
    let back = |edges: &Edges, ends: (&[i64], &[i64]), counts: (&[usize], &[usize]), to: (&[i64], &[i64])| {
        let own = own_edges(edges, counts.0, counts.1, sample);
        let edges_back: Vec<Edge> = own.iter().map(|(_, (s, t))| (to.0[*s as usize], to.1[*t as usize])).collect();
        // The mask over the whole graph says the same, in the same order.
        let e = ends.0.len();
        let row = edges.removed.get(sample * e..(sample + 1) * e);
        if let Some(row) = row.filter(|row| !row.is_empty()) {
            let kept = pairs(ends.0, ends.1).zip(row).filter(|(_, removed)| **removed == 0).map(|(edge, _)| edge);
            assert!(edges_back.iter().copied().eq(kept));
        }
        (own, edges_back)
    };
    let edge_types = graph.edge_types.iter().zip(&graphs.edges);
    let mut masked = Masked {
        edges: edge_types
            .map(|(e, edges)| {
                assert_eq!(edges.removed.len(), samples * e.num_edges());
                let ends = (e.sources(), e.targets());
                sorted(back(edges, ends, (&gene_counts, &gene_counts), (&genes, &genes)).1)
            })
            .collect(),
        genes: genes.iter().copied().collect(),
        ..Masked::default()
    };
    if let (Some(m), Some(joined)) = (&graph.metabolism, &graphs.metabolism) {
        let reactions = whole(&joined.reactions.perturbed, m.reactions);
        let reaction_counts = counts(&joined.reactions, samples);
        let metabolite_counts = counts(&joined.metabolites, samples);
        assert_eq!((reaction_counts[sample], metabolite_counts[sample]), (reactions.len(), m.metabolites));
        let metabolites: Vec<i64> = (0..m.metabolites as i64).collect();
        let ends = (m.gpr_genes(), m.gpr_reactions());
        masked.gpr = sorted(back(&joined.gpr, ends, (&gene_counts, &reaction_counts), (&genes, &reactions)).1);
        let ends = (m.rmr_reactions(), m.rmr_metabolites());
        let (own, rmr) = back(&joined.rmr, ends, (&reaction_counts, &metabolite_counts), (&reactions, &metabolites));
        masked.rmr = sorted(own.iter().zip(rmr).map(|((at, _), edge)| (edge, joined.stoichiometry[*at])));
        masked.reactions = reactions.into_iter().collect();
    }
    masked
}

/// A sample of the neighborhood, back in the numbers of the whole graph: its genes, all its edges, and what is kept.
pub fn neighborhood(
    graph: &CellGraph,
    graphs: &Graphs,
    samples: usize,
    sample: usize,
) -> (BTreeSet<i64>, Vec<Vec<Edge>>, Masked) {
    let gene_counts = counts(&graphs.genes, samples);
    let range = rows(&gene_counts, sample);
    let genes = &graphs.genes.original[range.clone()];
    assert!(genes.is_sorted_by(|a, b| a < b), "ascending, each once");
    let mut all = Vec::new();
    let mut masked = Masked {
        genes: complementary(&graphs.genes, range).iter().map(|gene| genes[*gene as usize]).collect(),
        ..Masked::default()
    };
    for edges in &graphs.edges {
        let back = |(at, (s, t)): (usize, Edge)| (at, (genes[s as usize], genes[t as usize]));
        let own: Vec<_> = own_edges(edges, &gene_counts, &gene_counts, sample).into_iter().map(back).collect();
        assert_eq!(edges.mask.len(), edges.sources().len());
        all.push(sorted(own.iter().map(|(_, edge)| *edge)));
        masked.edges.push(sorted(own.iter().filter(|(at, _)| edges.mask[*at] == 1).map(|(_, edge)| *edge)));
    }
    if let (Some(m), Some(joined)) = (&graph.metabolism, &graphs.metabolism) {
        let (r, n) = (vec![m.reactions; samples], vec![m.metabolites; samples]);
        assert_eq!((counts(&joined.reactions, samples), counts(&joined.metabolites, samples)), (r.clone(), n.clone()));
        masked.reactions = complementary(&joined.reactions, rows(&r, sample));
        let gpr = own_edges(&joined.gpr, &gene_counts, &r, sample);
        let kept = gpr.iter().filter(|(at, _)| joined.gpr.mask[*at] == 1);
        masked.gpr = sorted(kept.map(|(_, (gene, reaction))| (genes[*gene as usize], *reaction)));
        let rmr = own_edges(&joined.rmr, &r, &n, sample);
        let kept = rmr.iter().filter(|(at, _)| joined.rmr.mask[*at] == 1);
        masked.rmr = sorted(kept.map(|(at, edge)| (*edge, joined.stoichiometry[*at])));
    }
    (genes.iter().copied().collect(), all, masked)
}

/// A sample of the layouts that leave the edges with the graph.
pub fn shared(graph: &CellGraph, batch: &Batch, sample: usize) -> Masked {
    let keep = |mask: usize, entry: usize| match &batch.layout {
        Layout::Shared { removed } => {
            let removed = removed[mask].of(sample);
            assert!(removed.is_sorted_by(|a, b| a < b), "ascending, each once");
            !removed.contains(&(entry as i32))
        }
        Layout::Packed { masks } => masks[mask].of(sample)[entry / 64] >> (entry % 64) & 1 == 1,
        other => panic!("{other:?} has no masks"),
    };
    if let Layout::Packed { masks } = &batch.layout {
        for (mask, rows) in masks.iter().enumerate() {
            let bits: u32 = rows.of(sample).iter().map(|word| word.count_ones()).sum();
            assert_eq!(bits as usize, (0..rows.entries).filter(|entry| keep(mask, *entry)).count(), "no bit behind");
        }
    }
    let kept = |mask: usize, sources: &[i64], targets: &[i64]| -> Vec<(usize, Edge)> {
        pairs(sources, targets).enumerate().filter(|(entry, _)| keep(mask, *entry)).collect()
    };
    let perturbed: BTreeSet<i64> = batch.common.genes_of(sample).iter().copied().collect();
    let types = graph.edge_types.len();
    let mut masked = Masked {
        genes: (0..graph.num_genes() as i64).filter(|gene| !perturbed.contains(gene)).collect(),
        edges: graph
            .edge_types
            .iter()
            .enumerate()
            .map(|(t, e)| sorted(kept(t, e.sources(), e.targets()).iter().map(|(_, edge)| *edge)))
            .collect(),
        ..Masked::default()
    };
    if let Some(m) = &graph.metabolism {
        masked.reactions = (0..m.reactions).filter(|r| keep(types, *r)).map(|r| r as i64).collect();
        masked.gpr = sorted(kept(types + 1, m.gpr_genes(), m.gpr_reactions()).iter().map(|(_, edge)| *edge));
        let rmr = kept(types + 2, m.rmr_reactions(), m.rmr_metabolites());
        masked.rmr = sorted(rmr.iter().map(|(entry, edge)| (*edge, m.stoichiometry[*entry])));
    }
    masked
}
