//! Graphs of different sizes put together.

use super::own::OwnEdges;
use super::replicate::widen_shifted;
use super::tensors::Edges;

/// Edges of one type of all samples, each end shifted by the nodes of the samples before.
pub(super) fn join_own(
    own: &OwnEdges,
    source_nodes: impl Iterator<Item = usize>,
    target_nodes: impl Iterator<Item = usize>,
    with_mask: bool,
    edges: &mut Edges,
) {
    edges.num_edges.clear();
    edges.num_edges.extend(own.counts.iter().map(|count| *count as i64));
    let all = own.sources().len();
    edges.edge_index.resize(2 * all, 0);
    let (sources, targets) = edges.edge_index.split_at_mut(all);
    shift(own.sources(), &own.counts, source_nodes, sources);
    shift(own.targets(), &own.counts, target_nodes, targets);
    if with_mask {
        edges.mask.clear();
        edges.mask.extend_from_slice(own.mask());
    }
}

fn shift(mut from: &[u32], counts: &[usize], nodes: impl Iterator<Item = usize>, mut to: &mut [i64]) {
    let mut before = 0;
    for (count, nodes) in counts.iter().zip(nodes) {
        let (sample, rest) = from.split_at(*count);
        from = rest;
        let (place, rest) = to.split_at_mut(*count);
        to = rest;
        widen_shifted(sample, before, place);
        before += nodes as i64;
    }
}
