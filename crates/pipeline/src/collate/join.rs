//! Graphs of different sizes put together.

use expctl_record::Operation;

use super::own::OwnEdges;
use super::stream::{self, Renumber};
use super::tensors::{Edges, RemovedLists};
use crate::graph::EdgeType;
use crate::marks::{Marker, Operand};
use crate::store::Sample;

/// Edges of a block, whose two ends stay in the first-level cache while all samples are written: 16 KiB.
const BLOCK: usize = 1024;

/// Edges of one type of all samples, each end shifted by the nodes of the samples before.
pub(super) fn join_own<M: Marker>(
    own: &OwnEdges,
    source_nodes: impl Iterator<Item = usize>,
    target_nodes: impl Iterator<Item = usize>,
    with_mask: bool,
    edges: &mut Edges,
    operand: Operand,
    marks: &mut M,
) {
    edges.num_edges.clear();
    edges.num_edges.extend(own.counts.iter().map(|count| *count as i64));
    let all = own.sources().len();
    edges.edge_index.resize(2 * all, 0);
    marks.mark(Operation::Allocate, operand);
    let (sources, targets) = edges.edge_index.split_at_mut(all);
    shift(own.sources(), &own.counts, source_nodes, sources);
    shift(own.targets(), &own.counts, target_nodes, targets);
    if with_mask {
        edges.mask.clear();
        edges.mask.extend_from_slice(own.mask());
    }
    marks.mark(Operation::Copy, operand);
}

fn shift(mut from: &[u32], counts: &[usize], nodes: impl Iterator<Item = usize>, mut to: &mut [i64]) {
    let widen = stream::widen_for(to.len());
    let mut before = 0;
    for (count, nodes) in counts.iter().zip(nodes) {
        let (sample, rest) = from.split_at(*count);
        from = rest;
        let (place, rest) = to.split_at_mut(*count);
        to = rest;
        widen(sample, before, place);
        before += nodes as i64;
    }
    stream::finish();
}

/// Edges of one type without those that each sample loses, its genes numbered anew and shifted by the genes of the samples
/// before.
///
/// Floor: one write of the edges. The graph is taken in blocks, so it is read from memory once and not once per sample;
/// within a block the runs between lost edges are copied.
pub(super) fn join_kept<M: Marker>(
    edge_type: &EdgeType,
    lost: &RemovedLists,
    samples: &[Sample],
    num_genes: usize,
    edges: &mut Edges,
    operand: Operand,
    marks: &mut M,
) {
    /// Where a sample is in its lost edges and in the batch.
    struct Place<'a> {
        lost: &'a [i32],
        next: usize,
        renumber: Renumber<'a>,
    }
    let e = edge_type.num_edges();
    let (mut next, mut before) = (0, 0);
    edges.num_edges.clear();
    let mut places = Vec::with_capacity(samples.len());
    for (at, sample) in samples.iter().enumerate() {
        let lost = lost.of(at);
        places.push(Place { lost, next, renumber: Renumber { removed: &sample.genes, shift: before } });
        edges.num_edges.push((e - lost.len()) as i64);
        next += e - lost.len();
        before += (num_genes - sample.genes.len()) as i64;
    }
    edges.edge_index.resize(2 * next, 0);
    marks.mark(Operation::Allocate, operand);
    let (to_sources, to_targets) = edges.edge_index.split_at_mut(next);
    let write = stream::renumber_for(next);
    let (sources, targets) = (edge_type.sources(), edge_type.targets());
    for first in (0..e).step_by(BLOCK) {
        let end = e.min(first + BLOCK);
        for place in &mut places {
            let here = place.lost.partition_point(|position| (*position as usize) < end);
            let (lost, rest) = place.lost.split_at(here);
            place.lost = rest;
            let mut start = first;
            for stop in lost.iter().map(|position| *position as usize).chain([end]) {
                let run = place.next..place.next + (stop - start);
                place.next = run.end;
                write(&sources[start..stop], place.renumber, &mut to_sources[run.clone()]);
                write(&targets[start..stop], place.renumber, &mut to_targets[run]);
                start = stop + 1;
            }
        }
    }
    stream::finish();
    marks.mark(Operation::Copy, operand);
}
